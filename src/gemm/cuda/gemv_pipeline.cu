// gemv_pipeline.cu - GEMV on Hopper and later: one row of activations, weights through a pipeline of stages
// in shared memory.
//
// Computes   out[n] = sum over k of x[k] * w[n][k], then the epilogue. Bound by reading the weights.
//
//   stage:  pairs of weight rows, plane by plane        block: 16 consumer warps | 1 producer warp
//           +--------------------------------+          `lanes` lanes share a pair
//           | quants | high | scales | deltas |         grid: one block an SM, each with a run of pairs
//           +--------------------------------+
//
// Pipeline: the producer warp fills up to 8 stages by bulk copies, the first before the block's inputs are
// there, so that memory works while the operation before this one ends; later ones queue behind the row's
// loads. Consumers arrive at the stage's empty barrier.
// The row: x * norm as int8 with a scale for each 32, or as fp32 for 16-bit weights; the norm's factor
// multiplies the sums. Sums are added in shared memory, and one thread runs a pair's epilogue. The order of a
// sum depends on n_cols, the format and `lanes` alone. Kernels: gemv_pipeline (registers for two blocks an
// SM: the next launch fills its stages beside this one), _alone (for one), _wide (lanes with any number of
// blocks), _long (16-bit rows that do not fit beside a stage: a stage is a part of a pair, the row lies in
// registers). Where adapters add to the product (adapted_...), three more warps find what they add meanwhile.
#include "gemm/cuda/gemm_adapters.cuh"
#include "gemm/cuda/gemv_pipeline.h"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // older devices have no bulk copies and use gemv.cu

enum { CONSUMER_WARPS = CONSUMER_THREADS / 32 };

static __device__ __forceinline__ void sync_consumers()
{
    asm volatile("bar.sync 1, 512;" ::: "memory"); // CONSUMER_THREADS
}

static __device__ __forceinline__ void sync_with_adapters()
{
    asm volatile("bar.sync 2, 608;" ::: "memory"); // CONSUMER_THREADS + ADAPTER_THREADS
}

static __device__ __forceinline__ u32 pairs_of_a_stage(const struct gemm_params &p)
{
    return p.pipeline.rounds * CONSUMER_THREADS >> p.pipeline.lanes_log2;
}

// Offsets of the planes in a stage: plane by plane, row by row.
template <u32 F> struct stage_places {
    u32 quants, high, scales, deltas;

    __device__ __forceinline__ stage_places(const struct gemm_params &p)
    {
        u32 n_rows = 2 * pairs_of_a_stage(p);
        quants = 0;
        high = quants + stage_part_bytes(n_rows, layout_quants_bytes(F, p.n_cols));
        scales = high + stage_part_bytes(n_rows, layout_high_bytes(F, p.n_cols));
        deltas = scales + stage_part_bytes(n_rows, layout_scales_bytes(F, p.n_cols));
    }
    __device__ __forceinline__ struct plane_pointers row(u32 n_cols, u32 index, const u8 *stage) const
    {
        struct plane_pointers r;
        r.quants = stage + quants + index * (u32)layout_quants_bytes(F, n_cols);
        r.high = stage + high + index * (u32)layout_high_bytes(F, n_cols);
        r.scales = stage + scales + index * (u32)layout_scales_bytes(F, n_cols);
        r.deltas = stage + deltas + index * (u32)layout_deltas_bytes(F, n_cols);
        return r;
    }
};

struct copy {               // of a run of rows; a lane's part
    u32 row, index, n_rows; // row: of the matrix; index: in the stage; n_rows: of the run that begins here,
                            // or 0
    u32 full;
    bool exists;
};

// Copies whole words with the run's first row; other rows four bytes at a time, one row a lane.
static __device__ __forceinline__ void copy_part(const struct copy &c, u32 to, const u8 *plane, u32 bytes)
{
    const u8 *from = plane + (u64)c.row * bytes;

    to += c.index * bytes;
    if (bytes % 16 != 0) {
#pragma unroll 1
        for (u32 i = 0; i < bytes && c.exists; i += 4)
            copy_word(to + i, from + i);
    } else if (bytes > 0 && c.n_rows > 0) {
        copy_run(to, from, bytes * c.n_rows, c.full);
    }
}

struct pipeline_state {         // of a block
    u64 full[PIPELINE_STAGES];  // barriers: the stage is full
    u64 empty[PIPELINE_STAGES]; // all warps have read it
    f32 squares[CONSUMER_WARPS];
    f32 factor; // the norm's
};

static __device__ __forceinline__ u32 bytes_in_words(u64 row_bytes)
{
    return row_bytes % 16 == 0 ? (u32)row_bytes : 0;
}

