// gemm_int8.cu - GEMM for 2 to 16 rows of activations (to 64 where gemm_hopper is missing) and quantised
// weights, by int8 mma. Hopper and later.
//
// Computes   out[row][n] = sum over blocks of scale_w * scale_x * (int8 dot product), then the epilogue.
//
//                 k: a split of the columns, 16 or 8 warps share it
//              +--------+--------+--------+--
//   tile of 8  | warp 0 | warp 1 | warp 2 | ...   x  8 rows of activations in registers, 8 more in smem
//   pairs      +--------+--------+--------+--        (mma.m16n8k32: weight rows g and g + 8 are one pair)
//
//   block: 16 consumer warps | 2 producer warps | 2 epilogue warps
//   grid:  (groups x splits of the columns, passes of 16 rows)
//
// Pipeline: warp specialisation over 2 to 8 stages of shared memory. One producer warp fills the first rows
// of pairs, the other the second rows. Each row's part of a plane is a copy of its own, so that eight rows
// have no bank conflicts. Long parts are bulk copies by an elected lane, short ones are copied by all lanes.
// The first stages are requested before the block's inputs are there (programmatic dependent launch).
// Arithmetic: integers are exact in a block of 32; blocks are scaled and added in fp32. Minimums of blocks
// times the sums of activations are one more product, by m16n8k8. Reduction: epilogue warps add the
// consumers' sums in order while the next stages are multiplied. Where rows are long several blocks split the
// columns (split-K), and the last to arrive adds the partial sums in order. The order of a sum depends on
// n_cols and the format alone, never on the rows of the step.
//
// Epilogue: any, or one of three fixed ones for up to eight rows. The norm's factor multiplies the sums of up
// to eight rows; for more it is in the scales. INT8_EPILOGUE_PACKED also writes the next product's packed
// rows: tiles then end two by two, which are 32 columns of that product.
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/gemm_int8_pipeline.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static __device__ __forceinline__ const u8 *rows_at(const struct gemm_params &p, const struct work &w,
                                                    u32 eight)
{
    return p.packed_int8 + ((u64)(w.pass * 2 + eight) * (p.n_cols / 32) + w.first_block) * PACKED_INT8_BYTES;
}

// Loads the part's columns of rows 8 to 15.
static __device__ __forceinline__ void load_second(const struct gemm_params &p, const struct work &w,
                                                   const struct int8_room &int8_room)
{
    u32 bytes = w.n_blocks * PACKED_INT8_BYTES, to = shared_address(int8_room.second);
    const u8 *from = rows_at(p, w, 1);

    for (u32 at = threadIdx.x * 16; at < bytes; at += CONSUMER_THREADS * 16)
        copy_16(to + at, from + at);
    wait_for_copies();
    asm volatile("bar.sync 1, 512;" ::: "memory"); // CONSUMER_THREADS
}

enum { WARP_BLOCKS = 8 }; // at most: a split has no more than CONSUMER_WARPS times this number

// A warp's blocks of columns, for the first eight rows.
template <u32 F> struct first_rows {
    struct columns_32<F> x[WARP_BLOCKS];
    u32 block, n; // of the split

    __device__ __forceinline__ void load(const struct gemm_params &p, const struct work &w)
    {
        u32 lane = threadIdx.x & 31;
        block = threadIdx.x / 32 % w.tile_warps * w.warp_blocks;
        n = block < w.n_blocks ? min(w.n_blocks - block, w.warp_blocks) : 0;
        const u8 *from = rows_at(p, w, 0);
        uint2 b[WARP_BLOCKS];
        uint4 r[WARP_BLOCKS];
#pragma unroll
        for (u32 i = 0; i < WARP_BLOCKS; i++) {
            const u8 *at = from + min(block + i, w.n_blocks - 1) * PACKED_INT8_BYTES;
            b[i] = __ldcg((const uint2 *)(at + lane * 8));
            r[i] = __ldcg((const uint4 *)(at + 256 + (lane & 3) * 16));
        }
#pragma unroll
        for (u32 i = 0; i < WARP_BLOCKS; i++)
            x[i].take(b[i], r[i]);
    }
};

