// gemm_ring.cu - products with 2 to 16 rows of activations on Hopper and later: weights stream through a ring in shared memory, int8 mma.
//
// A block of threads owns tiles of 8 pairs and a share of the columns; its part of the activations (ready.cu, int8 with a scale for each
// 32) lies in shared memory all the while. One warp fills the ring, weights first, before the block's inputs are there. Sixteen warps
// take blocks of 32 columns in turn: a pair's two rows are rows g and g + 8 of an mma of 16 x 8 x 32, whose exact integers are scaled and
// added up in fp32. Two more warps add the warps' sums and end the operation while the next stage is multiplied. Where a row is long,
// several blocks share its columns and the last to arrive adds their sums in order.
// The order of a sum depends on n_cols and the format alone: not on the rows that share a step. More rows take several passes.
#include "ops/matmul/ring.cuh"
#include "ops/matmul/row_int8.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum { RING_WARPS = RING_THREADS / 32 };

struct gemm_state { // barriers of a block
    u64 full[RING_MOST_DEPTH], empty[RING_MOST_DEPTH];
    u64 summed[2], taken[2]; // of a stage's sums
};

// What a block of threads has to do.
struct work {
    u32 first, end;                 // tiles
    u32 first_block, n_blocks;      // of 32 columns
    u32 share, pass, n_rows;        // n_rows: of this pass
    u32 tile_warps, each, n_stages; // each: tiles of a stage
};

static __device__ __forceinline__ struct work work_of(const struct pairs_params &p)
{
    u32 n_tiles = (p.n_pairs + RING_TILE_PAIRS - 1) / RING_TILE_PAIRS, n_groups = gridDim.x / p.ring.n_shares;
    u32 group = blockIdx.x / p.ring.n_shares, before = blockIdx.y * RING_PASS_ROWS, all = n_rows_of(p.step, p.rows);
    struct work w;

    w.first = n_tiles * group / n_groups;
    w.end = n_tiles * (group + 1) / n_groups;
    w.share = blockIdx.x % p.ring.n_shares;
    w.first_block = w.share * p.ring.share_blocks;
    w.n_blocks = min(p.ring.share_blocks, p.n_cols / 32 - w.first_block);
    w.pass = blockIdx.y;
    w.n_rows = all > before ? min(all - before, (u32)RING_PASS_ROWS) : 0;
    w.tile_warps = ring_tile_warps(p.ring.share_blocks);
    w.each = RING_WARPS / w.tile_warps;
    w.n_stages = (w.end - w.first + w.each - 1) / w.each;
    return w;
}

// One plane of a stage: [rows][pitch], of each row what lies in this share of the columns.
struct plane_part {
    u32 at, bytes, pitch; // at: in the stage
    bool whole;           // 16-byte words
};
template <u32 F> struct stage_parts {
    struct plane_part quants, high, scales, deltas;

    __device__ __forceinline__ stage_parts(const struct pairs_params &p, const struct work &w)
    {
        u32 share = p.ring.share_blocks * 32, cols = w.n_blocks * 32, rows = w.each * RING_TILE_ROWS;
        quants = part(0, planes_quants_bytes(F, p.n_cols), planes_quants_bytes(F, share), planes_quants_bytes(F, cols));
        high = part(quants.at + rows * quants.pitch, planes_high_bytes(F, p.n_cols), planes_high_bytes(F, share), planes_high_bytes(F, cols));
        scales = part(high.at + rows * high.pitch, planes_scales_bytes(F, p.n_cols), planes_scales_bytes(F, share), planes_scales_bytes(F, cols));
        deltas = part(scales.at + rows * scales.pitch, planes_deltas_bytes(F, p.n_cols), planes_deltas_bytes(F, share), planes_deltas_bytes(F, cols));
    }
    static __device__ __forceinline__ struct plane_part part(u32 at, u64 row, u64 share, u64 mine)
    {
        return { at, (u32)mine, ring_pitch(share), (row | share) % 16 == 0 };
    }
    __device__ __forceinline__ u32 bulk_bytes() const // of a row
    {
        return (quants.whole ? quants.bytes : 0) + (high.whole ? high.bytes : 0) + (scales.whole ? scales.bytes : 0) +
               (deltas.whole ? deltas.bytes : 0);
    }
    __device__ __forceinline__ struct plane_bytes row(const u8 *stage, u32 index) const
    {
        return { stage + quants.at + index * quants.pitch, stage + high.at + index * high.pitch, stage + scales.at + index * scales.pitch,
                 stage + deltas.at + index * deltas.pitch };
    }
};

