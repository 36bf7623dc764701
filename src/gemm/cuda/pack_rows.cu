// pack_rows.cu - packs rows of activations for a GEMM: RMSNorm where asked for, then the form that its kernel
// reads (packing.h).
//
//   kernel           form                                              block
//   pack_mma         bf16 fragments: tiles of 8 rows for gemm_few,      a row
//                    [128 rows][64 columns] for gemm_many, gemm_hopper
//   pack_int8        int8, a scale for each 32 columns                 a row, or a part of one without a norm
//   pack_int8_split  the same for up to 8 rows, norm factor left out   128 threads, a part of a row
//   pack_int8_tiles  int8 in tiles, a scale for each 64 columns        8 times 128 columns of a row
//   pack_bf16        bf16 in the columns' own order, the same tiles    rows in turn, prefetched
//
// 16-byte words of a 128-byte line are swizzled by the row, as wgmma and ldmatrix read them without bank
// conflicts, so that a tile is copied as it lies. Columns beyond the end, and rows of a tile of eight beyond
// the step's, are zero; for int8 such rows hold anything. The command before can write the same bits itself
// (epilogue_pack.cuh); tape_seal decides that.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/gemm_params.h"
#include "gemm/cuda/int8_tiles.cuh"
#include "gemm/cuda/row_int8.cuh"

enum { PACK_MMA_THREADS = 256 };

static __device__ __forceinline__ f32 number(const struct packing_params &p, u32 row, u32 column, f32 factor)
{
    if (column >= p.n_cols)
        return 0;
    f32 v = p.in[(u64)row * p.n_cols + column] * factor;
    return p.norm ? v * p.norm[column] : v;
}

// Two numbers that are neighbours in a fragment: of lane t, step s, low (k = 2 t) or high (k = 2 t + 8).
static __device__ __forceinline__ u32 word(const struct packing_params &p, u32 row, u32 super, u32 t, u32 s,
                                           u32 high, f32 factor)
{
    u32 column = super * 128 + t * 32 + s % 2 * 16 + s / 2 * 4 + high;
    return two_bf16(number(p, row, column, factor), number(p, row, column + 2, factor));
}

// A step's four words of lanes 0..3, for low k or for high k.
static __device__ __forceinline__ uint4 four_words(const struct packing_params &p, u32 row, u32 super, u32 s,
                                                   u32 high, f32 factor)
{
    return make_uint4(word(p, row, super, 0, s, high, factor), word(p, row, super, 1, s, high, factor),
                      word(p, row, super, 2, s, high, factor), word(p, row, super, 3, s, high, factor));
}

// The same for both, of a row whose columns are whole fragments: from four 16-byte loads, with the norm's
// weights or 1.
struct step_numbers {
    float4 v[4], norm[4]; // of lanes 0..3

    static __device__ __forceinline__ u32 column_of(u32 step)
    {
        return step / 8 * 128 + step % 2 * 16 + step % 8 / 2 * 4;
    }
    __device__ __forceinline__ void load_norm(const struct packing_params &p, u32 step)
    {
#pragma unroll
        for (u32 t = 0; t < 4; t++)
            norm[t] = p.norm ? *(const float4 *)(p.norm + column_of(step) + t * 32) : make_float4(1, 1, 1, 1);
    }
    __device__ __forceinline__ void load(const struct packing_params &p, u32 row, u32 step)
    {
        const f32 *from = p.in + (u64)row * p.n_cols + column_of(step);
#pragma unroll
        for (u32 t = 0; t < 4; t++)
            v[t] = *(const float4 *)(from + t * 32);
    }
    __device__ __forceinline__ f32 squares() const
    {
        f32 sum = 0;
#pragma unroll
        for (u32 t = 0; t < 4; t++)
            sum += v[t].x * v[t].x + v[t].y * v[t].y + v[t].z * v[t].z + v[t].w * v[t].w;
        return sum;
    }
    __device__ __forceinline__ void pack(f32 factor, uint4 (&to)[2]) const
    {
        u32 low[4], high[4];
#pragma unroll
        for (u32 t = 0; t < 4; t++) {
            low[t] = two_bf16(v[t].x * factor * norm[t].x, v[t].z * factor * norm[t].z);
            high[t] = two_bf16(v[t].y * factor * norm[t].y, v[t].w * factor * norm[t].w);
        }
        to[0] = make_uint4(low[0], low[1], low[2], low[3]);
        to[1] = make_uint4(high[0], high[1], high[2], high[3]);
    }
};