// The scales of a warp's blocks, for all rows of its tile: a lane computes half a row. They are followed by
// the minimums of super blocks, negated.
template <u32 F>
static __device__ __forceinline__ void work_out_scales(const struct plane_pointers &row,
                                                       const struct first_rows<F> &first, u32 n_blocks,
                                                       f32 *scales)
{
    constexpr u32 halves = weights_64<F>::halves;
    u32 half = threadIdx.x & 1;
    float4 *to = (float4 *)(scales + ((threadIdx.x & 31) / 2 * 8 + half * 4) * halves);
    f32 scale[4][2], minimum[4][2];

    static_assert(!shares_scales(F) || int8_scales_bytes(F) == CONSUMER_WARPS * INT8_TILE_ROWS * 8 * 4 *
                                                                   (halves + has_minimum(F)),
                  "");
#pragma unroll
    for (u32 i = 0; i < 4; i += 2) {
        struct packed<F> b[2];
        weights_64<F>::load_scales(row, min(first.block + half * 4 + i, n_blocks - 2), b);
        block_scales<F>(b[0], scale[i], minimum[i]);
        block_scales<F>(b[1], scale[i + 1], minimum[i + 1]);
    }
    __syncwarp(); // the previous tile has been multiplied
    if (halves == 2) {
        to[0] = make_float4(scale[0][0], scale[0][1], scale[1][0], scale[1][1]);
        to[1] = make_float4(scale[2][0], scale[2][1], scale[3][0], scale[3][1]);
    } else {
        to[0] = make_float4(scale[0][0], scale[1][0], scale[2][0], scale[3][0]);
    }
    if (has_minimum(F))
        to[INT8_TILE_ROWS * 8 / 4] = make_float4(minimum[0][0], minimum[1][0], minimum[2][0], minimum[3][0]);
    __syncwarp();
}

// Minimums are of whole blocks (half 0), or of halves.
static constexpr __device__ bool has_minimums_of(u32 format, u32 half)
{
    return has_minimum(format) && (half == 0 || has_halves(format));
}

// A number as the sum of two with eleven bits each, as tensor cores read them; the rest is below 2^-21 of it.
struct int8_split {
    u32 high[4], low[4];

    __device__ __forceinline__ void put(u32 i, f32 v)
    {
        high[i] = __float_as_uint(v) & 0xffffe000;
        low[i] = __float_as_uint(v - __uint_as_float(high[i]));
    }
};
static __device__ __forceinline__ void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[4])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The factors of minimums, for eight rows: the sums of blocks t and t + 4 of the warp, of row g, times their
// scales. For Q2_K: of such a half.
template <u32 F>
static __device__ __forceinline__ struct int8_split
load_sums(const struct gemm_params &p, const struct work &w, const struct first_rows<F> &first, u32 eight,
          u32 half)
{
    const int which = !has_halves(F) ? 0x0101 : half ? 0x0100 : 0x0001;
    u32 lane = threadIdx.x & 31;
    struct int8_split s;

#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        u32 i = lane % 4 + 4 * k;
        uint2 v = __ldcg((const uint2 *)(rows_at(p, w, eight) +
                                         min(first.block + i, w.n_blocks - 1) * PACKED_INT8_BYTES + 256 +
                                         lane / 4 * 8));
        s.put(k, i < first.n ? __uint_as_float(v.x) * (f32)__dp2a_lo((int)v.y, which, 0) : 0);
    }
    return s;
}

