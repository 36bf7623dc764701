// attend_all_hopper.cu - attention of an encoder on Hopper, heads of 64, by wgmma and TMA (FlashAttention-3;
// Shah et al., 2024).
//
// Computes   S = q K^T and O += P V   for 256 rows of the step and one head after the other.
//
//              64 keys (N side)              64 dims (N side)
//           +--------------------+        +--------------------+
//   64 rows |  S, in registers   |   P V: |  O, in registers   |   block: four warpgroups of 64 rows each,
//   and (M)     +--------------------+        +--------------------+   a warp that copies; one block an SM
//
//   products   | S 1 | P 0 V      | S 2 | P 1 V      |
//   softmax          | of tile 1        | of tile 2        a warpgroup; those of others run beside
//
// Pipeline: stages of K or of V of 64 keys, in the order of their use: K 0, K 1, V 0, K 2, V 1, ... The
// producer runs ahead into the next rows and head, whose q has a room of its own. P is read from registers,
// q, K and V from shared memory, where 64 dims are a row of 128 bytes, swizzled by TMA. Rows of several slots
// are several runs; every row sums over its slot's keys in their order. In the last turn, which has too few
// items for all blocks, these take fewer rows each. Epilogue: attend_all_tile.cuh. Images
// of other architectures hold no such kernel. What bounds it, and other shapes:
// bench/results/2026-11-28-encoder.md.
#include "gemm/cuda/wgmma.cuh"
#include "ops/attend_all/attend_all_tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { BOX_ROWS = 64, BOX_BYTES = BOX_ROWS * 128, CONSUMERS = ALL_HOPPER_GROUPS * 128, CLEARED = 1 };
enum { STEPS = ALL_HOPPER_KEYS / 16 };

struct all_stages { // the constants of pipe
    static constexpr u32 n_stages = ALL_HOPPER_STAGES, stage_bytes = ALL_HOPPER_STAGE_BYTES;
};
typedef f32 scores[ALL_HOPPER_KEYS / 8][4];

// Rows [from, end) of one slot, of the block's that begin at `base`, and a head. No keys: the last run.
struct all_run {
    struct slot_rows keys;
    u32 base, from, end, head;
};

// P V: the second factor's columns lie side by side.
static __device__ __forceinline__ void wgmma_sum(f32 (&d)[8][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" N32
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All products have ended but the last PENDING groups.
template <u32 PENDING, u32 N> static __device__ __forceinline__ void finish(f32 (&d)[N][4])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    settle(d);
}

// Shared memory: stages, q of runs, barriers, runs.
struct all_places {
    struct pipe<all_stages> pipe;
    u32 q, q_full, q_empty, runs, at, phase; // at, phase: of the runs, as the pipe's of its stages

    __device__ __forceinline__ all_places(u32 shared) : pipe{ 0, 0, shared, 0, 0 }, at(0), phase(0)
    {
        q = shared + ALL_HOPPER_STAGES * ALL_HOPPER_STAGE_BYTES;
        pipe.full = q + ALL_RUNS * ALL_Q_BYTES;
        pipe.empty = pipe.full + 8 * ALL_HOPPER_STAGES;
        q_full = pipe.empty + 8 * ALL_HOPPER_STAGES;
        q_empty = q_full + 8 * ALL_RUNS;
        runs = q_empty + 8 * ALL_RUNS;
    }
    __device__ __forceinline__ void begin() const // by one thread
    {
        for (u32 i = 0; i < ALL_HOPPER_STAGES; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, CONSUMERS / 32);
        }
        for (u32 i = 0; i < ALL_RUNS; i++) {
            barrier_begin(q_full + 8 * i, 1);
            barrier_begin(q_empty + 8 * i, CONSUMERS / 32);
        }
        show_barriers();
    }
    __device__ __forceinline__ void next_run()
    {
        if (++at == ALL_RUNS) {
            at = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void put_run(const struct all_run &r) const
    {
        u32 to = runs + at * ALL_RUN_BYTES;

        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r.keys.first), "r"(r.keys.end),
                     "r"(r.base), "r"(r.from)
                     : "memory");
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to + 16), "r"(r.end), "r"(r.head) : "memory");
    }
    __device__ __forceinline__ struct all_run get_run() const
    {
        u32 from = runs + at * ALL_RUN_BYTES;
        struct all_run r;

        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.keys.first), "=r"(r.keys.end), "=r"(r.base), "=r"(r.from)
                     : "r"(from)
                     : "memory");
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(r.end), "=r"(r.head)
                     : "r"(from + 16)
                     : "memory");
        return r;
    }
};

// ---- the producer, a warp

