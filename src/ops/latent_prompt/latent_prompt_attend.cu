// latent_prompt_attend.cu - latent_prompt on Hopper: attention over expanded keys and values; see
// latent_prompt.h. (The division of work between warpgroups follows FlashAttention-3; Shah et al., 2024.)
//
// Computes   out = softmax(scale * q . K) V   for 128 rows of a run and one head. Bound by arithmetic.
//
//                        64 keys (N side)            256 or 128 numbers of a value (N side)
//                      +--------------------+      +--------------------------+
//   64 rows (M) of a   |  S, in registers   | P V: |  O, in registers         |
//   warpgroup          +--------------------+      +--------------------------+
//
//   grid: (heads, tiles of 128 rows); block: two consumer warpgroups of 64 rows each, one producer warp
//
// Queries are rotated and become fp16 in shared memory; P is read from registers. Pipeline: two stages of K
// and two of V, each a bulk copy of a tile as it lies. A warpgroup's products for a tile and the scores of
// the next one follow each other, while the other warpgroup's softmax runs. Tiles with most keys come first.
// A turn has some of the tiles of keys; between two turns sums lie in `out`, maxima and totals in `state`.
#include "ops/latent_prompt/latent_prompt.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { KV_STAGES = 2 };

template <u32 K_CHUNKS, u32 V_CHUNKS> struct prompt_room { // shared memory
    u8 q[N_GROUPS][K_CHUNKS][PROMPT_CHUNK];
    u8 k[KV_STAGES][K_CHUNKS][PROMPT_CHUNK];
    u8 v[KV_STAGES][V_CHUNKS][PROMPT_CHUNK];
    u64 full_k[KV_STAGES], empty_k[KV_STAGES], full_v[KV_STAGES], empty_v[KV_STAGES];
};

// ---- products

static __device__ __forceinline__ void add_scores(f32 (&d)[8][4], u64 q, u64 keys, u32 more)
{
    asm volatile("{\n\t.reg .pred more;\n\tsetp.ne.b32 more, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" N32
                 "}, %32, %33, more, 1, 1, 0, 0;\n\t}"
                 : D32(0)
                 : "l"(q), "l"(keys), "r"(more));
}
static __device__ __forceinline__ void add_values(f32 (&d)[16][4], const u32 (&a)[4], u64 values)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" N64
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(values));
}
static __device__ __forceinline__ void add_values(f32 (&d)[32][4], const u32 (&a)[4], u64 values)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" N128
                 "}, {%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
                 : D128(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(values));
}
// Numbers of values side by side: 64 in a row, the next 64 a chunk further, keys in eights.
static __device__ __forceinline__ u64 value_descriptor(u32 at)
{
    return 1ull << 62 | (u64)(1024 >> 4) << 32 | (u64)(PROMPT_CHUNK >> 4) << 16 | (at & 0x3FFFF) >> 4;
}

// ---- what a block does

struct prompt_job {
    u32 row, n_rows, position; // of the first
    u32 tile;                  // where the run's keys begin, less the turn's first
    u32 from, to;              // tiles of the run in this turn
    bool begins, ends;

    // false: there is nothing to do.
    __device__ __forceinline__ bool find(const struct latent_prompt_params &p)
    {
        const struct latent_runs &runs = *p.runs;
        u32 at = gridDim.y - 1 - blockIdx.y, i = 0;
        if (at >= runs.n_query_tiles)
            return false;
        while (i + 1 < runs.n && runs.at[i + 1].query_tile <= at)
            i++;
        const struct latent_run &r = runs.at[i];
        u32 first = (at - r.query_tile) * PROMPT_QUERIES;
        row = r.first + first;
        n_rows = min((u32)PROMPT_QUERIES, r.n_rows - first);
        position = r.position + first;
        tile = r.tile - p.first_tile;
        u32 n = (position + n_rows - 1) / PROMPT_TILE + 1, turn_end = p.first_tile + p.n_tiles;
        from = p.first_tile > r.tile ? p.first_tile - r.tile : 0;
        to = turn_end > r.tile ? min(turn_end - r.tile, n) : 0;
        begins = from == 0;
        ends = to == n;
        return from < to;
    }
};