// The minimums of those blocks, for weight rows g and g + 8. scales: shared by the lanes.
template <u32 F>
static __device__ __forceinline__ struct int8_split load_minimums(const struct plane_pointers (&rows)[2],
                                                                  const struct first_rows<F> &first,
                                                                  u32 n_blocks, u32 half, const f32 *scales)
{
    struct int8_split s;
    u32 words[4];

    if (shares_scales(F))
        load_rows(words, shared_address(scales + INT8_TILE_ROWS * 8) + threadIdx.x % 16 * 32 +
                             threadIdx.x % 32 / 16 * 16);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const struct plane_pointers &row = rows[k % 2];
        u32 block = min(first.block + threadIdx.x % 4 + k / 2 * 4, n_blocks - 1);
        if (shares_scales(F))
            s.put(k, __uint_as_float(words[k]));
        else if (F == QUANT_Q2_K)
            s.put(k, -half_of(((const u16 *)row.deltas)[block / 8 * 2 + 1]) *
                         (f32)(row.scales[block * 2 + half] >> 4));
        else
            s.put(k, half_of(((const u16 *)row.scales)[block * 2 + 1]));
    }
    return s;
}
static __device__ __forceinline__ void add_minimums(const struct int8_split &minimums,
                                                    const struct int8_split &x, f32 (&sums)[4])
{
    mma_tf32(sums, minimums.low, x.high);
    mma_tf32(sums, minimums.high, x.low);
    mma_tf32(sums, minimums.high, x.high);
}

// Number of blocks whose products of scales with minus_zero stay in registers; 0 for formats that need more
// registers to unpack.
static constexpr __device__ u32 kept_products(u32 format)
{
    return format == QUANT_Q8_0                           ? WARP_BLOCKS
           : format == QUANT_Q4_0 || format == QUANT_Q3_K ? WARP_BLOCKS / 2
                                                          : 0;
}

template <u32 F, u32 EIGHTS>
static __device__ __forceinline__ void multiply(const struct plane_pointers (&rows)[2], u32 quants,
                                                const struct first_rows<F> &first, const u8 *second,
                                                const f32 *scales, f32 (&sums)[EIGHTS][4])
{
    u32 lane = threadIdx.x & 31;
    f32 minus_zero = -FACING_ZERO;

    scales += lane / 4 * 8 * weights_64<F>::halves;
#pragma unroll
    for (u32 i = 0; i < WARP_BLOCKS; i += 2) {
        if (i >= first.n)
            break;
        if (EIGHTS > 1 || i + 1 > kept_products(F))
            asm volatile("" : "+f"(minus_zero));
        struct weights_64<F> weights;
        weights.load(rows, first.block + i, scales + i * weights_64<F>::halves, quants + i * 16);
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            add_products(weights, k, first.x[i + k], minus_zero, sums[0]);
            if (EIGHTS > 1) {
                const u8 *at = second + (first.block + i + k) * PACKED_INT8_BYTES;
                struct columns_32<F> x;
                x.take(*(const uint2 *)(at + lane * 8), *(const uint4 *)(at + 256 + (lane & 3) * 16));
                add_products(weights, k, x, minus_zero, sums[EIGHTS - 1]);
            }
        }
    }
}

