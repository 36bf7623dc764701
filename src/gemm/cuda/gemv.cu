// gemv.cu - GEMV, one row of activations at a time: weights straight from memory into registers.
//
// Computes   out[n] = sum over k of x[k] * w[n][k], then the epilogue (epilogue.cuh). Bound by reading the
// weights.
//
//             k: blocks of 32 columns, one a lane in turn
//           +----+----+----+-- --+----+
//   pair 0  | l0 | l1 | l2 | ... | l31|     8, 16 or 32 lanes read both rows of a pair: 512 bytes a load
//   pair 1  +----+----+----+-- --+----+     persistent: one block an SM, 16 or 32 warps take pairs in turn
//
// Every block packs the whole row itself: x * norm in shared memory, as int8 with a scale for each 32
// (gemv_int8), or as fp32 (gemv_plain for plain numbers, gemv_exact for decoded ones). The norm's factor
// multiplies the sums, so one pass over x is enough. Before a warp waits for its inputs it prefetches its
// first weights into the L2 cache; prefetching later ones, or fewer warps with more registers, is slower
// (measured: bench/results/2026-11-22-h200-kernel-choices.md). The order of a sum depends on n_cols, the
// format and `lanes` alone.
#include "gemm/cuda/gemm_adapters.cuh"
#include "gemm/cuda/row_int8.cuh"
#include "gemm/cuda/row_plain.cuh"

enum { GEMV_MOST_THREADS = 1024 }; // 512 or 1024, by the number of pairs

// Packs the row, times norm, into shared memory. Returns the norm's factor, or 1.
static __device__ __forceinline__ f32 quantise_row(const struct gemm_params &p, u32 row, f32 *room,
                                                   const struct row_int8 &x)
{
    const float4 *in = (const float4 *)(p.in + (u64)row * p.n_cols), *norm = (const float4 *)p.norm;
    const float4 one = make_float4(1, 1, 1, 1);
    u32 n = p.n_cols / 8, end = (n + 31) / 32 * 32;
    f32 squares = 0;

#pragma unroll 2
    for (u32 i = threadIdx.x; i < end; i += blockDim.x) {
        u32 at = min(i, n - 1) * 2;
        float4 a = in[at], b = in[at + 1], s = norm ? norm[at] : one, t = norm ? norm[at + 1] : one;
        const f32 v[8] = { a.x * s.x, a.y * s.y, a.z * s.z, a.w * s.w,
                           b.x * t.x, b.y * t.y, b.z * t.z, b.w * t.w };
        if (i < n)
            squares +=
                a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w + b.x * b.x + b.y * b.y + b.z * b.z + b.w * b.w;
        quantise_eight(x, i, v, i < n);
    }
    if (!norm) {
        __syncthreads();
        return 1;
    }
    return norm_factor(block_sum(squares, room), p.n_cols, p.eps);
}

// Reads the row, times norm, and hands each four numbers to `put`; loads are issued four at a time. Returns
// the norm's factor, or 1.
template <typename Put>
static __device__ __forceinline__ f32 read_row(const struct gemm_params &p, u32 row, f32 *room, Put put)
{
    const float4 *in = (const float4 *)(p.in + (u64)row * p.n_cols), *norm = (const float4 *)p.norm;
    const float4 zero = make_float4(0, 0, 0, 0), one = make_float4(1, 1, 1, 1);
    u32 n = p.n_cols / 4, end = (n + 31) / 32 * 32;
    f32 squares = 0;

    for (u32 first = threadIdx.x; first < end; first += 4 * blockDim.x) {
        float4 v[4], s[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 i = first + k * blockDim.x;
            v[k] = i < n ? in[i] : zero;
            s[k] = norm && i < n ? norm[i] : one;
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 i = first + k * blockDim.x;
            squares += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
            if (i < end) // uniform in a warp
                put(i, make_float4(v[k].x * s[k].x, v[k].y * s[k].y, v[k].z * s[k].z, v[k].w * s[k].w),
                    i < n);
        }
    }
    if (!norm) {
        __syncthreads();
        return 1;
    }
    return norm_factor(block_sum(squares, room), p.n_cols, p.eps);
}