struct row_copy { // a lane's
    u32 row, index, full; // index: in the stage
    bool exists;
};
static __device__ __forceinline__ void copy_part(const struct row_copy &c, const struct plane_part &part, u32 slot, const u8 *plane, u64 row_bytes,
                                                 u64 offset)
{
    const u8 *from = plane + c.row * row_bytes + offset;
    u32 to = slot + part.at + c.index * part.pitch;

    if (!c.exists || part.bytes == 0)
        return;
    if (part.whole)
        copy_run(to, from, part.bytes, c.full);
    else
        for (u32 i = 0; i < part.bytes; i += 4)
            copy_word(to + i, from + i);
}

// A lane a row of the stage: the first rows of a tile's pairs, then the second ones. Pairs beyond the last repeat it.
template <u32 F>
static __device__ __forceinline__ void fill(const struct pairs_params &p, const struct work &w, const struct stage_parts<F> &parts, u32 tile, u32 slot,
                                            u32 full)
{
    u32 lane = threadIdx.x & 31, n = min(w.end - tile, w.each) * RING_TILE_ROWS, first = w.first_block * 32;
    u32 at = (tile + lane / RING_TILE_ROWS) * RING_TILE_PAIRS + lane % RING_TILE_PAIRS, second = lane / RING_TILE_PAIRS % 2;
    struct pair r = pair_find(p, p.first_pair + min(at, p.n_pairs - 1));
    const struct planes &from = p.w[second ? r.matrix[1] : r.matrix[0]];
    struct row_copy c = { second ? r.row[1] : r.row[0], lane, full, lane < n };

    if (lane == 0)
        expect_bytes(full, n * parts.bulk_bytes());
    __syncwarp();
    copy_part(c, parts.quants, slot, from.quants, planes_quants_bytes(F, p.n_cols), planes_quants_bytes(F, first));
    copy_part(c, parts.high, slot, from.high, planes_high_bytes(F, p.n_cols), planes_high_bytes(F, first));
    copy_part(c, parts.scales, slot, from.scales, planes_scales_bytes(F, p.n_cols), planes_scales_bytes(F, first));
    copy_part(c, parts.deltas, slot, from.deltas, planes_deltas_bytes(F, p.n_cols), planes_deltas_bytes(F, first));
    if (p.ring.words)
        arrive_with_words(full);
}

struct room { // in dynamic shared memory
    u8 *x;        // [tile of 8 rows][blocks of the share][READY_INT8_BYTES]
    float4 *sums; // [2][RING_WARPS][2][32]
    u8 *stages;
};
static __device__ __forceinline__ struct room room_of(const struct pairs_params &p, u8 *shared)
{
    struct room r = { shared, (float4 *)(shared + 2 * p.ring.share_blocks * READY_INT8_BYTES), nullptr };
    r.stages = (u8 *)r.sums + RING_SUMS_BYTES;
    return r;
}

template <u32 F>
static __device__ __forceinline__ void produce(const struct pairs_params &p, const struct work &w, const struct room &room, struct gemm_state &state)
{
    struct stage_parts<F> parts(p, w);
    u32 slot = 0, turn = 0;

    for (u32 i = 0; i < w.n_stages; i++) {
        if (i == p.ring.depth)
            wait_for_inputs(); // nothing is read of them here
        if (turn > 0)
            wait_for_stage(shared_address(&state.empty[slot]), (turn - 1) & 1);
        fill<F>(p, w, parts, w.first + i * w.each, shared_address(room.stages) + slot * p.ring.stage_bytes, shared_address(&state.full[slot]));
        slot = slot + 1 == p.ring.depth ? 0 : slot + 1;
        turn += slot == 0;
    }
    if (w.n_stages <= p.ring.depth)
        wait_for_inputs();
}