template <u32 F, u32 EIGHTS>
static __device__ __forceinline__ void consume(const struct gemm_params &p, const struct work &w,
                                               const struct int8_room &int8_room, struct gemm_state &state)
{
    struct stage_parts<F> parts(p, w);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31, slot = 0, parity = 0, int8_place = 0, filled = 1,
        tile = warp / w.tile_warps;
    const struct row_places<F> upper(parts, tile * INT8_TILE_ROWS + lane / 4),
        lower(parts, tile * INT8_TILE_ROWS + lane / 4 + INT8_TILE_PAIRS);
    // the rows whose scales this lane computes
    const struct row_places<F> own(parts, tile * INT8_TILE_ROWS + lane / 2);
    u32 quants = parts.quants.at + (tile * INT8_TILE_ROWS + lane % 16) * parts.quants.pitch +
                 (lane / 16 + warp % w.tile_warps * w.warp_blocks) * 16; // for load_rows
    f32 *scales = int8_room.scales + warp * (int8_scales_bytes(F) / 64);
    struct first_rows<F> first;
    struct int8_split x_sums[EIGHTS][2];
    // the ones in which this warp has a tile
    u32 n_stages = w.n_stages - (w.tile((w.n_stages - 1) * w.each) + tile >= w.n_all);

    wait_for_inputs();
    first.load(p, w);
    n_stages = first.n > 0 ? n_stages : 0;
#pragma unroll
    for (u32 i = 0; i < EIGHTS * 2; i++)
        if (has_minimums_of(F, i % 2))
            x_sums[i / 2][i % 2] = load_sums(p, w, first, i / 2, i % 2);
    if (EIGHTS > 1)
        load_second(p, w, int8_room);
    for (u32 i = 0; i < w.n_stages; i++) {
        const u8 *stage = int8_room.stages + slot * p.pipeline.stage_bytes;
        const struct plane_pointers rows[2] = { upper.in(stage), lower.in(stage) };
        f32 sums[EIGHTS][4] = {};

        wait_for_stage(shared_address(&state.full[slot]), parity);
        if (i < n_stages) {
            if (shares_scales(F))
                work_out_scales(own.in(stage), first, w.n_blocks, scales);
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                if (!has_minimums_of(F, h))
                    continue;
                struct int8_split minimums = load_minimums(rows, first, w.n_blocks, h, scales);
#pragma unroll
                for (u32 e = 0; e < EIGHTS; e++)
                    add_minimums(minimums, x_sums[e][h], sums[e]);
            }
            multiply<F, EIGHTS>(rows, shared_address(stage) + quants, first, int8_room.second, scales, sums);
        }
        wait_for_stage(shared_address(&state.taken[int8_place]), filled);
        float4 *to = int8_room.sums + (int8_place * CONSUMER_WARPS + warp) * w.eights * 32 + lane;
        to[0] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
        if (EIGHTS > 1)
            to[32] = make_float4(sums[EIGHTS - 1][0], sums[EIGHTS - 1][1], sums[EIGHTS - 1][2],
                                 sums[EIGHTS - 1][3]);
        leave_stage(shared_address(&state.empty[slot]));
        leave_stage(shared_address(&state.summed[int8_place]));
        parity ^= slot + 1 == p.pipeline.depth;
        slot = slot + 1 == p.pipeline.depth ? 0 : slot + 1;
        filled ^= int8_place + 1 == EPILOGUE_WARPS;
        int8_place = int8_place + 1 == EPILOGUE_WARPS ? 0 : int8_place + 1;
    }
}

// The place of this lane's four sums: pair g of the tile, rows 2 t and 2 t + 1 of a tile of eight.
struct int8_place {
    u32 tile, eight; // tile: of the launch; eight: of this pass
};