template <u32 K_CHUNKS, u32 V_CHUNKS>
static __device__ __forceinline__ void bring_tiles(const struct latent_prompt_params &p,
                                                   const struct prompt_job &j,
                                                   struct prompt_room<K_CHUNKS, V_CHUNKS> &room)
{
    struct ring<KV_STAGES> stage;

    for (u32 i = j.from; i < j.to; i++, stage.next()) {
        const u8 *tile = tile_at(p, blockIdx.x, j.tile + i, K_CHUNKS + V_CHUNKS);
        u32 full_k = shared_address(&room.full_k[stage.at]), full_v = shared_address(&room.full_v[stage.at]);
        wait_for_stage(shared_address(&room.empty_k[stage.at]), stage.phase ^ 1);
        expect_bytes(full_k, K_CHUNKS * PROMPT_CHUNK);
        bulk_copy(shared_address(room.k[stage.at]), tile, K_CHUNKS * PROMPT_CHUNK, full_k);
        wait_for_stage(shared_address(&room.empty_v[stage.at]), stage.phase ^ 1);
        expect_bytes(full_v, V_CHUNKS * PROMPT_CHUNK);
        bulk_copy(shared_address(room.v[stage.at]), tile + K_CHUNKS * PROMPT_CHUNK, V_CHUNKS * PROMPT_CHUNK,
                  full_v);
    }
}

// ---- a warpgroup