// Called by the whole warp: requests the pairs [first, end) of a stage, as many as fit. Each lane handles a
// row; rows that are neighbours in their matrix too are one copy.
template <u32 F>
static __device__ __forceinline__ void produce_gemv_stage(const struct gemm_params &p, u32 first, u32 end,
                                                          u32 slot, u32 full)
{
    u32 lane = threadIdx.x & 31, each = pairs_of_a_stage(p), n = min(end - first, each);
    u32 index = p.pipeline.apart ? lane & (each - 1) : lane / 2,
        second = p.pipeline.apart ? lane >= each : lane & 1;
    bool exists = lane < 2 * each && index < n;
    struct pair r = pair_find(p, first + min(index, n - 1), p.mode);
    u32 matrix = second ? r.matrix[1] : r.matrix[0], row = second ? r.row[1] : r.row[0];
    // there are fewer than 2^30 rows
    u32 name = exists ? row + (matrix << 30) : ~0u, before = __shfl_up_sync(~0u, name, 1);
    u32 starts = __ballot_sync(~0u, !exists || lane == 0 || name != before + 1);
    u32 next = lane == 31 ? 0 : starts >> (lane + 1);
    struct copy c = { row, lane, 0, full, exists };
    if (exists && (starts >> lane & 1))
        c.n_rows = next ? __ffs(next) : 32 - lane;

    u32 bytes =
        bytes_in_words(layout_quants_bytes(F, p.n_cols)) + bytes_in_words(layout_high_bytes(F, p.n_cols)) +
        bytes_in_words(layout_scales_bytes(F, p.n_cols)) + bytes_in_words(layout_deltas_bytes(F, p.n_cols));
    if (lane == 0)
        expect_bytes(full, 2 * n * bytes);
    __syncwarp();
    struct stage_places<F> at(p);
    const struct weight_planes &w = p.w[matrix];
    copy_part(c, slot + at.quants, w.quants, (u32)layout_quants_bytes(F, p.n_cols));
    copy_part(c, slot + at.high, w.high, (u32)layout_high_bytes(F, p.n_cols));
    copy_part(c, slot + at.scales, w.scales, (u32)layout_scales_bytes(F, p.n_cols));
    copy_part(c, slot + at.deltas, w.deltas, (u32)layout_deltas_bytes(F, p.n_cols));
    if (p.pipeline.words)
        arrive_with_words(full);
}

// Rows longer than a stage: part `at % LONG_PARTS` of both rows of pair at / LONG_PARTS.
template <u32 F>
static __device__ __forceinline__ void produce_part(const struct gemm_params &p, u32 at, u32 slot, u32 full)
{
    struct pair r = pair_find(p, at / LONG_PARTS, p.mode);
    u32 lane = threadIdx.x & 31, n = p.n_cols / 8, each = long_part_eights(p.n_cols),
        first = at % LONG_PARTS * each;
    u32 bytes = min(each, n - first) * 16;
    const struct weight_planes &w = p.w[lane ? r.matrix[1] : r.matrix[0]];

    if (lane == 0)
        expect_bytes(full, 2 * bytes);
    __syncwarp();
    if (lane < 2)
        copy_run(slot + lane * each * 16, w.quants + ((u64)(lane ? r.row[1] : r.row[0]) * n + first) * 16,
                 bytes, full);
}
template <u32 F, u32 PARTS>
static __device__ __forceinline__ void produce_stage(const struct gemm_params &p, u32 first, u32 end,
                                                     u32 slot, u32 full)
{
    if (PARTS > 1)
        produce_part<F>(p, first, slot, full);
    else
        produce_gemv_stage<F>(p, first, end, slot, full);
}

static __device__ __forceinline__ struct float8 times(const struct float8 &v, const struct float8 &s)
{
    return { make_float4(v.a.x * s.a.x, v.a.y * s.a.y, v.a.z * s.a.z, v.a.w * s.a.w),
             make_float4(v.b.x * s.b.x, v.b.y * s.b.y, v.b.z * s.b.z, v.b.w * s.b.w) };
}

// int8 activations.
struct quantised_row {
    struct row_int8 x;

    __device__ __forceinline__ quantised_row(u8 *shared, u32 n_cols)
    {
        x = row_int8_at(shared, n_cols / 32);
    }
    __device__ __forceinline__ void put(u32 i, const struct float8 &v, bool exists)
    {
        const f32 numbers[8] = { v.a.x, v.a.y, v.a.z, v.a.w, v.b.x, v.b.y, v.b.z, v.b.w };
        quantise_eight(x, i, numbers, exists);
    }
};