// The norm's factors for a lane's rows 2 t and 2 t + 1 of eight, from the sums of squares of each 32 columns;
// else 1. All lanes of a warp call it. Each loads its two rows and the two beside them, of every sixteenth
// sum, in independent loads.
static __device__ __forceinline__ float2 row_factors(const struct gemm_params &p)
{
    u32 lane = threadIdx.x & 31, n = p.squares ? p.n_cols / 32 : 0;
    float4 sum = make_float4(0, 0, 0, 0);

#pragma unroll 8
    for (u32 i = lane / 4 * 2 + lane % 2; i < n; i += 16) {
        float4 v = __ldcg((const float4 *)p.squares + i * 2 + lane / 2 % 2);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    bool odd = lane & 1;
    f32 a = (odd ? sum.z : sum.x) + __shfl_xor_sync(~0u, odd ? sum.x : sum.z, 1);
    f32 b = (odd ? sum.w : sum.y) + __shfl_xor_sync(~0u, odd ? sum.y : sum.w, 1);
#pragma unroll
    for (u32 o = 4; o < 32; o *= 2) {
        a += __shfl_xor_sync(~0u, a, o);
        b += __shfl_xor_sync(~0u, b, o);
    }
    return n ? make_float2(norm_factor(a, p.n_cols, p.eps), norm_factor(b, p.n_cols, p.eps))
             : make_float2(1, 1);
}

// A lane's epilogue: a pair and up to two rows, with all operands.
template <int8_epilogue EPILOGUE> struct int8_pair_epilogue {
    struct pair pair;
    struct pair_inputs in[2];
    u32 row, n; // row: of the step

    __device__ __forceinline__ void load(const struct gemm_params &p, const struct work &w,
                                         const struct int8_place &at)
    {
        u32 lane = threadIdx.x & 31, number = at.tile * INT8_TILE_PAIRS + lane / 4,
            first = at.eight * 8 + lane % 4 * 2;
        n = number < p.n_pairs && first < w.n_rows ? min(w.n_rows - first, 2u) : 0;
        row = w.pass * INT8_PASS_ROWS + first;
        pair = pair_find(p, p.first_pair + min(number, p.n_pairs - 1), mode_of<EPILOGUE>(p));
        in[0] = in[1] = {};
        if (n > 0)
            in[0] = pair_load(p, pair, row, mode_of<EPILOGUE>(p));
        if (n > 1)
            in[1] = pair_load(p, pair, row + 1, mode_of<EPILOGUE>(p));
    }
    __device__ __forceinline__ void end(const struct gemm_params &p, float4 sum, float2 factor) const
    {
        if (n > 0)
            pair_epilogue_store(p, pair, row, in[0], make_float2(sum.x * factor.x, sum.z * factor.x),
                                mode_of<EPILOGUE>(p));
        if (n > 1)
            pair_epilogue_store(p, pair, row + 1, in[1], make_float2(sum.y * factor.y, sum.w * factor.y),
                                mode_of<EPILOGUE>(p));
    }
};

// Two neighbouring tiles of EPILOGUE_LINEAR, whose results are packed for the next product too. All lanes
// take the same path: rows that do not exist repeat the last one.
struct tiles_epilogue {
    float2 add[2][2], bias[2]; // [tile][row]: of a lane's pair
    struct pack_eight eight;
    u32 column, n; // n: of the lane's two rows

    __device__ __forceinline__ void load(const struct gemm_params &p, const struct work &w, u32 tile)
    {
        u32 lane = threadIdx.x & 31, first = lane % 4 * 2, mine = lane / 4 * 2;
        column = tile * INT8_TILE_PAIRS * 2;
        n = w.n_rows - min(w.n_rows, first);
        eight.load(p.packed_out, column);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            bias[i] = p.bias[0] ? *(const float2 *)(p.bias[0] + column + i * 16 + mine) : make_float2(0, 0);
#pragma unroll
            for (u32 k = 0; k < 2; k++)
                add[i][k] = p.add ? *(const float2 *)(p.add + min(first + k, w.n_rows - 1) * p.out_stride[0] +
                                                      column + i * 16 + mine)
                                  : make_float2(0, 0);
        }
    }
    __device__ __forceinline__ void end(const struct gemm_params &p, float4 (&sums)[2]) const
    {
        u32 lane = threadIdx.x & 31;
        f32 *out = p.out[0] + lane % 4 * 2 * p.out_stride[0] + column + lane / 4 * 2;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const float4 s = sums[i];
            sums[i] = make_float4(s.x + bias[i].x + add[i][0].x, s.y + bias[i].x + add[i][1].x,
                                  s.z + bias[i].y + add[i][0].y, s.w + bias[i].y + add[i][1].y);
            if (n > 0)
                *(float2 *)(out + i * 16) = make_float2(sums[i].x, sums[i].z);
            if (n > 1)
                *(float2 *)(out + p.out_stride[0] + i * 16) = make_float2(sums[i].y, sums[i].w);
        }
        eight.put(p.packed_out, column, sums[0], sums[1]);
    }
};

// The sums of all splits of a tile, one after the other.
static __device__ __forceinline__ float4 *partials_of(const struct gemm_params &p, const struct work &w,
                                                      const struct int8_place &at)
{
    u32 n_tiles = (p.n_pairs + INT8_TILE_PAIRS - 1) / INT8_TILE_PAIRS;
    u64 unit = ((u64)w.pass * n_tiles + at.tile) * w.eights + at.eight;
    return (float4 *)p.partial + unit * p.pipeline.n_splits * 32 + (threadIdx.x & 31);
}