template <u32 K_CHUNKS, u32 V_CHUNKS> struct prompt_group {
    static constexpr u32 n_key = K_CHUNKS * 64, n_value = V_CHUNKS * 64, n_x = n_key - 64,
                         n_sums = n_value / 8;
    const struct latent_prompt_params &p;
    const struct prompt_job &j;
    struct prompt_room<K_CHUNKS, V_CHUNKS> &room;
    u32 group, n_rows, position;                         // of the first of its rows
    u32 end;                                             // tiles that it sees
    f32 s[8][4], out[n_sums][4], row_max[2], row_sum[2]; // of rows g and g + 8 of a warp's 16
    u32 weights[4][4];

    __device__ __forceinline__ prompt_group(const struct latent_prompt_params &p, const struct prompt_job &j,
                                            struct prompt_room<K_CHUNKS, V_CHUNKS> &room)
        : p(p), j(j), room(room), group(__shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0))
    {
        n_rows = j.n_rows > group * 64 ? min(j.n_rows - group * 64, 64u) : 0;
        position = j.position + group * 64;
        end = n_rows ? min((position + n_rows - 1) / PROMPT_TILE + 1, j.to) : 0;
    }
    // Row `which` of the thread's two, of the warpgroup's.
    static __device__ __forceinline__ u32 own_row(u32 which)
    {
        return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + 8 * which;
    }
    __device__ __forceinline__ const f32 *query(u32 row) const
    {
        return p.q + ((u64)(j.row + group * 64 + row) * p.args.qk.project.n_heads + blockIdx.x) * n_key;
    }
    __device__ __forceinline__ f32 *value_at(u32 which) const
    {
        u64 row = j.row + group * 64 + own_row(which);
        return p.out + (row * p.args.qk.project.n_heads + blockIdx.x) * n_value + threadIdx.x % 4 * 2;
    }
    __device__ __forceinline__ float2 *state_at(u32 which) const
    {
        u64 row = j.row + group * 64 + own_row(which);
        return (float2 *)p.state + row * p.args.qk.project.n_heads + blockIdx.x;
    }

    __device__ __forceinline__ void load_queries()
    {
        constexpr u32 fours = n_x / 4;
        u8 *q = room.q[group][0];
        u32 thread = threadIdx.x % GROUP_THREADS;

#pragma unroll 8
        for (u32 i = thread; i < 64 * fours; i += GROUP_THREADS) {
            u32 row = i / fours, at = i % fours;
            float4 v = row < n_rows ? *(const float4 *)(query(row) + 4 * at) : make_float4(0, 0, 0, 0);
            *(uint2 *)(q + at / 16 * PROMPT_CHUNK + word_place(row, at % 16 / 2) + at % 2 * 8) =
                make_uint2(two_numbers<false>(v.x, v.y), two_numbers<false>(v.z, v.w));
        }
        for (u32 i = thread; i < 64 * 32; i += GROUP_THREADS)
            rotate(q + (K_CHUNKS - 1) * PROMPT_CHUNK, i / 32, i % 32);
    }
    // A pair of a row's numbers that rotate.
    __device__ __forceinline__ void rotate(u8 *chunk, u32 row, u32 pair) const
    {
        u32 pairs = p.args.qk.project.pairs, first = pairs == ROPE_ADJACENT ? 2 * pair : pair,
            second = pairs == ROPE_ADJACENT ? 2 * pair + 1 : pair + 32;
        f32 x = 0, y = 0;

        if (row < n_rows) {
            const f32 *in = query(row) + n_x;
            float2 angle = ((const float2 *)p.angles)[(u64)(j.row + group * 64 + row) * 32 + pair];
            x = in[first] * angle.x - in[second] * angle.y;
            y = in[second] * angle.x + in[first] * angle.y;
        }
        *(__half *)(chunk + word_place(row, first / 8) + first % 8 * 2) = __float2half_rn(x);
        *(__half *)(chunk + word_place(row, second / 8) + second % 8 * 2) = __float2half_rn(y);
    }

    __device__ __forceinline__ void begin()
    {
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            bool goes_on = !j.begins && own_row(which) < n_rows;
            float2 state = goes_on ? *state_at(which) : make_float2(-INFINITY_F32, 0);
            const f32 *from = value_at(which);
            row_max[which] = state.x;
            row_sum[which] = threadIdx.x % 4 == 0 ? state.y : 0;
#pragma unroll
            for (u32 n = 0; n < n_sums; n++) {
                float2 v = goes_on ? *(const float2 *)(from + 8 * n) : make_float2(0, 0);
                out[n][2 * which] = v.x;
                out[n][2 * which + 1] = v.y;
            }
        }
    }
    __device__ __forceinline__ void put()
    {
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            f32 sum = row_sum[which] + __shfl_xor_sync(~0u, row_sum[which], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            f32 factor = j.ends ? 1 / sum : 1;
            f32 *to = value_at(which);
            if (own_row(which) >= n_rows)
                continue;
            if (!j.ends && threadIdx.x % 4 == 0)
                *state_at(which) = make_float2(row_max[which], sum);
#pragma unroll
            for (u32 n = 0; n < n_sums; n++)
                *(float2 *)(to + 8 * n) =
                    make_float2(out[n][2 * which] * factor, out[n][2 * which + 1] * factor);
        }
    }

    __device__ __forceinline__ void score(u32 stage)
    {
        u64 q = tile_descriptor(shared_address(room.q[group])),
            keys = tile_descriptor(shared_address(room.k[stage]));
#pragma unroll
        for (u32 k = 0; k < n_key / 16; k++) {
            u32 at = k / 4 * (PROMPT_CHUNK >> 4) + k % 4 * NEXT_COLUMNS;
            add_scores(s, q + at, keys + at, k > 0);
        }
        wgmma_commit();
    }
    __device__ __forceinline__ void add(u32 stage)
    {
        u64 values = value_descriptor(shared_address(room.v[stage]));
#pragma unroll
        for (u32 k = 0; k < PROMPT_TILE / 16; k++)
            add_values(out, weights[k], values + k * (16 * 128 >> 4));
        wgmma_commit();
    }

    // Scores become weights, and what was summed before is scaled to them.
    __device__ __forceinline__ void soften(u32 tile)
    {
        f32 scale = p.args.scale * LOG2_E;
        bool masked = (tile + 1) * PROMPT_TILE - 1 > position;

#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u32 last = position + own_row(h);
            f32 most = row_max[h];
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 c = 0; c < 2; c++) {
                    f32 &v = s[n][2 * h + c];
                    if (masked && tile * PROMPT_TILE + 8 * n + threadIdx.x % 4 * 2 + c > last)
                        v = -INFINITY_F32;
                    most = fmaxf(most, v);
                }
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2)); // each row sees the first key: a number
            f32 factor = exp2_of((row_max[h] - most) * scale), base = most * scale;
            row_max[h] = most;
            row_sum[h] *= factor;
            if (__any_sync(~0u, factor != 1))
#pragma unroll
                for (u32 n = 0; n < n_sums; n++) {
                    out[n][2 * h] *= factor;
                    out[n][2 * h + 1] *= factor;
                }