// Quantised weights. A lane has up to two blocks of a row, or a unit, and keeps their activations in
// registers.
template <u32 F> struct form_int8 : quantised_row {
    static constexpr bool in_rounds = gemv_takes_two_rounds(F);
    static constexpr u32 unit = layout_unit(F), most = 2 / unit;
    struct facing<F> facing[most][unit];
    u32 units[most];
    bool has[most]; // whether lanes of this warp have that many

    __device__ __forceinline__ form_int8(u8 *shared, u32 n_cols) : quantised_row(shared, n_cols)
    {
    }
    __device__ __forceinline__ void begin(u32 part, u32 lanes, u32 n_cols)
    {
        u32 n_units = n_cols / (32 * unit);
#pragma unroll
        for (u32 i = 0; i < most; i++) {
            u32 at = part + i * lanes;
            has[i] = i == 0 || (part & ~31u) + i * lanes < n_units;
            units[i] = min(at, n_units - 1);
#pragma unroll
            for (u32 k = 0; k < unit; k++) {
                facing[i][k] = face<F>(x, units[i] * unit + k);
                if (at >= n_units)
                    facing[i][k].scale = facing[i][k].sums[0] = facing[i][k].sums[1] = 0;
            }
        }
    }
    template <u32 N>
    __device__ __forceinline__ void dot(const struct plane_pointers (&rows)[N], u32 part, u32 lanes,
                                        u32 n_cols, f32 (&sums)[N])
    {
#pragma unroll
        for (u32 i = 0; i < most; i++) {
            if (i > 0 && !has[i])
                break;
#pragma unroll
            for (u32 r = 0; r < N; r++)
                sums[r] = dot_unit<F>(unit_at<F>(rows[r], units[i]), facing[i], sums[r]);
        }
    }
};

// The same for any number of blocks a lane: activations stay in shared memory, and a pair's rows share them.
template <u32 F> struct form_wide : quantised_row {
    static constexpr bool in_rounds = false;

    __device__ __forceinline__ form_wide(u8 *shared, u32 n_cols) : quantised_row(shared, n_cols)
    {
    }
    __device__ __forceinline__ void begin(u32 part, u32 lanes, u32 n_cols)
    {
        (void)part, (void)lanes, (void)n_cols;
    }
    template <u32 N>
    __device__ __forceinline__ void dot(const struct plane_pointers (&rows)[N], u32 part, u32 lanes,
                                        u32 n_cols, f32 (&sums)[N])
    {
#pragma unroll 1
        for (u32 at = part; at < n_cols / 32; at += lanes) {
            struct packed<F> w[N];
#pragma unroll
            for (u32 r = 0; r < N; r++)
                w[r] = block_at<F, false>(rows[r], at);
            struct facing<F> facing = face<F>(x, at);
#pragma unroll
            for (u32 r = 0; r < N; r++)
                sums[r] = dot_block<F>(w[r], facing, sums[r]);
        }
    }
};

static __device__ __forceinline__ void two_numbers(u32 f16, u32 word, f32 *low, f32 *high)
{
    float2 f = __half22float2(*(const __half2 *)&word);
    *low = f16 ? f.x : __uint_as_float(word << 16);
    *high = f16 ? f.y : __uint_as_float(word & 0xffff0000);
}

template <u32 F>
static __device__ __forceinline__ void dot_eight(const uint4 &w, const struct float8 &x, f32 &sum)
{
    const u32 words[4] = { w.x, w.y, w.z, w.w };
    const f32 at[8] = { x.a.x, x.a.y, x.a.z, x.a.w, x.b.x, x.b.y, x.b.z, x.b.w };
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        f32 l, h;
        two_numbers(F == QUANT_F16, words[k], &l, &h);
        sum = fmaf(h, at[2 * k + 1], fmaf(l, at[2 * k], sum));
    }
}

// fp32 activations, 16-bit weights.
template <u32 F> struct form_16 {
    static constexpr bool in_rounds = false;
    float4 *low, *high; // the first and the second four of each eight columns

    __device__ __forceinline__ form_16(u8 *shared, u32 n_cols)
    {
        low = (float4 *)shared;
        high = low + n_cols / 8;
    }
    __device__ __forceinline__ void put(u32 i, const struct float8 &v, bool exists)
    {
        if (!exists)
            return;
        low[i] = v.a;
        high[i] = v.b;
    }
    __device__ __forceinline__ void begin(u32 part, u32 lanes, u32 n_cols)
    {
        (void)part, (void)lanes, (void)n_cols;
    }
    __device__ __forceinline__ void dot(const struct plane_pointers (&rows)[2], u32 first, u32 lanes,
                                        u32 n_cols, f32 (&sums)[2])
    {
#pragma unroll 2
        for (u32 i = first; i < n_cols / 8; i += lanes) {
            const struct float8 x = { low[i], high[i] };
            dot_eight<F>(((const uint4 *)rows[0].quants)[i], x, sums[0]);
            dot_eight<F>(((const uint4 *)rows[1].quants)[i], x, sums[1]);
        }
    }
};