static __device__ __forceinline__ void put_step(const struct packing_params &p, u32 row, u32 step,
                                                const uint4 (&words)[2])
{
    u64 chunk = (u64)(row / PACKED_TILE_ROWS) * (p.packed_cols / 64);
    uint4 *out = (uint4 *)p.out + ((chunk + step / 4) * PACKED_TILE_ROWS + row % PACKED_TILE_ROWS) * 8;
    u32 at = step % 4 * 2;

    out[at ^ row % 8] = words[0];
    out[(at + 1) ^ row % 8] = words[1];
}

static __device__ __forceinline__ void put_row(const struct packing_params &p, u32 row, f32 factor)
{
    bool whole = p.n_cols % 128 == 0;

    for (u32 i = threadIdx.x; i < p.packed_cols / 16; i += PACK_MMA_THREADS) {
        uint4 words[2];
        if (whole) {
            struct step_numbers numbers;
            numbers.load_norm(p, i);
            numbers.load(p, row, i);
            numbers.pack(factor, words);
        } else {
            words[0] = four_words(p, row, i / 8, i % 8, 0, factor);
            words[1] = four_words(p, row, i / 8, i % 8, 1, factor);
        }
        put_step(p, row, i, words);
    }
}

// A row that is normalised, of which each thread has at most 16 columns, is read once, and the norm's weights
// before it is there.
static __device__ __forceinline__ bool is_short(const struct packing_params &p)
{
    return p.norm && !p.tiled && p.n_cols % 128 == 0 && p.n_cols <= 16 * PACK_MMA_THREADS;
}
static __device__ __forceinline__ void put_short_row(const struct packing_params &p, u32 row, f32 (&room)[33])
{
    struct step_numbers numbers = {};
    bool mine = threadIdx.x < p.n_cols / 16;

    if (mine)
        numbers.load_norm(p, threadIdx.x);
    wait_for_inputs();
    if (row >= n_rows_of(p.step, p.rows))
        return;
    if (mine)
        numbers.load(p, row, threadIdx.x);
    f32 factor = norm_factor(block_sum(numbers.squares(), room), p.n_cols, p.eps);
    uint4 words[2];
    numbers.pack(factor, words);
    if (mine)
        put_step(p, row, threadIdx.x, words);
}

static __device__ __forceinline__ void put_tiled(const struct packing_params &p, u32 row, f32 factor,
                                                 bool exists)
{
    u32 n_supers = p.packed_cols / 128;
    u32 *out = (u32 *)p.out + (u64)(row / 8) * n_supers * 512; // 2 KB per 8 rows and 128 columns

    for (u32 i = threadIdx.x; i < p.packed_cols / 2; i += PACK_MMA_THREADS) {
        u32 super = i / 64, t = i / 16 % 4, quarter = i / 4 % 4, c = i % 4;
        u32 v = exists ? word(p, row, super, t, 2 * quarter + c / 2, c % 2, factor) : 0;
        out[super * 512 + quarter * 128 + (row % 8 * 4 + t) * 4 + c] = v;
    }
}