static __device__ __forceinline__ void ask_for(const u8 *at, u64 bytes, u32 lane)
{
    for (u64 i = lane * 128; i < bytes; i += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at + i));
}
// Prefetches the weights of pair `at` into the L2 cache.
static __device__ __forceinline__ void ask_for_pair(const struct gemm_params &p, u32 at, u32 end, u32 lane)
{
    if (at >= end)
        return;
    struct pair r = pair_find(p, at, p.mode);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        const struct weight_planes &w = p.w[r.matrix[i]];
        u64 quants = layout_quants_bytes(w.format, w.n_cols),
            scales = layout_scales_bytes(w.format, w.n_cols);
        ask_for(w.quants + r.row[i] * quants, min(quants, (u64)4096), lane);
        ask_for(w.scales + r.row[i] * scales, min(scales, (u64)4096), lane);
    }
}
// Requests what does not depend on the block's inputs: its warps' first pairs, and the norm.
static __device__ __forceinline__ void ask_early(const struct gemm_params &p, const struct tasks &t)
{
    u32 per_warp = 32 / p.lanes, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;

    for (u32 i = 0; i < per_warp; i++)
        ask_for_pair(p, t.first + warp * per_warp + i, t.end, lane);
    if (p.norm)
        for (u32 i = threadIdx.x * 128; i < p.n_cols * 4; i += blockDim.x * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const u8 *)p.norm + i));
}

// Blocks are loaded in groups, as many as registers allow, before any is multiplied. A row of 576 to 4096
// columns is one group.
template <u32 F>
static __device__ __forceinline__ float2 dot_pair_int8(const struct gemm_params &p, const struct pair &r,
                                                       const struct row_int8 &x, struct lane_span s)
{
    constexpr u32 group = F == QUANT_Q8_0 || layout_has_super_blocks(F)   ? 2
                          : layout_has_high_bit(F) || layout_has_table(F) ? 3
                                                                          : 4;
    const struct weight_planes &a = p.w[r.matrix[0]], &b = p.w[r.matrix[1]];
    u32 n_blocks = p.n_cols / 32;
    float2 sum = make_float2(0, 0);

    for (u32 base = 0; base < n_blocks; base += group * s.lanes) {
        struct packed<F> first[group], second[group];
#pragma unroll
        for (u32 i = 0; i < group; i++) {
            u32 block = min(base + i * s.lanes + s.lane, n_blocks - 1);
            if (base + i * s.lanes >= n_blocks)
                break;
            first[i] = load_block<F>(a, r.row[0], block);
            second[i] = load_block<F>(b, r.row[1], block);
        }
#pragma unroll
        for (u32 i = 0; i < group; i++) {
            u32 block = base + i * s.lanes + s.lane;
            if (block >= n_blocks)
                break;
            struct facing<F> f = face<F>(x, block);
            sum.x = dot_block<F>(first[i], f, sum.x);
            sum.y = dot_block<F>(second[i], f, sum.y);
        }
    }
    return sum;
}