static __device__ __forceinline__ float4 add_partials(const struct gemm_params &p, const float4 *parts)
{
    float4 sum = make_float4(0, 0, 0, 0);

#pragma unroll 4
    for (u32 i = 0; i < p.pipeline.n_splits; i++) {
        float4 v = __ldcg(parts + i * 32);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}

template <int8_epilogue EPILOGUE>
static __device__ __forceinline__ void epilogue_reduced(const struct gemm_params &p, const struct work &w)
{
    u32 log2 = EPILOGUE == INT8_EPILOGUE_ANY && w.n_rows > 8;
    float2 factors = row_factors(p);

    for (u32 unit = threadIdx.x / 32; unit < w.n_tiles << log2; unit += GEMM_INT8_THREADS / 32) {
        struct int8_place at = { w.tile(unit >> log2), unit & log2 };
        struct int8_pair_epilogue<EPILOGUE> int8_pair_epilogue;
        if (at.tile >= w.n_all)
            break;
        int8_pair_epilogue.load(p, w, at);
        int8_pair_epilogue.end(p, add_partials(p, partials_of(p, w, at)), factors);
    }
}
static __device__ __forceinline__ void epilogue_reduced_two(const struct gemm_params &p, const struct work &w)
{
    for (u32 i = threadIdx.x / 32 * 2; i < w.n_tiles; i += GEMM_INT8_THREADS / 32 * 2) {
        struct tiles_epilogue two;
        u32 tile = w.tile(i);
        two.load(p, w, tile);
        float4 sums[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            sums[i] = add_partials(p, partials_of(p, w, { tile + i, 0 }));
        two.end(p, sums);
    }
}

// Called by the whole block after it has stored its sums: the last block of a split finishes the tiles.
template <int8_epilogue EPILOGUE>
static __device__ __forceinline__ void reduce_splits(const struct gemm_params &p, const struct work &w)
{
    u32 *arrived = &p.arrived[w.pass * (gridDim.x / p.pipeline.n_splits) + blockIdx.x / p.pipeline.n_splits];

    __threadfence();
    __syncthreads();
    bool last = threadIdx.x == 0 && atomicAdd(arrived, 1) == p.pipeline.n_splits - 1;
    if (!__syncthreads_or(last))
        return;
    __threadfence();
    if (EPILOGUE == INT8_EPILOGUE_PACKED)
        epilogue_reduced_two(p, w);
    else
        epilogue_reduced<EPILOGUE>(p, w);
    if (threadIdx.x == 0)
        *arrived = 0;
}

// The warps' sums of one tile, in order.
static __device__ __forceinline__ float4 add_warps(const struct work &w, const float4 *from, u32 stride)
{
    float4 sum = from[0];

#pragma unroll 8
    for (u32 i = 1; i < w.tile_warps; i++) {
        float4 v = from[i * stride];
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}

// An epilogue warp: takes one stage of every EPILOGUE_WARPS.
template <int8_epilogue EPILOGUE>
static __device__ __forceinline__ void epilogue_stages(const struct gemm_params &p, const struct work &w,
                                                       const struct int8_room &int8_room,
                                                       struct gemm_state &state)
{
    bool whole = EPILOGUE != INT8_EPILOGUE_PACKED && p.pipeline.n_splits == 1; // columns
    u32 epilogue_warp = threadIdx.x / 32 - CONSUMER_WARPS - PRODUCER_WARPS, lane = threadIdx.x & 31,
        parity = 0, log2 = EPILOGUE == INT8_EPILOGUE_ANY && w.n_rows > 8;

    wait_for_inputs();
    float2 factors = make_float2(1, 1);
    if (whole)
        factors = row_factors(p);
    for (u32 i = epilogue_warp; i < w.n_stages; i += EPILOGUE_WARPS, parity ^= 1) {
        u32 tile = w.tile(i * w.each), n = w.stage_tiles(tile) << log2;
        for (u32 unit = 0; unit < n; unit++) {
            struct int8_place at = { tile + (unit >> log2), unit & log2 };
            struct int8_pair_epilogue<EPILOGUE> int8_pair_epilogue;
            if (whole)
                int8_pair_epilogue.load(p, w, at);
            if (unit == 0)
                wait_for_stage(shared_address(&state.summed[epilogue_warp]), parity);
            u32 from =
                ((epilogue_warp * CONSUMER_WARPS + (unit >> log2) * w.tile_warps) * w.eights + at.eight) *
                    32 +
                lane;
            float4 sum = add_warps(w, int8_room.sums + from, w.eights * 32);
            if (whole)
                int8_pair_epilogue.end(p, sum, factors);
            else
                __stcg(partials_of(p, w, at) + w.share * 32, sum);
        }
        leave_stage(shared_address(&state.taken[epilogue_warp]));
    }
}

// The first epilogue warp finishes all stages by twos, of a tile each.
static __device__ __forceinline__ void epilogue_stages_two(const struct gemm_params &p, const struct work &w,
                                                           const struct int8_room &int8_room,
                                                           struct gemm_state &state)
{
    u32 lane = threadIdx.x & 31, parity = 0;

    wait_for_inputs();
    if (threadIdx.x / 32 != CONSUMER_WARPS + PRODUCER_WARPS)
        return;
    for (u32 stage = 0; stage < w.n_stages; stage += 2, parity ^= 1) {
        struct tiles_epilogue two;
        float4 sums[2];
        u32 tile = w.tile(stage);
        two.load(p, w, tile);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            wait_for_stage(shared_address(&state.summed[i]), parity);
            sums[i] = add_warps(w, int8_room.sums + i * CONSUMER_WARPS * w.eights * 32 + lane, w.eights * 32);
            leave_stage(shared_address(&state.taken[i]));
        }
        two.end(p, sums);
    }
}

template <u32 F, int8_epilogue EPILOGUE>
static __device__ __forceinline__ void gemm_int8(const struct gemm_params &p)
{
    extern __shared__ __align__(128) u8 gemm_shared[];
    __shared__ struct gemm_state state;
    struct work w = work_of<EPILOGUE>(p); // the step is older than any launch
    struct int8_room int8_room = room_of<F>(p, w, gemm_shared);
    u32 warp = threadIdx.x / 32;

    let_next_begin();
    if (w.n_rows == 0) {
        if (w.pass == 0) // one pass is enough: the launch ends after the ones it depends on
            wait_for_inputs();
        return;
    }
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < p.pipeline.depth; i++) {
            barrier_begin(shared_address(&state.full[i]), PRODUCER_WARPS * (p.pipeline.words ? 33 : 1));
            barrier_begin(shared_address(&state.empty[i]), CONSUMER_THREADS);
        }
        for (u32 i = 0; i < EPILOGUE_WARPS; i++) {
            barrier_begin(shared_address(&state.summed[i]), CONSUMER_THREADS);
            barrier_begin(shared_address(&state.taken[i]), 32);
        }
        show_barriers();
    }
    __syncthreads();
    if (warp >= CONSUMER_WARPS + PRODUCER_WARPS && EPILOGUE == INT8_EPILOGUE_PACKED &&
        p.pipeline.n_splits == 1)
        epilogue_stages_two(p, w, int8_room, state);
    else if (warp >= CONSUMER_WARPS + PRODUCER_WARPS)
        epilogue_stages<EPILOGUE>(p, w, int8_room, state);
    else if (warp >= CONSUMER_WARPS)
        produce<F, EPILOGUE>(p, w, int8_room, state);
    else if (EPILOGUE == INT8_EPILOGUE_ANY && w.n_rows > 8)
        consume<F, 2>(p, w, int8_room, state);
    else
        consume<F, 1>(p, w, int8_room, state);
    if (p.pipeline.n_splits > 1)
        reduce_splits<EPILOGUE>(p, w);
}

#define GEMM_INT8_ONE(name, F, EPILOGUE)                               \
    extern "C" __global__ void __launch_bounds__(GEMM_INT8_THREADS, 1) \
        gemm_int8_##name(const __grid_constant__ struct gemm_params p) \
    {                                                                  \
        gemm_int8<F, EPILOGUE>(p);                                     \
    }
#define GEMM_INT8(NAME, name, with)                                  \
    GEMM_INT8_ONE(name, QUANT_##NAME, INT8_EPILOGUE_ANY)             \
    GEMM_INT8_ONE(packed_##name, QUANT_##NAME, INT8_EPILOGUE_PACKED) \
    GEMM_INT8_ONE(gated_##name, QUANT_##NAME, INT8_EPILOGUE_GATED)   \
    GEMM_INT8_ONE(rope_##name, QUANT_##NAME, INT8_EPILOGUE_ROPE)
QUANT_BLOCK_FORMATS(GEMM_INT8, )
#endif