static __device__ __forceinline__ f32 sum_of_squares(const f32 *in, u32 n)
{
    f32 sum = 0;

    if (n % 4 != 0) {
        for (u32 i = threadIdx.x; i < n; i += blockDim.x)
            sum += in[i] * in[i];
        return sum;
    }
    for (u32 i = threadIdx.x * 4; i < n; i += blockDim.x * 4) {
        float4 v = *(const float4 *)(in + i);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(PACK_MMA_THREADS)
    pack_mma(const __grid_constant__ struct packing_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x, n_rows = n_rows_of(p.step, p.rows);
    f32 factor = 1, squares = 0;

    if (is_short(p)) {
        put_short_row(p, row, room);
        return;
    }
    wait_for_inputs();
    if (row >= (p.tiled ? (n_rows + 7) / 8 * 8 : n_rows))
        return;
    if (p.norm && row < n_rows) {
        squares = sum_of_squares(p.in + (u64)row * p.n_cols, p.n_cols);
        factor = norm_factor(block_sum(squares, room), p.n_cols, p.eps);
    }
    if (p.tiled)
        put_tiled(p, row, factor, row < n_rows);
    else
        put_row(p, row, factor);
}

static __device__ __forceinline__ struct float8 times(const struct float8 &v, f32 f)
{
    return { make_float4(v.a.x * f, v.a.y * f, v.a.z * f, v.a.w * f),
             make_float4(v.b.x * f, v.b.y * f, v.b.z * f, v.b.w * f) };
}

// All lanes of a warp call it.
static __device__ __forceinline__ void put_eight(const struct packing_params &p, u32 row, u32 i,
                                                 const struct float8 &v, const struct float8 &norm)
{
    const f32 numbers[8] = { v.a.x * norm.a.x, v.a.y * norm.a.y, v.a.z * norm.a.z, v.a.w * norm.a.w,
                             v.b.x * norm.b.x, v.b.y * norm.b.y, v.b.z * norm.b.z, v.b.w * norm.b.w };
    struct int8_eight e = to_int8(numbers);

    if (i < p.n_cols / 8)
        put_int8(packed_int8_eight(p.out, row, p.n_cols), row, i, e);
}

// n_cols is a multiple of 32. Blocks share a row that has no norm.
extern "C" __global__ void __launch_bounds__(PACK_INT8_THREADS)
    pack_int8(const __grid_constant__ struct packing_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x, n = p.n_cols / 8, end = (n + 31) / 32 * 32,
        first = blockIdx.y * PACK_INT8_THREADS + threadIdx.x;
    const f32 *in = p.in + (u64)row * p.n_cols;
    struct float8 norm = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } };
    f32 factor = 1;
    bool exists = row < n_rows_of(p.step, p.rows);

    if (p.norm)
        norm = load_eight(p.norm, first, n);
    wait_for_inputs();
    if (!exists)
        return;
    struct float8 v = load_eight(in, first, n);
    if (p.norm) {
        f32 squares = first < n ? squares_of(v) : 0;
        for (u32 i = first + PACK_INT8_THREADS; i < n; i += PACK_INT8_THREADS)
            squares += squares_of(load_eight(in, i, n));
        factor = norm_factor(block_sum(squares, room), p.n_cols, p.eps);
    }
    for (u32 i = first; i < end; i += PACK_INT8_THREADS * gridDim.y) { // uniform in a warp
        if (i != first) {
            v = load_eight(in, i, n);
            norm = p.norm ? load_eight(p.norm, i, n) : norm;
        }
        put_eight(p, row, i, times(v, factor), norm);
    }
}

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define PACK_SPLIT_BLOCKS 16
#else
#define PACK_SPLIT_BLOCKS 12 // an SM has room for fewer threads
#endif
// The same in small blocks with few registers, for up to eight rows. They fit beside a block of gemm_int8, so
// they wait for their inputs on the SM where they will run and take no place from the next product's blocks.
// A row's blocks do not know the norm's factor: they write a sum of squares for each 32 columns, and
// gemm_int8 multiplies its sums by the factor. Where the command before is gemm_int8 too, it writes such rows
// itself, with the same bits (epilogue_pack.cuh). From 16 rows on the launch above is faster.
extern "C" __global__ void __launch_bounds__(PACK_SPLIT_THREADS, PACK_SPLIT_BLOCKS)
    pack_int8_split(const __grid_constant__ struct packing_params p)
{
    u32 row = blockIdx.x, n = p.n_cols / 8, i = blockIdx.y * PACK_SPLIT_THREADS + threadIdx.x;
    struct float8 norm = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } };
    bool exists = row < n_rows_of(p.step, p.rows);

    if (p.norm)
        norm = load_eight(p.norm, i, n);
    wait_for_inputs();
    if (!exists)
        return;
    struct float8 v = load_eight(p.in + (u64)row * p.n_cols, i, n);
    put_eight(p, row, i, v, norm);
    if (!p.norm)
        return;
    f32 a = squares_of_four(v.a), b = squares_of_four(v.b);
    a += __shfl_xor_sync(~0u, a, 2);
    b += __shfl_xor_sync(~0u, b, 2);
    f32 squares = a + b;
    squares += __shfl_xor_sync(~0u, squares, 1);
    if (i < n && i % 4 == 0)
        p.squares[i / 4 * 8 + row] = squares;
}