// Adds both sums over a warp; lane 0 gets the first, lane 16 the second.
static __device__ __forceinline__ f32 warp_sums(f32 first, f32 second)
{
    bool upper = threadIdx.x & 16;
    f32 mine = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, 16);
#pragma unroll
    for (u32 o = 8; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    return mine;
}

// Packs the row, times norm, into shared memory, and the squares of each warp's part. norm: this thread's
// first eight, loaded before the wait. A thread has AT_ONCE eights in flight.
template <u32 AT_ONCE, typename Form>
static __device__ __forceinline__ void pack_row(const struct gemm_params &p, Form &form,
                                                const struct float8 &norm, f32 *squares)
{
    u32 n = p.n_cols / 8, end = (n + 31) / 32 * 32; // `end` is a multiple of 32, so that a warp's loop is
                                                    // uniform
    f32 sum = 0;

    for (u32 first = threadIdx.x; first < end; first += AT_ONCE * CONSUMER_THREADS) {
        struct float8 v[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++)
            if (first + k * CONSUMER_THREADS < end)
                v[k] = load_eight(p.in, first + k * CONSUMER_THREADS, n);
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            u32 i = first + k * CONSUMER_THREADS;
            if (i >= end)
                break;
            sum += i < n ? squares_of(v[k]) : 0;
            if (p.norm)
                v[k] = times(v[k], i < CONSUMER_THREADS ? norm : load_eight(p.norm, i, n));
            form.put(i, v[k], i < n);
        }
    }
    if (p.norm && threadIdx.x < end)
        sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        squares[threadIdx.x / 32] = sum;
    sync_consumers();
}

struct pipeline_places { // in dynamic shared memory: the row, the sums [pair][row][warps of a pair], what
                         // adapters add [pair] and their h [rank], the stages
    f32 *sums;
    float2 *added;
    f32 *h;
    u32 stages;
};
static __device__ __forceinline__ struct pipeline_places places_of(const struct gemm_params &p, u32 row_bytes,
                                                                   u32 sums_bytes, u32 adapters_bytes)
{
    extern __shared__ __align__(128) u8 pipeline_shared[];
    u32 added = (row_bytes + sums_bytes + 7) / 8 * 8;
    struct pipeline_places at;

    at.sums = (f32 *)(pipeline_shared + row_bytes);
    at.added = (float2 *)(pipeline_shared + added);
    at.h = (f32 *)(at.added + p.pipeline.most_pairs);
    at.stages = (row_bytes + sums_bytes + adapters_bytes + 127) / 128 * 128;
    return at;
}

// The producer warp. Stages before `prefetched` are requested before the block's inputs are there, the others
// after the row's loads; for a small matrix even before the block's first barrier.
template <u32 F, bool ALONE, u32 PARTS>
static __device__ __forceinline__ void produce(const struct gemm_params &p, const struct pipeline_places &at,
                                               struct pipeline_state &state, const struct tasks &t)
{
    extern __shared__ __align__(128) u8 pipeline_shared[];
    u32 each = PARTS > 1 ? 1 : pairs_of_a_stage(p), prefetched = min(p.pipeline.prefetched, p.pipeline.depth),
        slot = 0, turn = 0;
    u32 stages = shared_address(pipeline_shared) + at.stages, full = shared_address(state.full),
        empty = shared_address(state.empty);
    bool has_rows = n_rows_of(p.step, p.rows) > 0;

    if ((threadIdx.x & 31) == 0) {
        for (u32 i = 0; i < p.pipeline.depth; i++) {
            barrier_begin(full + i * 8, p.pipeline.words ? 33 : 1);
            barrier_begin(empty + i * 8, CONSUMER_THREADS);
        }
        show_barriers();
    }
    if (ALONE)
        __syncthreads(); // the barriers are initialised
    else
        __syncwarp();
    for (; slot < prefetched && t.first + slot * each < t.end; slot++)
        produce_stage<F, PARTS>(p, t.first + slot * each, t.end, stages + slot * p.pipeline.stage_bytes,
                                full + slot * 8);
    if (!ALONE)
        __syncthreads();
    wait_before_next();
    if (!has_rows) { // no block ends while copies into it are in flight
        while (slot > 0)
            wait_for_stage(full + --slot * 8, 0);
        return;
    }
    for (u32 first = t.first + slot * each; first < t.end; first += each, slot++) {
        if (slot == p.pipeline.depth) {
            slot = 0;
            turn++;
        }
        if (turn > 0)
            wait_for_stage(empty + slot * 8, (turn - 1) & 1);
        produce_stage<F, PARTS>(p, first, t.end, stages + slot * p.pipeline.stage_bytes, full + slot * 8);
    }
}

