// gemv_pipeline.cu - GEMV on Hopper and later: one row of activations, weights through a pipeline of stages
// in shared memory.
//
// Computes   out[n] = sum over k of x[k] * w[n][k], then the epilogue. Bound by reading the weights.
//
//   stage:  pairs of weight rows, plane by plane        block: 16 or 8 consumer warps | 1 producer warp
//           +--------------------------------+          `lanes` lanes share a pair
//           | quants | high | scales | deltas |         grid: one block an SM, each with a run of pairs
//           +--------------------------------+
//
// Pipeline: the producer warp fills up to 8 stages by bulk copies, the first before the block's inputs are
// there, so that memory works while the operation before this one ends; later ones queue behind the row's
// loads. Consumers arrive at the stage's empty barrier.
// The row: x * norm as int8 with a scale for each 32, or as fp32 for 16-bit weights; the norm's factor
// multiplies the sums. Sums are added in shared memory, and one thread runs a pair's epilogue. The order of a
// sum depends on n_cols, the format and `lanes` alone. Kernels: gemv_pipeline (8 consumer warps; two blocks
// an SM: the next launch fills its stages beside this one), _alone (16; one block), _wide (lanes with any
// number of blocks), _long (16-bit rows that do not fit beside a stage: a stage is a part of a pair, the row
// lies in registers). Where adapters add to the product (adapted_...), three more warps find what they add
// meanwhile.
#include "gemm/cuda/gemm_adapters.cuh"
#include "gemm/cuda/hopper/gemv_stage.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // older devices have no bulk copies and use gemv.cu

template <bool ALONE> static __device__ __forceinline__ void sync_consumers()
{
    asm volatile("bar.sync 1, %0;" ::"n"(consumers_of(ALONE)) : "memory");
}

// A named barrier: the consumers wait at it for the adapters' threads, which only arrive.
static __device__ __forceinline__ void wait_for_adapters()
{
    asm volatile("bar.sync 2, 608;" ::: "memory"); // CONSUMER_THREADS + ADAPTER_THREADS
}
static __device__ __forceinline__ void tell_added()
{
    asm volatile("bar.arrive 2, 608;" ::: "memory");
}