// Adds the sums over the lanes of a pair and runs the epilogue.
static __device__ __forceinline__ void finish(const struct gemm_params &p, const struct pair &r, u32 row,
                                              float2 sum, const struct pair_inputs &in, struct lane_span s)
{
    u32 half = s.lanes / 2, upper = threadIdx.x & half; // the upper half adds y, the lower x
    f32 mine = (upper ? sum.y : sum.x) + __shfl_xor_sync(~0u, upper ? sum.x : sum.y, half);

    for (u32 o = half / 2; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    f32 other = __shfl_xor_sync(~0u, mine, half);
    if (s.lane == 0)
        pair_epilogue_store(p, r, row, in, make_float2(mine, other), p.mode);
}

// h of all ranks, where there are adapters: called by the whole block, which has one row then.
static __device__ __forceinline__ void find_adapters(const struct adapted_params &p, f32 *h)
{
    if (!p.adapters.shared_bytes)
        return;
    if (threadIdx.x < ADAPTER_THREADS) {
        struct adapter_unit unit = adapter_unit_at(p, min(blockIdx.x, adapter_units(p) - 1));
        struct adapter_fours<1> fours;
        fours.load(p, unit, unit.first, threadIdx.x);
        adapter_publish(p, threadIdx.x, unit, fours);
        adapter_collect(p, threadIdx.x, h);
        if (threadIdx.x < 32)
            adapter_leave(p, threadIdx.x);
    }
    __syncthreads();
}

// Walks the block's pairs; DOT gives a pair's two sums. h: room for what adapters have, in shared memory.
template <typename Dot>
static __device__ __forceinline__ void tile_scheduler(const struct adapted_params &adapted, u32 row,
                                                      f32 factor, f32 *h, Dot dot)
{
    const struct gemm_params &p = adapted.product;

    find_adapters(adapted, h);
    struct tasks t = tasks_of(p);
    u32 per_warp = 32 / p.lanes, lane = threadIdx.x & 31;
    struct lane_span s = { lane % p.lanes, p.lanes };

    for (u32 at = t.first + (threadIdx.x >> 5) * per_warp; at < t.end; at += blockDim.x / 32 * per_warp) {
        u32 mine = at + lane / p.lanes;
        bool writes = mine < t.end && s.lane == 0;
        struct pair r = pair_find(p, min(mine, t.end - 1), p.mode);
        float2 sum = dot(r, s);
        struct pair_inputs in = {};
        if (writes)
            in = pair_load(p, r, row, p.mode);
        if (writes && adapted.adapters.shared_bytes) {
            struct adapter_rows<1> rows;
            rows.load(adapted, r, 0);
            float2 added = adapter_sums(adapted, r, h, rows);
            sum = make_float2(sum.x + added.x, sum.y + added.y);
        }
        finish(p, r, row, make_float2(sum.x * factor, sum.y * factor), in, { writes ? 0 : ~0u, s.lanes });
    }
}

template <u32 F> static __device__ __forceinline__ void gemv_int8(const struct adapted_params &adapted)
{
    const struct gemm_params &p = adapted.product;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ f32 room[33];
    struct row_int8 x = row_int8_at(shared, p.n_cols / 32);
    u32 row = blockIdx.y;

    ask_early(p, tasks_of(p));
    wait_for_inputs();
    if (row >= n_rows_of(p.step, p.rows))
        return;
    f32 factor = quantise_row(p, row, room, x);
    tile_scheduler(adapted, row, factor, (f32 *)(x.scale + p.n_cols / 32),
                   [&](const struct pair &r, struct lane_span s) { return dot_pair_int8<F>(p, r, x, s); });
}

#define GEMV_INT8(NAME, name, with)                                       \
    extern "C" __global__ void __launch_bounds__(GEMV_MOST_THREADS)       \
        gemv_int8_##name(const __grid_constant__ struct adapted_params p) \
    {                                                                     \
        gemv_int8<QUANT_##NAME>(p);                                       \
    }
QUANT_BLOCK_FORMATS(GEMV_INT8, )

// fp32 activations: 36 floats for each 32, so that lanes on neighbouring blocks have no bank conflicts.
static __device__ __forceinline__ u32 padded(u32 column)
{
    return column / 32 * 36 + column % 32;
}

static __device__ __forceinline__ u32 padded_row(u32 n_cols)
{
    return (n_cols + 31) / 32 * 36;
}

// Eight 16-bit numbers of a row.
static __device__ __forceinline__ void widen(const struct weight_planes &w, uint4 v, f32 (&out)[8])
{
    const u32 words[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (w.format == QUANT_F16) {
            float2 f = __half22float2(*(const __half2 *)&words[i]);
            out[2 * i] = f.x;
            out[2 * i + 1] = f.y;
        } else {
            out[2 * i] = __uint_as_float(words[i] << 16);
            out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
        }
    }
}

static __device__ __forceinline__ float2 dot_pair_16(const struct gemm_params &p, const struct pair &r,
                                                     const f32 *x, struct lane_span s)
{
    const struct weight_planes &a = p.w[r.matrix[0]], &b = p.w[r.matrix[1]];
    const uint4 *first = (const uint4 *)a.quants + (u64)r.row[0] * (p.n_cols / 8);
    const uint4 *second = (const uint4 *)b.quants + (u64)r.row[1] * (p.n_cols / 8);
    float2 sum = make_float2(0, 0);

#pragma unroll 4
    for (u32 i = s.lane; i < p.n_cols / 8; i += s.lanes) {
        uint4 v = load_once(first + i), w = load_once(second + i);
        const f32 *at = x + padded(i * 8);
        f32 f[8], g[8];
        widen(a, v, f);
        widen(b, w, g);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            sum.x = fmaf(f[k], at[k], sum.x);
            sum.y = fmaf(g[k], at[k], sum.y);
        }
    }
    return sum;
}