// A warp's part of the product: parts of rows, and the place of their sums.
template <u32 F> struct scheduler_warp {
    const struct gemm_params &p;
    const struct pipeline_places &at;
    struct stage_places<F> places;
    u32 mine, part; // mine: pair of a round; part: of the lanes that share a pair

    __device__ __forceinline__ scheduler_warp(const struct gemm_params &p, const struct pipeline_places &at)
        : p(p), at(at), places(p)
    {
        u32 warps = 1 << p.pipeline.lanes_log2 >> 5;
        mine = threadIdx.x >> p.pipeline.lanes_log2;
        // Rotated from pair to pair: else one scheduler would get all warps with a second block.
        part = ((threadIdx.x / 32 + mine) & (warps - 1)) * 32 + (threadIdx.x & 31);
    }
    // N / 2 pairs of a stage, a round apart; pair: of the block.
    template <u32 N, typename Form>
    __device__ __forceinline__ void multiply(Form &form, const u8 *stage, u32 pair)
    {
        u32 log2 = p.pipeline.lanes_log2, warps = 1 << log2 >> 5, round = CONSUMER_THREADS >> log2,
            each = pairs_of_a_stage(p);
        struct plane_pointers rows[N];
        f32 sums[N] = {};

#pragma unroll
        for (u32 r = 0; r < N; r++) {
            u32 index = mine + r / 2 * round;
            rows[r] =
                places.row(p.n_cols, p.pipeline.apart ? index + r % 2 * each : 2 * index + r % 2, stage);
        }
        form.dot(rows, part, 1u << log2, p.n_cols, sums);
#pragma unroll
        for (u32 r = 0; r < N; r += 2) {
            f32 sum = warp_sums(sums[r], sums[r + 1]);
            if ((threadIdx.x & 15) == 0)
                at.sums[((pair + r / 2 * round) * 2 + (threadIdx.x & 31) / 16) * warps + part / 32] = sum;
        }
    }
};

// All stages, one after the other.
template <u32 F, bool ALONE, typename Form>
static __device__ __forceinline__ void consume_stages(const struct gemm_params &p, Form &form,
                                                      const struct pipeline_places &at,
                                                      struct pipeline_state &state, const struct tasks &t)
{
    u32 each = pairs_of_a_stage(p), round = CONSUMER_THREADS >> p.pipeline.lanes_log2, slot = 0, parity = 0;
    extern __shared__ __align__(128) u8 pipeline_shared[];
    struct scheduler_warp<F> w(p, at);
    constexpr bool ROUNDS = ALONE && Form::in_rounds;

    if (t.first + w.mine >= t.end) // only a block's first stages are refilled, and all warps have pairs in
                                   // them
        return;
    form.begin(w.part, 1u << p.pipeline.lanes_log2, p.n_cols);
    for (u32 first = t.first; first < t.end; first += each) {
        u32 pair = first + w.mine;
        if (pair < t.end) {
            const u8 *stage = pipeline_shared + at.stages + slot * p.pipeline.stage_bytes;
            wait_for_stage(shared_address(&state.full[slot]), parity);
            if (ROUNDS && p.pipeline.rounds == 2 && pair + round < t.end)
                w.template multiply<ROUNDS ? 4 : 2>(form, stage, pair - t.first);
            else
                w.template multiply<2>(form, stage, pair - t.first);
        }
        // Else no warp waits for it: in the last stage some warps have no work and would arrive early.
        if (first + p.pipeline.depth * each < t.end)
            leave_stage(shared_address(&state.empty[slot]));
        parity ^= slot + 1 == p.pipeline.depth;
        slot = slot + 1 == p.pipeline.depth ? 0 : slot + 1;
    }
}

// A block's pairs; the first `more` blocks have one more. No division: the first copy waits for this.
static __device__ __forceinline__ struct tasks pipeline_tasks_of(const struct gemm_params &p)
{
    struct tasks t;
    t.first = p.first_pair + p.pipeline.block_pairs * blockIdx.x + min(blockIdx.x, p.pipeline.more);
    t.end = t.first + p.pipeline.block_pairs + (blockIdx.x < p.pipeline.more);
    return t;
}