// As slot_rows_of, by all lanes: 32 rows are looked at together.
static __device__ __forceinline__ struct slot_rows slot_rows_of_warp(const struct step *step, u32 row)
{
    const u32 *slots = step_slots(step), *positions = step_positions(step);
    u32 slot = slots[row], first = row - positions[row], low = row + 1, high = step->n_rows;

    while (low < high) {
        u32 stride = (high - low + 31) / 32, at = low + stride * (threadIdx.x % 32);
        bool mine = at < high && slots[at] == slot && positions[at] == at - first;
        u32 n = __popc(__ballot_sync(~0u, mine));
        high = n == 0 ? low : min(high, low + stride * n);
        low = n == 0 ? low : low + stride * (n - 1) + 1;
    }
    return { first, low };
}

static __device__ __forceinline__ void copy_boxes(const struct tensor_view *view, u32 to, u32 full, u32 head,
                                                  u32 row, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        const u32 at[3] = { 0, head, row + i * BOX_ROWS };
        box_copy(to + i * BOX_BYTES, view, full, at, cache_policy(false));
    }
}

// By one lane.
static __device__ __forceinline__ void produce_run(const struct attend_all_views &v, struct all_places &s,
                                                   const struct all_run &r)
{
    u32 n = (r.keys.end - r.keys.first + ALL_HOPPER_KEYS - 1) / ALL_HOPPER_KEYS;

    wait_for_stage(s.q_empty + 8 * s.at, s.phase ^ 1);
    s.put_run(r);
    expect_bytes(s.q_full + 8 * s.at, ALL_Q_BYTES);
    copy_boxes(&v.sides[ATTEND_ALL_Q], s.q + s.at * ALL_Q_BYTES, s.q_full + 8 * s.at, r.head, r.base,
               ALL_HOPPER_GROUPS);
    for (u32 i = 0; i < 2 * n; i++, s.pipe.next()) {
        bool first = i == 0, last = i == 2 * n - 1, value = last || (!first && i % 2 == 0);
        u32 tile = first   ? 0
                   : last  ? n - 1
                   : value ? i / 2 - 1
                           : i / 2 + 1,
            full = s.pipe.full + 8 * s.pipe.at;
        wait_for_stage(s.pipe.empty + 8 * s.pipe.at, s.pipe.phase ^ 1);
        expect_bytes(full, ALL_HOPPER_STAGE_BYTES);
        copy_boxes(&v.sides[value ? ATTEND_ALL_V : ATTEND_ALL_K], s.pipe.stage(), full, r.head,
                   r.keys.first + tile * ALL_HOPPER_KEYS, ALL_HOPPER_KEYS / BOX_ROWS);
    }
}

// What the blocks take in turn: 256 rows and a head. Those of the last turn are cut in two or four where
// there are blocks for the parts.
struct all_items {
    u32 n_rows, n_tiles, n_whole, n_parts, n;

    __device__ __forceinline__ all_items(u32 n_rows, u32 n_heads) : n_rows(n_rows)
    {
        n_tiles = (n_rows + ALL_HOPPER_ROWS - 1) / ALL_HOPPER_ROWS;
        u32 all = n_tiles * n_heads, rest = all % gridDim.x;
        n_parts = rest * 4 <= gridDim.x ? 4 : rest * 2 <= gridDim.x ? 2 : 1;
        n_whole = all - rest;
        n = n_whole + rest * n_parts;
    }
    // Its rows, and its head.
    __device__ __forceinline__ struct slot_rows rows(u32 i, u32 &head) const
    {
        u32 parts = i < n_whole ? 1 : n_parts, part = (i - min(i, n_whole)) % parts,
            item = min(i, n_whole) + (i - min(i, n_whole)) / parts, size = ALL_HOPPER_ROWS / parts,
            first = item % n_tiles * ALL_HOPPER_ROWS + part * size;
        head = item / n_tiles;
        return { first, min(first + size, n_rows) };
    }
};

static __device__ __forceinline__ void produce(const struct attend_all_views &v, struct all_places s)
{
    const struct step *step = v.rows.step;
    const struct all_items items(step->n_rows, v.rows.args.n_heads);
    bool one = elect_one();

    for (u32 i = blockIdx.x; i < items.n; i += gridDim.x) {
        u32 head, run_end;
        struct slot_rows rows = items.rows(i, head);
        for (u32 row = rows.first; row < rows.end; row = run_end) {
            struct slot_rows keys = slot_rows_of_warp(step, row);
            run_end = min(keys.end, rows.end);
            if (one)
                produce_run(v, s, { keys, rows.first, row, run_end, head });
            s.next_run();
            __syncwarp();
        }
    }
    if (one) {
        wait_for_stage(s.q_empty + 8 * s.at, s.phase ^ 1);
        s.put_run({});
        expect_bytes(s.q_full + 8 * s.at, 0);
    }
}

// ---- the consumers, four warpgroups

struct hopper_rows : all_rows<64, ALL_HOPPER_KEYS> {
    struct all_places s;