static __device__ __forceinline__ float2 dot_pair_plain(const struct gemm_params &p, const struct pair &r,
                                                        const f32 *x, struct lane_span s)
{
    const struct weight_planes &a = p.w[r.matrix[0]], &b = p.w[r.matrix[1]];
    float2 sum = make_float2(0, 0);

    if (a.format != QUANT_F32 && p.n_cols % 8 == 0)
        return dot_pair_16(p, r, x, s);
    for (u32 i = s.lane; i < p.n_cols; i += s.lanes) {
        sum.x = fmaf(plain_number(a, (u64)r.row[0] * p.n_cols + i), x[padded(i)], sum.x);
        sum.y = fmaf(plain_number(b, (u64)r.row[1] * p.n_cols + i), x[padded(i)], sum.y);
    }
    return sum;
}

static __device__ __forceinline__ f32 fill_row(const struct gemm_params &p, u32 row, f32 *x, f32 *room)
{
    f32 squares = 0;

    if (p.n_cols % 4 == 0)
        return read_row(p, row, room, [&](u32 i, float4 v, bool exists) {
            if (exists)
                *(float4 *)(x + padded(4 * i)) = v;
        });
    for (u32 i = threadIdx.x; i < p.n_cols; i += blockDim.x) {
        f32 v = p.in[(u64)row * p.n_cols + i];
        squares += v * v;
        x[padded(i)] = p.norm ? v * p.norm[i] : v;
    }
    squares = block_sum(squares, room);
    return p.norm ? norm_factor(squares, p.n_cols, p.eps) : 1;
}

extern "C" __global__ void __launch_bounds__(GEMV_MOST_THREADS)
    gemv_plain(const __grid_constant__ struct adapted_params adapted)
{
    const struct gemm_params &p = adapted.product;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ f32 room[33];
    struct tasks t = tasks_of(p);
    f32 *x = (f32 *)shared;
    u32 row = blockIdx.y;

    ask_early(p, t);
    wait_for_inputs();
    if (row >= n_rows_of(p.step, p.rows))
        return;
    f32 factor = fill_row(p, row, x, room);
    tile_scheduler(adapted, row, factor, x + padded_row(p.n_cols),
                   [&](const struct pair &r, struct lane_span s) { return dot_pair_plain(p, r, x, s); });
}

extern "C" __global__ void __launch_bounds__(GEMV_MOST_THREADS)
    gemv_exact(const __grid_constant__ struct adapted_params adapted)
{
    const struct gemm_params &p = adapted.product;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ f32 room[33];
    f32 *x = (f32 *)shared;
    u32 row = blockIdx.y;

    wait_for_inputs();
    if (row >= n_rows_of(p.step, p.rows))
        return;
    f32 factor = fill_row(p, row, x, room);
    tile_scheduler(adapted, row, factor, x + padded_row(p.n_cols),
                   [&](const struct pair &r, struct lane_span s) {
                       f32 first = dot_row_quantised<36>(p.w[r.matrix[0]], r.row[0], x, s);
                       return make_float2(first, dot_row_quantised<36>(p.w[r.matrix[1]], r.row[1], x, s));
                   });
}