// One thread runs a pair's epilogue. first, inputs: the ones of its first pair.
template <bool ADAPTED>
static __device__ __forceinline__ void
epilogue_pairs(const struct gemm_params &p, const struct pipeline_places &at,
               const struct pipeline_state &state, const struct tasks &t, const struct pair &first,
               const struct pair_inputs &inputs)
{
    u32 warps = 1 << p.pipeline.lanes_log2 >> 5;
    struct pair r = first;
    struct pair_inputs in = inputs;

    if (ADAPTED)
        sync_with_adapters();
    else
        sync_consumers();
    f32 factor = p.norm ? state.factor : 1;
    for (u32 pair = t.first + threadIdx.x; pair < t.end; pair += CONSUMER_THREADS) {
        const f32 *sums = at.sums + (pair - t.first) * 2 * warps;
        float2 sum = make_float2(0, 0);
#pragma unroll 2
        for (u32 w = 0; w < warps; w++) {
            sum.x += sums[w];
            sum.y += sums[warps + w];
        }
        if (ADAPTED) {
            float2 added = at.added[pair - t.first];
            sum = make_float2(sum.x + added.x, sum.y + added.y);
        }
        if (pair >= t.first + CONSUMER_THREADS) {
            r = pair_find(p, pair, p.mode);
            in = pair_load(p, r, 0, p.mode);
        }
        pair_epilogue_store(p, r, 0, in, make_float2(sum.x * factor, sum.y * factor), p.mode);
    }
}

// The last warp, which has the least to multiply.
static __device__ __forceinline__ void find_factor(const struct gemm_params &p, struct pipeline_state &state)
{
    u32 lane = threadIdx.x & 31;
    f32 sum = warp_sum(lane < CONSUMER_WARPS ? state.squares[lane] : 0);

    if (lane == 0)
        state.factor = norm_factor(sum, p.n_cols, p.eps);
}

// The consumer warps. A warp skips what it has no part in: the launch that runs beside this one is the one
// that all wait for.
template <u32 F, bool ALONE, bool ADAPTED, typename Form>
static __device__ __forceinline__ void consume(const struct gemm_params &p, const struct pipeline_places &at,
                                               struct pipeline_state &state, const struct tasks &t)
{
    extern __shared__ __align__(128) u8 pipeline_shared[];
    struct float8 norm = {};
    struct pair ends = {}; // the epilogue of this thread
    struct pair_inputs inputs = {};
    bool ends_one = t.first + threadIdx.x<t.end, has_rows = n_rows_of(p.step, p.rows)> 0;

    if (p.norm && threadIdx.x < p.n_cols / 8)
        norm = load_eight(p.norm, threadIdx.x, p.n_cols / 8);
    if (ends_one) {
        ends = pair_find(p, t.first + threadIdx.x, p.mode);
        inputs = pair_load_early(p, ends, 0, p.mode);
    }
    __syncthreads(); // the barriers are initialised
    wait_before_next();
    if (ALONE) // not earlier: its first instructions would delay the launch before this one, which all wait
               // for
        let_next_begin();
    if (!has_rows)
        return;
    if (ends_one)
        pair_load_late(p, ends, 0, inputs, p.mode);
    Form form(pipeline_shared, p.n_cols);
    pack_row<ALONE ? 4 : 1>(p, form, norm, state.squares);
    if (p.norm && threadIdx.x / 32 == CONSUMER_WARPS - 1)
        find_factor(p, state);
    consume_stages<F, ALONE>(p, form, at, state, t);
    epilogue_pairs<ADAPTED>(p, at, state, t, ends, inputs);
}

// Never called.
static __device__ __forceinline__ void adapt(const struct gemm_params &, const struct pipeline_places &,
                                             const struct tasks &)
{
}
// The warps behind the producer: see gemm_adapters.cuh.
static __device__ __forceinline__ void adapt(const struct adapted_params &p, const struct pipeline_places &at,
                                             const struct tasks &t)
{
    u32 thread = threadIdx.x - GEMV_PIPELINE_THREADS, mode = p.product.mode;
    struct adapter_unit unit = adapter_unit_at(p, min(blockIdx.x, adapter_units(p) - 1));
    struct adapter_fours<6> fours;
    struct adapter_rows<16> rows; // of no account where h is 0
    struct pair r = pair_find(p.product, min(t.first + thread, t.end - 1), mode);

    __syncthreads(); // at once: the others wait here for their barriers
    fours.load(p, unit, unit.first, thread);
    wait_before_next();
    if (n_rows_of(p.product.step, p.product.rows) == 0)
        return;
    adapter_publish(p, thread, unit, fours);
    if (t.first + thread < t.end && any_adapter(p))
        rows.load(p, r, 0);
    adapter_collect(p, thread, at.h);
    for (u32 pair = t.first + thread; pair < t.end; pair += ADAPTER_THREADS) {
        if (pair >= t.first + ADAPTER_THREADS) {
            r = pair_find(p.product, pair, mode);
            rows.load(p, r, 0);
        }
        at.added[pair - t.first] = adapter_sums(p, r, at.h, rows);
    }
    sync_with_adapters();
    if (thread < 32)
        adapter_leave(p, thread);
}