    __device__ __forceinline__ u32 await_stage()
    {
        u32 stage = s.pipe.at;

        wait_for_stage(s.pipe.full + 8 * stage, s.pipe.phase);
        s.pipe.next();
        return stage;
    }
    static __device__ __forceinline__ void leave(u32 barrier)
    {
        if (threadIdx.x % 32 == 0)
            leave_stage(barrier);
    }
    __device__ __forceinline__ u64 stage_descriptor(u32 stage) const
    {
        return tile_descriptor(s.pipe.data + stage * ALL_HOPPER_STAGE_BYTES);
    }
    __device__ __forceinline__ void score(scores &d, u32 stage) const
    {
        u64 k_at = stage_descriptor(stage),
            q_at = tile_descriptor(s.q + s.at * ALL_Q_BYTES +
                                   __shfl_sync(~0u, threadIdx.x / 128, 0) * BOX_BYTES);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, q_at + NEXT_COLUMNS * k, k_at + NEXT_COLUMNS * k, k > 0);
        commit();
    }
    __device__ __forceinline__ void sum(const u32 (&weights)[STEPS][4], u32 stage)
    {
        u64 v_at = stage_descriptor(stage);
#pragma unroll
        for (u32 k = 0; k < STEPS; k++)
            wgmma_sum(out, weights[k], v_at + k * (16 * 128 >> 4));
        commit();
    }
    // V of keys that do not exist becomes zero: what lies there may be NaN.
    __device__ __forceinline__ void clear_beyond(u32 stage, u32 n_keys) const
    {
        if (n_keys >= ALL_HOPPER_KEYS)
            return;
        for (u32 i = n_keys * 8 + threadIdx.x; i < ALL_HOPPER_KEYS * 8; i += CONSUMERS)
            store_shared(s.pipe.data + stage * ALL_HOPPER_STAGE_BYTES + i * 16, make_float4(0, 0, 0, 0));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, %1;" ::"r"((u32)CLEARED), "r"((u32)CONSUMERS) : "memory");
    }

    __device__ __forceinline__ void run(u32 n_keys)
    {
        u32 last = (n_keys - 1) / ALL_HOPPER_KEYS, weights[STEPS][4], stage;
        f32 d[ALL_HOPPER_KEYS / 8][4], rescale[2];

        begin();
        stage = await_stage();
        settle(d);
        wgmma_fence();
        score(d, stage);
        finish<0>(d);
        leave(s.pipe.empty + 8 * stage);
        soften(d, n_keys, rescale);
        pack_weights(d, weights);
#pragma unroll 1
        for (u32 tile = 0; tile < last; tile++) {
            u32 k_stage = await_stage(), v_stage = await_stage();
            settle(d);
            settle(weights);
            settle(out);
            wgmma_fence();
            score(d, k_stage);
            sum(weights, v_stage);
            finish<1>(d);
            leave(s.pipe.empty + 8 * k_stage);
            soften(d, n_keys - (tile + 1) * ALL_HOPPER_KEYS, rescale);
            finish<0>(out);
            leave(s.pipe.empty + 8 * v_stage);
            rescale_out(rescale);
            pack_weights(d, weights);
        }
        stage = await_stage();
        clear_beyond(stage, n_keys - last * ALL_HOPPER_KEYS);
        settle(weights);
        settle(out);
        wgmma_fence();
        sum(weights, stage);
        finish<0>(out);
        leave(s.pipe.empty + 8 * stage);
    }

    // A warpgroup without rows of the run only leaves its stages.
    __device__ __forceinline__ void pass(u32 n_keys)
    {
        u32 last = (n_keys - 1) / ALL_HOPPER_KEYS * 2 + 1;

        for (u32 i = 0; i <= last; i++) {
            u32 stage = await_stage();
            if (i == last)
                clear_beyond(stage, n_keys - i / 2 * ALL_HOPPER_KEYS);
            leave(s.pipe.empty + 8 * stage);
        }
    }

    __device__ __forceinline__ void all_runs()
    {
        for (;; leave(s.q_empty + 8 * s.at), s.next_run()) {
            wait_for_stage(s.q_full + 8 * s.at, s.phase);
            struct all_run r = s.get_run();
            if (r.keys.first == r.keys.end)
                return;
            head = r.head;
            u32 first = r.base + __shfl_sync(~0u, threadIdx.x / 128, 0) * 64;
            if (first >= r.end || first + 64 <= r.from) {
                pass(r.keys.end - r.keys.first);
                continue;
            }
            run(r.keys.end - r.keys.first);
            u32 row = r.base + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
            put(row, row >= r.from && row < r.end, 0);
            put(row + 8, row + 8 >= r.from && row + 8 < r.end, 1);
        }
    }
};

extern "C" __global__ void __launch_bounds__(ALL_HOPPER_THREADS, 1)
    attend_all_hopper_64(const __grid_constant__ struct attend_all_views v)
{
    extern __shared__ __align__(1024) unsigned char hopper_shared[];
    struct all_places places(shared_address(hopper_shared));
    u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);

    if (threadIdx.x == 0)
        places.begin();
    __syncthreads();
    wait_for_inputs();
    if (warp >= CONSUMERS / 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == CONSUMERS / 32)
            produce(v, places);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        struct hopper_rows rows = { { v.rows, 0, 0 }, places };
        rows.all_runs();
    }
}
#endif