// The share's columns of this pass's rows.
static __device__ __forceinline__ void load_rows(const struct pairs_params &p, const struct work &w, const struct room &room)
{
    u32 bytes = w.n_blocks * READY_INT8_BYTES, to = shared_address(room.x);
    const u8 *from = p.ready_int8 + ((u64)w.pass * 2 * (p.n_cols / 32) + w.first_block) * READY_INT8_BYTES;

    for (u32 i = 0; i < (w.n_rows > 8 ? 2u : 1u); i++)
        for (u32 at = threadIdx.x * 16; at < bytes; at += RING_THREADS * 16)
            copy_16(to + i * bytes + at, from + (u64)i * (p.n_cols / 32) * READY_INT8_BYTES + at);
    wait_for_copies();
    asm volatile("bar.sync 1, 512;" ::: "memory"); // RING_THREADS
}

static __device__ __forceinline__ void mma_int8(int (&d)[4], const int (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void mma_int8_half(int (&d)[4], int a0, int a1, u32 b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

// A lane's part of 32 columns of the tile's 16 weight rows: what mma takes, and what scales rows g and g + 8.
template <u32 F> struct weights_32 {
    int a[4]; // row g, row g + 8: elements 4 t ..; the same: elements 16 + 4 t ..
    f32 scale[2][2], offset[2][2]; // [row][half]

    __device__ __forceinline__ void load(const struct plane_bytes (&rows)[2], u32 block)
    {
        u32 t = threadIdx.x & 3;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            struct packed<F> b = {};
            if (F == PLANES_Q8_0) {
                const int *q = (const int *)(rows[i].quants + block * 32) + t;
                a[i] = q[0];
                a[2 + i] = q[4];
            } else {
                high_at<F>(rows[i], block, b);
                unpack_word<F>(((const u32 *)(rows[i].quants + block * 16))[t], b.high, t, &a[i], &a[2 + i]);
            }
            scales_at<F>(rows[i], block, b);
            block_scales<F>(b, scale[i], offset[i]);
        }
    }
};

// Two rows of activations beside each other, 2 t and 2 t + 1, of a tile of eight.
struct columns_32 {
    u32 b0, b1;
    f32 scale[2];
    u32 sums[2]; // 16 bits each half

    __device__ __forceinline__ void load(const u8 *block)
    {
        u32 lane = threadIdx.x & 31;
        uint2 b = *(const uint2 *)(block + lane * 8);
        uint4 r = *(const uint4 *)(block + 256 + (lane & 3) * 16);

        b0 = b.x;
        b1 = b.y;
        scale[0] = __uint_as_float(r.x);
        scale[1] = __uint_as_float(r.z);
        sums[0] = r.y;
        sums[1] = r.w;
    }
    // FACING_ZERO as an integer plus the sums of both halves, each times its factor.
    __device__ __forceinline__ int start(u32 i, int low, int high) const
    {
        return __dp2a_lo((int)sums[i], (low & 255) | (high & 255) << 8, 0x4b400000);
    }
};

static __device__ __forceinline__ f32 sum_of(int bits) // of what began at FACING_ZERO
{
    return __int_as_float(bits) - FACING_ZERO;
}

template <u32 F> static __device__ __forceinline__ void add_products(const struct weights_32<F> &w, const struct columns_32 &x, f32 (&sums)[4])
{
    constexpr int zero = -zero_of(F);

#pragma unroll
    for (u32 h = 0; h < (has_halves(F) ? 2 : 1); h++) {
        int d[4], low = has_halves(F) && h == 1 ? 0 : 1, high = has_halves(F) && h == 0 ? 0 : 1;
        d[0] = d[2] = zero ? x.start(0, zero * low, zero * high) : 0x4b400000;
        d[1] = d[3] = zero ? x.start(1, zero * low, zero * high) : 0x4b400000;
        if (has_halves(F))
            mma_int8_half(d, w.a[2 * h], w.a[2 * h + 1], h ? x.b1 : x.b0);
        else
            mma_int8(d, w.a, x.b0, x.b1);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            sums[i] = fmaf(w.scale[i / 2][h] * x.scale[i % 2], sum_of(d[i]), sums[i]);
        if (has_minimum(F))
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                sums[i] = fmaf(w.offset[i / 2][h], x.scale[i % 2] * sum_of(x.start(i % 2, low, high)), sums[i]);
    }
}

// A warp's blocks of a stage. second: there are more than eight rows.
template <u32 F>
static __device__ __forceinline__ void multiply(const struct work &w, const struct plane_bytes (&rows)[2], const u8 *x, f32 (&sums)[2][4])
{
    bool second = w.n_rows > 8;

#pragma unroll 2
    for (u32 block = threadIdx.x / 32 % w.tile_warps; block < w.n_blocks; block += w.tile_warps) {
        struct weights_32<F> weights;
        struct columns_32 columns;
        weights.load(rows, block);
        columns.load(x + block * READY_INT8_BYTES);
        add_products(weights, columns, sums[0]);
        if (second) {
            columns.load(x + (w.n_blocks + block) * READY_INT8_BYTES);
            add_products(weights, columns, sums[1]);
        }
    }
}

template <u32 F>
static __device__ __forceinline__ void consume(const struct pairs_params &p, const struct work &w, const struct room &room, struct gemm_state &state)
{
    struct stage_parts<F> parts(p, w);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31, slot = 0, parity = 0, tile = warp / w.tile_warps;
    u32 row = tile * RING_TILE_ROWS + lane / 4;

    wait_for_inputs();
    load_rows(p, w, room);
    for (u32 i = 0; i < w.n_stages; i++) {
        const u8 *stage = room.stages + slot * p.ring.stage_bytes;
        const struct plane_bytes rows[2] = { parts.row(stage, row), parts.row(stage, row + RING_TILE_PAIRS) };
        f32 sums[2][4] = {};
        u32 place = i & 1, first = w.first + i * w.each;

        wait_for_stage(shared_address(&state.full[slot]), parity);
        if (first + tile < w.end)
            multiply<F>(w, rows, room.x, sums);
        wait_for_stage(shared_address(&state.taken[place]), (i >> 1 & 1) ^ 1);
        float4 *to = room.sums + (place * RING_WARPS + warp) * 64 + lane;
        to[0] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
        if (w.n_rows > 8)
            to[32] = make_float4(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
        __syncwarp();
        if (lane == 0) {
            leave_stage(shared_address(&state.empty[slot]));
            leave_stage(shared_address(&state.summed[place]));
        }
        parity ^= slot + 1 == p.ring.depth;
        slot = slot + 1 == p.ring.depth ? 0 : slot + 1;
    }
}

// Where this lane's four sums belong: pair g of the tile, rows 2 t and 2 t + 1 of a tile of eight.
struct place {
    u32 tile, eight; // tile: of all; eight: of this pass
};

static __device__ __forceinline__ void end_tile(const struct pairs_params &p, const struct work &w, const struct place &at, float4 sum)
{
    u32 lane = threadIdx.x & 31, pair = at.tile * RING_TILE_PAIRS + lane / 4, row = at.eight * 8 + lane % 4 * 2;

    if (pair >= p.n_pairs || row >= w.n_rows)
        return;
    struct pair r = pair_find(p, p.first_pair + pair);
    pair_finish(p, r, w.pass * RING_PASS_ROWS + row, sum.x, sum.z);
    if (row + 1 < w.n_rows)
        pair_finish(p, r, w.pass * RING_PASS_ROWS + row + 1, sum.y, sum.w);
}

// Several blocks have sums of this tile. Returns whether this warp was the last, and then the sum of all.
static __device__ __forceinline__ bool meet_shares(const struct pairs_params &p, const struct work &w, const struct place &at, float4 &sum)
{
    u32 n_tiles = (p.n_pairs + RING_TILE_PAIRS - 1) / RING_TILE_PAIRS, lane = threadIdx.x & 31, n = p.ring.n_shares, arrived = 0;
    u64 unit = ((u64)w.pass * n_tiles + at.tile) * 2 + at.eight;
    float4 *parts = (float4 *)p.partial + unit * n * 32 + lane;

    __stcg(parts + w.share * 32, sum);
    __threadfence();
    __syncwarp();
    if (lane == 0)
        arrived = atomicAdd(&p.arrived[unit], 1);
    if (__shfl_sync(~0u, arrived, 0) != n - 1)
        return false;
    __threadfence();
    sum = make_float4(0, 0, 0, 0);
    for (u32 i = 0; i < n; i++) {
        float4 v = __ldcg(parts + i * 32);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    if (lane == 0)
        p.arrived[unit] = 0;
    return true;
}

// The warps' sums of one tile, in order.
static __device__ __forceinline__ float4 add_warps(const struct work &w, const float4 *from)
{
    float4 sum = from[0];

#pragma unroll 4
    for (u32 i = 1; i < w.tile_warps; i++) {
        float4 v = from[i * 64];
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    return sum;
}

static __device__ __forceinline__ void end_tiles(const struct pairs_params &p, const struct work &w, const struct room &room, struct gemm_state &state)
{
    u32 ender = threadIdx.x / 32 - RING_WARPS - 1, lane = threadIdx.x & 31, n_eights = w.n_rows > 8 ? 2 : 1, log2 = n_eights - 1;

    wait_for_inputs();
    for (u32 i = 0; i < w.n_stages; i++) {
        u32 place = i & 1, first = w.first + i * w.each, n = min(w.end - first, w.each) * n_eights;
        wait_for_stage(shared_address(&state.summed[place]), i >> 1 & 1);
        for (u32 unit = ender; unit < n; unit += RING_ENDERS) {
            u32 tile = unit >> log2, eight = unit & log2;
            struct place at = { first + tile, eight };
            float4 sum = add_warps(w, room.sums + (place * RING_WARPS + tile * w.tile_warps) * 64 + eight * 32 + lane);
            if (p.ring.n_shares == 1 || meet_shares(p, w, at, sum))
                end_tile(p, w, at, sum);
        }
        __syncwarp();
        if (lane == 0)
            leave_stage(shared_address(&state.taken[place]));
    }
}

template <u32 F> static __device__ __forceinline__ void gemm_ring(const struct pairs_params &p)
{
    extern __shared__ __align__(128) u8 gemm_shared[];
    __shared__ struct gemm_state state;
    struct work w = work_of(p); // the step is older than any launch
    struct room room = room_of(p, gemm_shared);
    u32 warp = threadIdx.x / 32;

    let_next_begin();
    if (w.n_rows == 0) {
        if (w.pass == 0) // the others need not: the launch ends after those it depends on
            wait_for_inputs();
        return;
    }
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < p.ring.depth; i++) {
            barrier_begin(shared_address(&state.full[i]), p.ring.words ? 33 : 1);
            barrier_begin(shared_address(&state.empty[i]), RING_WARPS);
        }
        for (u32 i = 0; i < 2; i++) {
            barrier_begin(shared_address(&state.summed[i]), RING_WARPS);
            barrier_begin(shared_address(&state.taken[i]), RING_ENDERS);
        }
        show_barriers();
    }
    __syncthreads();
    if (warp < RING_WARPS)
        consume<F>(p, w, room, state);
    else if (warp == RING_WARPS)
        produce<F>(p, w, room, state);
    else
        end_tiles(p, w, room, state);
}

#define GEMM_RING(name, F)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(GEMM_RING_THREADS, 1) gemm_ring_##name(const __grid_constant__ struct pairs_params p) \
    {                                                                                                                                    \
        gemm_ring<F>(p);                                                                                                                 \
    }
GEMM_RING(q4_0, PLANES_Q4_0)
GEMM_RING(q4_1, PLANES_Q4_1)
GEMM_RING(q5_0, PLANES_Q5_0)
GEMM_RING(q5_1, PLANES_Q5_1)
GEMM_RING(q8_0, PLANES_Q8_0)
GEMM_RING(q2_k, PLANES_Q2_K)
GEMM_RING(q3_k, PLANES_Q3_K)
GEMM_RING(q4_k, PLANES_Q4_K)
GEMM_RING(q5_k, PLANES_Q5_K)
GEMM_RING(q6_k, PLANES_Q6_K)
GEMM_RING(iq4_nl, PLANES_IQ4_NL)
GEMM_RING(iq4_xs, PLANES_IQ4_XS)
GEMM_RING(mxfp4, PLANES_MXFP4)
#endif