template <u32 F, bool ALONE, typename Form, typename Params>
static __device__ __forceinline__ void gemv_pipeline(const Params &params, u32 row_bytes)
{
    constexpr bool ADAPTED = has_adapters<Params>;
    const struct gemm_params &p = product_of(params);
    __shared__ struct pipeline_state state;
    struct tasks t = pipeline_tasks_of(p);
    struct pipeline_places at = places_of(
        p, row_bytes, p.pipeline.most_pairs * 2 * 4 << p.pipeline.lanes_log2 >> 5, adapters_bytes(params));

    if (!ALONE)
        let_next_begin(); // the next launch fills its stages where there is room
    if (threadIdx.x / 32 == CONSUMER_WARPS)
        produce<F, ALONE, 1>(p, at, state, t);
    else if (ADAPTED && threadIdx.x / 32 > CONSUMER_WARPS)
        adapt(params, at, t);
    else
        consume<F, ALONE, ADAPTED, Form>(p, at, state, t);
}

// Rows that do not fit beside a stage: each thread keeps its columns of the row in registers, and a stage is
// a part of a pair.
template <u32 F> struct long_row {
    struct float8 x[LONG_PARTS][LONG_EIGHTS];

    // Returns this thread's part of the squares.
    __device__ __forceinline__ f32 load(const struct gemm_params &p)
    {
        u32 n = p.n_cols / 8, each = long_part_eights(p.n_cols);
        f32 squares = 0;

#pragma unroll
        for (u32 part = 0; part < LONG_PARTS; part++)
#pragma unroll
            for (u32 k = 0; k < LONG_EIGHTS; k++)
                x[part][k] = load_eight(p.in, part * each + threadIdx.x + k * CONSUMER_THREADS, n);
#pragma unroll
        for (u32 part = 0; part < LONG_PARTS; part++)
#pragma unroll
            for (u32 k = 0; k < LONG_EIGHTS; k++) {
                u32 i = threadIdx.x + k * CONSUMER_THREADS, at = part * each + i;
                if (i >= each || at >= n) {
                    x[part][k] = {};
                    continue;
                }
                squares += squares_of(x[part][k]);
                if (p.norm)
                    x[part][k] = times(x[part][k], load_eight(p.norm, at, n));
            }
        return squares;
    }
    __device__ __forceinline__ void dot(u32 n_cols, u32 part, const u8 *stage, f32 (&sums)[2]) const
    {
        u32 each = long_part_eights(n_cols), n = min(each, n_cols / 8 - part * each);
        const uint4 *rows = (const uint4 *)stage + threadIdx.x;
#pragma unroll
        for (u32 k = 0; k < LONG_EIGHTS; k++) {
            if (threadIdx.x + k * CONSUMER_THREADS >= n)
                break;
            dot_eight<F>(rows[k * CONSUMER_THREADS], x[part][k], sums[0]);
            dot_eight<F>(rows[each + k * CONSUMER_THREADS], x[part][k], sums[1]);
        }
    }
};

template <u32 F>
static __device__ __forceinline__ void
multiply_long(const struct gemm_params &p, const struct long_row<F> &row, const struct pipeline_places &at,
              struct pipeline_state &state, const struct tasks &t)
{
    extern __shared__ __align__(128) u8 pipeline_shared[];
    u32 slot = 0, parity = 0;

    for (u32 pair = 0; pair < t.end - t.first; pair++) {
        f32 sums[2] = {};
#pragma unroll
        for (u32 part = 0; part < LONG_PARTS; part++) {
            wait_for_stage(shared_address(&state.full[slot]), parity);
            row.dot(p.n_cols, part, pipeline_shared + at.stages + slot * p.pipeline.stage_bytes, sums);
            leave_stage(shared_address(&state.empty[slot]));
            parity ^= slot + 1 == p.pipeline.depth;
            slot = slot + 1 == p.pipeline.depth ? 0 : slot + 1;
        }
        f32 sum = warp_sums(sums[0], sums[1]);
        if ((threadIdx.x & 15) == 0)
            at.sums[(pair * 2 + (threadIdx.x & 31) / 16) * CONSUMER_WARPS + threadIdx.x / 32] = sum;
    }
}