// For gemm_hopper's tiles of plain weights: tiles of PACKED_TILE_ROWS, as above, with the columns in their
// own order. n_cols is a multiple of 8.
static __device__ __forceinline__ void put_bf16(const struct packing_params &p, u32 row, u32 i,
                                                const struct float8 &v, const struct float8 &norm)
{
    uint4 *out = (uint4 *)p.out + ((u64)(row / PACKED_TILE_ROWS) * (p.packed_cols / 64) * PACKED_TILE_ROWS +
                                   row % PACKED_TILE_ROWS) *
                                      8;
    uint4 words = make_uint4(
        two_bf16(v.a.x * norm.a.x, v.a.y * norm.a.y), two_bf16(v.a.z * norm.a.z, v.a.w * norm.a.w),
        two_bf16(v.b.x * norm.b.x, v.b.y * norm.b.y), two_bf16(v.b.z * norm.b.z, v.b.w * norm.b.w));
    out[(u64)(i / 8) * PACKED_TILE_ROWS * 8 + (i % 8 ^ row % 8)] =
        i * 8 < p.n_cols ? words : make_uint4(0, 0, 0, 0);
}

// Blocks take rows in turn, with the next row's first columns in flight.
extern "C" __global__ void __launch_bounds__(PACK_BF16_THREADS)
    pack_bf16(const __grid_constant__ struct packing_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x, n = p.n_cols / 8, first = blockIdx.y * PACK_BF16_THREADS + threadIdx.x,
        n_rows = n_rows_of(p.step, p.rows);
    struct float8 norm = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, next;

    if (p.norm)
        norm = load_eight(p.norm, first, n);
    wait_for_inputs();
    if (row < n_rows)
        next = load_eight(p.in + (u64)row * p.n_cols, first, n);
    for (; row < n_rows; row += gridDim.x) {
        const f32 *in = p.in + (u64)row * p.n_cols;
        struct float8 v = next;
        f32 factor = 1;
        if (row + gridDim.x < n_rows)
            next = load_eight(in + (u64)gridDim.x * p.n_cols, first, n);
        if (p.norm) {
            f32 squares = first < n ? squares_of(v) : 0;
            for (u32 i = first + PACK_BF16_THREADS; i < n; i += PACK_BF16_THREADS)
                squares += squares_of(load_eight(in, i, n));
            factor = norm_factor(block_sum(squares, room), p.n_cols, p.eps);
        }
        if (first < p.packed_cols / 8)
            put_bf16(p, row, first, v, times(norm, factor));
        for (u32 i = first + PACK_BF16_THREADS * gridDim.y; i < p.packed_cols / 8;
             i += PACK_BF16_THREADS * gridDim.y)
            put_bf16(p, row, i, load_eight(in, i, n),
                     p.norm ? times(load_eight(p.norm, i, n), factor) : norm);
    }
}

extern "C" __global__ void __launch_bounds__(PACK_TILES_THREADS)
    pack_int8_tiles(const __grid_constant__ struct packing_params p)
{
    u32 row = blockIdx.x, column = (blockIdx.y * PACK_TILES_THREADS + threadIdx.x) * 4;

    wait_for_inputs();
    if (row < n_rows_of(p.step, p.rows) && column < p.n_cols) // for a whole warp
        put_int8_chunk(p.out, p.n_cols, row, column, *(const float4 *)(p.in + (u64)row * p.n_cols + column),
                       p.wide);
}