#pragma unroll
            for (u32 n = 0; n < 8; n++) {
                f32 low = exp2_of(fmaf(s[n][2 * h], scale, -base)),
                    high = exp2_of(fmaf(s[n][2 * h + 1], scale, -base));
                row_sum[h] += low + high;
                weights[n / 2][n % 2 * 2 + h] = two_numbers<false>(low, high);
            }
        }
    }

    __device__ __forceinline__ void leave(u64 &empty) const
    {
        if (threadIdx.x % GROUP_THREADS == 0)
            leave_stage(shared_address(&empty));
    }

    // The tile's scores are on their way. MORE: those of the next one follow.
    template <bool MORE> __device__ __forceinline__ void step(struct ring<KV_STAGES> &stage, u32 tile)
    {
        struct ring<KV_STAGES> next = stage;

        next.next();
        wgmma_finish();
        settle(s);
        settle(out);
        leave(room.empty_k[stage.at]);
        if (tile > j.from)
            leave(room.empty_v[next.at]); // of two stages the one before is the next one
        soften(tile);
        wait_for_stage(shared_address(&room.full_v[stage.at]), stage.phase);
        if (MORE)
            wait_for_stage(shared_address(&room.full_k[next.at]), next.phase);
        settle(weights);
        settle(out);
        settle(s);
        wgmma_fence();
        add(stage.at);
        if (MORE)
            score(next.at);
        stage = next;
    }
    __device__ __forceinline__ void run(struct ring<KV_STAGES> &stage)
    {
        u32 tile = j.from;

        wait_for_stage(shared_address(&room.full_k[0]), 0);
        settle(s);
        wgmma_fence();
        score(0);
        for (; tile + 1 < end; tile++)
            step<true>(stage, tile);
        step<false>(stage, tile);
        wgmma_finish();
        settle(out);
        leave(room.empty_v[stage.at ^ 1]);
    }
    __device__ __forceinline__ void run_all()
    {
        struct ring<KV_STAGES> stage;

        begin();
        if (j.from < end) // else an earlier turn had the last keys that it sees
            run(stage);
        for (u32 tile = max(j.from, end); tile < j.to; tile++, stage.next()) { // that the other one sees
            wait_for_stage(shared_address(&room.full_k[stage.at]), stage.phase);
            leave(room.empty_k[stage.at]);
            wait_for_stage(shared_address(&room.full_v[stage.at]), stage.phase);
            leave(room.empty_v[stage.at]);
        }
        put();
    }
};
STATIC_ASSERT(KV_STAGES == 2);

template <u32 K_CHUNKS, u32 V_CHUNKS>
static __device__ __forceinline__ void attend_prompt(const struct latent_prompt_params &p)
{
    extern __shared__ __align__(1024) u8 shared[];
    struct prompt_room<K_CHUNKS, V_CHUNKS> &room = *(struct prompt_room<K_CHUNKS, V_CHUNKS> *)shared;
    struct prompt_job j;

    wait_for_inputs();
    if (!j.find(p))
        return;
    u32 n_groups = j.n_rows > 64 ? 2 : 1;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < KV_STAGES; i++) {
            barrier_begin(shared_address(&room.full_k[i]), 1);
            barrier_begin(shared_address(&room.full_v[i]), 1);
            barrier_begin(shared_address(&room.empty_k[i]), n_groups);
            barrier_begin(shared_address(&room.empty_v[i]), n_groups);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= N_GROUPS * GROUP_THREADS) {
        give_registers();
        if (threadIdx.x < N_GROUPS * GROUP_THREADS + 32 && elect_one())
            bring_tiles(p, j, room);
        return;
    }
    take_registers();
    struct prompt_group<K_CHUNKS, V_CHUNKS> g(p, j, room);
    if (g.group >= n_groups)
        return;
    g.load_queries();
    show_stores();
    group_sync(g.group);
    g.run_all();
}

#define LATENT_PROMPT_ATTEND(name, K_CHUNKS, V_CHUNKS)                                     \
    extern "C" __global__ void __launch_bounds__(PROMPT_THREADS, 1)                        \
        latent_prompt_attend_##name(const __grid_constant__ struct latent_prompt_params p) \
    {                                                                                      \
        attend_prompt<K_CHUNKS, V_CHUNKS>(p);                                              \
    }
LATENT_PROMPT_ATTEND(256_256, 4, 4) // named by numbers of a key and of a value
LATENT_PROMPT_ATTEND(192_128, 3, 2)
LATENT_PROMPT_ATTEND(128_128, 2, 2)
#endif