template <u32 F, bool ADAPTED>
static __device__ __forceinline__ void consume_long(const struct gemm_params &p,
                                                    const struct pipeline_places &at,
                                                    struct pipeline_state &state, const struct tasks &t)
{
    struct long_row<F> row;

    __syncthreads(); // the barriers are initialised
    wait_before_next();
    let_next_begin();
    if (n_rows_of(p.step, p.rows) == 0)
        return;
    f32 squares = warp_sum(row.load(p));
    if ((threadIdx.x & 31) == 0)
        state.squares[threadIdx.x / 32] = squares;
    sync_consumers();
    if (p.norm && threadIdx.x / 32 == CONSUMER_WARPS - 1)
        find_factor(p, state);
    multiply_long<F>(p, row, at, state, t);
    struct pair ends = pair_find(p, min(t.first + threadIdx.x, t.end - 1), p.mode);
    epilogue_pairs<ADAPTED>(p, at, state, t, ends, pair_load(p, ends, 0, p.mode));
}

template <u32 F, typename Params>
static __device__ __forceinline__ void gemv_pipeline_long(const Params &params)
{
    constexpr bool ADAPTED = has_adapters<Params>;
    const struct gemm_params &p = product_of(params);
    __shared__ struct pipeline_state state;
    struct tasks t = pipeline_tasks_of(p);
    struct pipeline_places at =
        places_of(p, 0, p.pipeline.most_pairs * 2 * 4 * CONSUMER_WARPS, adapters_bytes(params));

    if (threadIdx.x / 32 == CONSUMER_WARPS)
        produce<F, true, LONG_PARTS>(p, at, state, { t.first * LONG_PARTS, t.end * LONG_PARTS });
    else if (ADAPTED && threadIdx.x / 32 > CONSUMER_WARPS)
        adapt(params, at, t);
    else
        consume_long<F, ADAPTED>(p, at, state, t);
}

// Two blocks share an SM; the kernels `alone`, of which one fits, have registers for more of a row.
#define GEMV_PIPELINE_KERNEL(name, PARAMS, THREADS, BLOCKS, BODY)     \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)     \
        gemv_pipeline_##name(const __grid_constant__ struct PARAMS p) \
    {                                                                 \
        BODY;                                                         \
    }
#define GEMV_PIPELINE_TWO(name, BODY) GEMV_PIPELINE_KERNEL(name, gemm_params, GEMV_PIPELINE_THREADS, 2, BODY)
#define GEMV_PIPELINE_ALONE(name, BODY) \
    GEMV_PIPELINE_KERNEL(name, gemm_params, GEMV_PIPELINE_THREADS, 1, BODY)
#define GEMV_PIPELINE_ADAPTED(name, BODY) \
    GEMV_PIPELINE_KERNEL(name, adapted_params, GEMV_PIPELINE_THREADS + ADAPTER_THREADS, 1, BODY)

#define INT8_ROW(p) (product_of(p).n_cols / 32 * 44)
#define F32_ROW(p)  (product_of(p).n_cols * 4)
#define GEMV_PIPELINE(name, F, FORM, ROW)                                           \
    GEMV_PIPELINE_TWO(name, (gemv_pipeline<F, false, FORM<F>>(p, ROW(p))))          \
    GEMV_PIPELINE_ALONE(alone_##name, (gemv_pipeline<F, true, FORM<F>>(p, ROW(p)))) \
    GEMV_PIPELINE_ADAPTED(adapted_##name, (gemv_pipeline<F, true, FORM<F>>(p, ROW(p))))
#define GEMV_PIPELINE_16(NAME, name, with)                                  \
    GEMV_PIPELINE(name, QUANT_##NAME, form_16, F32_ROW)                     \
    GEMV_PIPELINE_ALONE(long_##name, (gemv_pipeline_long<QUANT_##NAME>(p))) \
    GEMV_PIPELINE_ADAPTED(adapted_long_##name, (gemv_pipeline_long<QUANT_##NAME>(p)))
#define GEMV_PIPELINE_INT8(NAME, name, with) GEMV_PIPELINE(name, QUANT_##NAME, form_int8, INT8_ROW)
GEMV_PIPELINE_ALONE(wide_q2_k, (gemv_pipeline<QUANT_Q2_K, true, form_wide<QUANT_Q2_K>>(p, INT8_ROW(p))))
GEMV_PIPELINE_ADAPTED(adapted_wide_q2_k,
                      (gemv_pipeline<QUANT_Q2_K, true, form_wide<QUANT_Q2_K>>(p, INT8_ROW(p))))
QUANT_HALF_FORMATS(GEMV_PIPELINE_16, )
QUANT_BLOCK_FORMATS(GEMV_PIPELINE_INT8, )
#endif