struct pipeline_state {                 // of a block
    u64 full[PIPELINE_STAGES];          // barriers: the stage is full
    u64 empty[PIPELINE_STAGES];         // all warps have read it
    f32 squares[CONSUMER_THREADS / 32]; // of each warp's part of a long row
    f32 factor;                         // the norm's
};

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
    bool has[most], exists[most]; // whether lanes of this warp have that many; whether this one has

    __device__ __forceinline__ form_int8(u8 *shared, u32 n_cols) : quantised_row(shared, n_cols)
    {
    }
    __device__ __forceinline__ void place(u32 part, u32 lanes, u32 n_cols)
    {
        u32 n_units = n_cols / (32 * unit);
#pragma unroll
        for (u32 i = 0; i < most; i++) {
            u32 at = part + i * lanes;
            has[i] = i == 0 || (part & ~31u) + i * lanes < n_units;
            exists[i] = at < n_units;
            units[i] = settled(min(at, n_units - 1));
        }
    }
    __device__ __forceinline__ void begin()
    {
#pragma unroll
        for (u32 i = 0; i < most; i++) {
#pragma unroll
            for (u32 k = 0; k < unit; k++) {
                facing[i][k] = face<F>(x, units[i] * unit + k);
                if (!exists[i])
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
    __device__ __forceinline__ void place(u32, u32, u32)
    {
    }
    __device__ __forceinline__ void begin()
    {
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
    __device__ __forceinline__ void place(u32, u32, u32)
    {
    }
    __device__ __forceinline__ void begin()
    {
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
static __device__ __forceinline__ f32 warp_sums(f32 first, f32 second, u32 thread)
{
    bool upper = thread & 16;
    f32 mine = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, 16);
#pragma unroll
    for (u32 o = 8; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    return mine;
}

// Eights of the row that a thread has in flight.
template <bool ALONE> struct row_eights {
    static constexpr u32 at_once = ALONE ? 4 : 2, step = consumers_of(ALONE);
    struct float8 v[at_once];

    __device__ __forceinline__ void load(const f32 *row, u32 first, u32 n, u32 end)
    {
#pragma unroll
        for (u32 k = 0; k < at_once; k++)
            if (first + k * step < end)
                v[k] = load_eight(row, first + k * step, n);
    }
};
// A row of n eights; a multiple of 32, so that a warp's loop is uniform.
static __device__ __forceinline__ u32 row_end(u32 n)
{
    return (n + 31) / 32 * 32;
}

// Packs the row, times norm, into shared memory, with the sum of squares of each 32 columns. eights, norm:
// this thread's first; the norm's one was loaded before the wait.
template <bool ALONE, typename Form>
static __device__ __forceinline__ void pack_row(const struct gemm_params &p, Form &form,
                                                struct row_eights<ALONE> &eights, const struct float8 &norm,
                                                f32 *squares, u32 thread)
{
    constexpr u32 step = consumers_of(ALONE);
    u32 n = p.n_cols / 8, end = row_end(n);

    for (u32 first = thread; first < end;) {
#pragma unroll
        for (u32 k = 0; k < eights.at_once; k++) {
            u32 i = first + k * step;
            if (i >= end)
                break;
            struct float8 v = eights.v[k];
            f32 sum = i < n ? squares_of(v) : 0;
            if (i < step)
                v = times(v, norm);
            else if (p.norm)
                v = times(v, load_eight(p.norm, i, n));
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            form.put(i, v, i < n);
            if (i % 4 == 0 && i < n)
                squares[i / 4] = sum;
        }
        first += eights.at_once * step;
        if (first < end)
            eights.load(p.in, first, n, end);
    }
    sync_consumers<ALONE>();
}

struct pipeline_places { // in dynamic shared memory: the row, its squares, the sums [pair][row][warps of a
                         // pair], what adapters add [pair] and their h [rank], the stages
    u8 *shared;
    f32 *squares, *sums;
    float2 *added;
    f32 *h;
    u32 stages, full, empty; // full, empty: the barriers
};
static __device__ __forceinline__ struct pipeline_places places_of(const struct gemm_params &p, u32 row_bytes,
                                                                   u32 sums_bytes, u32 adapters_bytes)
{
    extern __shared__ __align__(128) u8 pipeline_shared[];
    u32 added = (row_bytes + sums_bytes + 7) / 8 * 8;
    struct pipeline_places at;

    at.shared = pipeline_shared;
    at.sums = (f32 *)(pipeline_shared + row_bytes);
    at.squares = at.sums - (p.n_cols + 31) / 32;
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
    u32 each = PARTS > 1 ? 1 : pairs_of_a_stage<ALONE>(p),
        prefetched = min(p.pipeline.prefetched, p.pipeline.depth), slot = 0, turn = 0;
    u32 stages = shared_address(pipeline_shared) + at.stages, full = shared_address(state.full),
        empty = shared_address(state.empty);
    bool has_rows = n_rows_of(p.step, p.rows) > 0;

    if ((threadIdx.x & 31) == 0) {
        for (u32 i = 0; i < p.pipeline.depth; i++) {
            barrier_begin(full + i * 8, p.pipeline.words ? 33 : 1);
            barrier_begin(empty + i * 8, consumers_of(ALONE));
        }
        show_barriers();
    }
    if (ALONE)
        __syncthreads(); // the barriers are initialised
    else
        __syncwarp();
    for (; slot < prefetched && t.first + slot * each < t.end; slot++)
        produce_stage<F, ALONE, PARTS>(p, t.first + slot * each, t.end,
                                       stages + slot * p.pipeline.stage_bytes, full + slot * 8);
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
        produce_stage<F, ALONE, PARTS>(p, first, t.end, stages + slot * p.pipeline.stage_bytes,
                                       full + slot * 8);
    }
}

// A warp's part of the product: parts of rows, and the place of their sums.
template <u32 F, bool ALONE> struct scheduler_warp {
    const struct gemm_params &p;
    const struct pipeline_places &at;
    u32 thread, mine, part;       // mine: pair of a round; part: of the lanes that share a pair
    struct plane_offsets rows[2]; // of the first round

    __device__ __forceinline__ scheduler_warp(const struct gemm_params &p, const struct pipeline_places &at,
                                              u32 thread)
        : p(p), at(at), thread(thread)
    {
        u32 warps = 1 << p.pipeline.lanes_log2 >> 5;
        mine = settled(thread >> p.pipeline.lanes_log2);
        // Rotated from pair to pair: else one scheduler would get all warps with a second block.
        part = settled(((thread / 32 + mine) & (warps - 1)) * 32 + (thread & 31));
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            rows[r] = row(r);
            rows[r].template settle<F>();
        }
    }
    __device__ __forceinline__ struct plane_offsets row(u32 r) const
    {
        struct stage_places<F, ALONE> places(p);
        u32 index = mine + r / 2 * (consumers_of(ALONE) >> p.pipeline.lanes_log2),
            each = pairs_of_a_stage<ALONE>(p);
        return places.row(p.n_cols, p.pipeline.apart ? index + r % 2 * each : 2 * index + r % 2);
    }
    // N / 2 pairs of a stage, a round apart; pair: of the block.
    template <u32 N, typename Form>
    __device__ __forceinline__ void multiply(Form &form, const u8 *stage, u32 pair)
    {
        u32 log2 = p.pipeline.lanes_log2, warps = 1 << log2 >> 5, round = consumers_of(ALONE) >> log2;
        struct plane_pointers there[N];
        f32 sums[N] = {};

#pragma unroll
        for (u32 r = 0; r < N; r++)
            there[r] = r < 2 ? rows[r].in(stage) : row(r).in(stage);
        form.dot(there, part, 1u << log2, p.n_cols, sums);
#pragma unroll
        for (u32 r = 0; r < N; r += 2) {
            f32 sum = warp_sums(sums[r], sums[r + 1], thread);
            if ((thread & 15) == 0)
                at.sums[((pair + r / 2 * round) * 2 + (thread & 31) / 16) * warps + part / 32] = sum;
        }
    }
};

// All stages, one after the other.
template <u32 F, bool ALONE, typename Form>
static __device__ __forceinline__ void consume_stages(const struct gemm_params &p, Form &form,
                                                      struct scheduler_warp<F, ALONE> &w,
                                                      const struct pipeline_places &at, const struct tasks &t)
{
    u32 each = pairs_of_a_stage<ALONE>(p), round = consumers_of(ALONE) >> p.pipeline.lanes_log2, slot = 0,
        parity = 0;
    constexpr bool ROUNDS = ALONE && Form::in_rounds;

    if (t.first + w.mine >= t.end) // only a block's first stages are refilled, and all warps have pairs in
                                   // them
        return;
    form.begin();
    for (u32 first = t.first; first < t.end; first += each) {
        u32 pair = first + w.mine;
        if (pair < t.end) {
            const u8 *stage = at.shared + at.stages + slot * p.pipeline.stage_bytes;
            wait_for_stage(at.full + slot * 8, parity);
            if (ROUNDS && p.pipeline.rounds == 2 && pair + round < t.end)
                w.template multiply<ROUNDS ? 4 : 2>(form, stage, pair - t.first);
            else
                w.template multiply<2>(form, stage, pair - t.first);
        }
        // Else no warp waits for it: in the last stage some warps have no work and would arrive early.
        if (first + p.pipeline.depth * each < t.end)
            leave_stage(at.empty + slot * 8);
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

// One thread runs a pair's epilogue. first, inputs: the ones of its first pair. A block's later pairs, which
// most blocks do not have, are found behind the first one's end: no jump lies before it.
template <bool ALONE, bool ADAPTED>
static __device__ __forceinline__ void
epilogue_pairs(const struct gemm_params &p, const struct pipeline_places &at,
               const struct pipeline_state &state, const struct tasks &t, const struct pair &first,
               const struct pair_inputs &inputs, u32 thread, u32 mode)
{
    u32 warps = 1 << p.pipeline.lanes_log2 >> 5, pair = t.first + thread;
    struct pair r = first;
    struct pair_inputs in = inputs;

    if (ADAPTED)
        wait_for_adapters();
    else
        sync_consumers<ALONE>();
    f32 factor = p.norm ? state.factor : 1;
    while (pair < t.end) {
        const f32 *sums = at.sums + (pair - t.first) * 2 * warps;
        float2 sum = make_float2(sums[0], sums[warps]);
#pragma unroll 2
        for (u32 w = 1; w < warps; w++) {
            sum.x += sums[w];
            sum.y += sums[warps + w];
        }
        if (ADAPTED) {
            float2 added = at.added[pair - t.first];
            sum = make_float2(sum.x + added.x, sum.y + added.y);
        }
        pair_epilogue_store(p, r, 0, in, make_float2(sum.x * factor, sum.y * factor), mode);
        pair += consumers_of(ALONE);
        if (pair < t.end) {
            r = pair_find(p, pair, mode);
            in = pair_load(p, r, 0, mode);
        }
    }
}

// Called by a whole warp: the last one, which has the least to multiply.
static __device__ __forceinline__ void find_factor(const struct gemm_params &p, const f32 *squares, u32 n,
                                                   struct pipeline_state &state)
{
    u32 lane = threadIdx.x & 31;
    f32 sum = 0;

    for (u32 i = lane; i < n; i += 32)
        sum += squares[i];
    sum = warp_sum(sum);
    if (lane == 0)
        state.factor = norm_factor(sum, p.n_cols, p.eps);
}

// The consumer warps. A warp skips what it has no part in: the launch that runs beside this one is the one
// that all wait for.
template <u32 F, bool ALONE, bool ADAPTED, typename Form>
static __device__ __forceinline__ void consume(const struct gemm_params &p,
                                               const struct pipeline_places &places,
                                               struct pipeline_state &all, const struct tasks &t)
{
    u32 thread = settled(threadIdx.x), mode = settled(p.mode);
    struct pipeline_places at = places;
    struct float8 norm = { make_float4(1, 1, 1, 1), make_float4(1, 1, 1, 1) };
    struct pair ends = {}; // the epilogue of this thread
    struct pair_inputs inputs = {};
    bool ends_one = t.first + thread<t.end, has_rows = n_rows_of(p.step, p.rows)> 0;

    at.shared = settled_shared(places.shared);
    at.sums = (f32 *)settled_shared(places.sums);
    at.squares = at.sums - (p.n_cols + 31) / 32;
    at.stages = settled(places.stages);
    at.full = settled(shared_address(all.full));
    at.empty = at.full + (u32)sizeof all.full;
    struct pipeline_state &state = *(struct pipeline_state *)settled_shared(&all);
    u32 n = p.n_cols / 8, end = settled(row_end(n));
    const f32 *row = settled_global(p.in);
    Form form(at.shared, p.n_cols);
    struct scheduler_warp<F, ALONE> w(p, at, thread);
    form.place(w.part, 1u << p.pipeline.lanes_log2, p.n_cols);
    struct row_eights<ALONE> eights;
    if (p.norm && thread < n)
        norm = load_eight(p.norm, thread, n);
    if (ends_one) {
        ends = pair_find(p, t.first + thread, mode);
        inputs = pair_load_early(p, ends, 0, mode);
    }
    __syncthreads(); // the barriers are initialised
    wait_before_next();
    if (ALONE) // not earlier: its first instructions would delay the launch before this one, which all wait
               // for
        let_next_begin();
    if (!has_rows)
        return;
    eights.load(row, thread, n, end);
    if (ends_one)
        pair_load_late(p, ends, 0, inputs, mode);
    pack_row<ALONE>(p, form, eights, norm, at.squares, thread);
    if (p.norm && thread / 32 == consumers_of(ALONE) / 32 - 1)
        find_factor(p, at.squares, (p.n_cols + 31) / 32, state);
    consume_stages<F, ALONE>(p, form, w, at, t);
    epilogue_pairs<ALONE, ADAPTED>(p, at, state, t, ends, inputs, thread, mode);
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
    tell_added();
    if (thread / 32 == ADAPTER_THREADS / 32 - 1) // which has least to add
        adapter_leave(p, thread % 32);
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
    if (threadIdx.x / 32 == consumers_of(ALONE) / 32)
        produce<F, ALONE, 1>(p, at, state, t);
    else if (ADAPTED && threadIdx.x > GEMV_PIPELINE_THREADS - 1)
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
        f32 sum = warp_sums(sums[0], sums[1], threadIdx.x);
        if ((threadIdx.x & 15) == 0)
            at.sums[(pair * 2 + (threadIdx.x & 31) / 16) * (CONSUMER_THREADS / 32) + threadIdx.x / 32] = sum;
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
    sync_consumers<true>();
    if (p.norm && threadIdx.x / 32 == CONSUMER_THREADS / 32 - 1)
        find_factor(p, state.squares, CONSUMER_THREADS / 32, state);
    multiply_long<F>(p, row, at, state, t);
    struct pair ends = pair_find(p, min(t.first + threadIdx.x, t.end - 1), p.mode);
    epilogue_pairs<true, ADAPTED>(p, at, state, t, ends, pair_load(p, ends, 0, p.mode), threadIdx.x, p.mode);
}

template <u32 F, typename Params>
static __device__ __forceinline__ void gemv_pipeline_long(const Params &params)
{
    constexpr bool ADAPTED = has_adapters<Params>;
    const struct gemm_params &p = product_of(params);
    __shared__ struct pipeline_state state;
    struct tasks t = pipeline_tasks_of(p);
    struct pipeline_places at =
        places_of(p, 0, p.pipeline.most_pairs * 2 * 4 * CONSUMER_THREADS / 32, adapters_bytes(params));

    if (threadIdx.x / 32 == CONSUMER_THREADS / 32)
        produce<F, true, LONG_PARTS>(p, at, state, { t.first * LONG_PARTS, t.end * LONG_PARTS });
    else if (ADAPTED && threadIdx.x / 32 > CONSUMER_THREADS / 32)
        adapt(params, at, t);
    else
        consume_long<F, ADAPTED>(p, at, state, t);
}

#define GEMV_PIPELINE_KERNEL(name, PARAMS, THREADS, BLOCKS, BODY)     \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)     \
        gemv_pipeline_##name(const __grid_constant__ struct PARAMS p) \
    {                                                                 \
        BODY;                                                         \
    }
#define GEMV_PIPELINE_TWO(name, BODY) GEMV_PIPELINE_KERNEL(name, gemm_params, GEMV_BESIDE_THREADS, 2, BODY)
#define GEMV_PIPELINE_ALONE(name, BODY) \
    GEMV_PIPELINE_KERNEL(name, gemm_params, GEMV_PIPELINE_THREADS, 1, BODY)
#define GEMV_PIPELINE_ADAPTED(name, BODY) \
    GEMV_PIPELINE_KERNEL(name, adapted_params, GEMV_PIPELINE_THREADS + ADAPTER_THREADS, 1, BODY)

#define INT8_ROW(p) row_bytes_of(true, product_of(p).n_cols)
#define F32_ROW(p)  row_bytes_of(false, product_of(p).n_cols)
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
