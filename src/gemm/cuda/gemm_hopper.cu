// gemm_hopper.cu - GEMM for Hopper by wgmma: gemm_tma with bf16 weights from shared memory, gemm_hopper with
// weights of any format dequantised into registers.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], then the epilogue (epilogue.cuh).
//
//                          8 to 256 rows of activations (N side)
//                       +----------------------------------------+
//   1 to 3 groups   32  | warpgroup 0: 64 weight rows (M side)   |     stage: 64 columns of activations,
//   of 32 pairs     32  | warpgroup 1                            |            for gemm_tma of the weights too
//                   32  | warpgroup 2                            |     persistent: one block an SM
//                       +----------------------------------------+
//
// Pipeline: warp specialisation. One elected producer thread keeps 2 to 13 stages of shared memory full,
// activations by bulk copies as they lie packed, bf16 weights by TMA tiles; the first weights are requested
// before the activations are ready. Consumer warpgroups wait only at the stages' full barriers, so that one
// stores its results while another multiplies. Weights of other formats are loaded straight into registers
// some steps of 128 columns ahead; four fragments are dequantised while four products run.
// Tile scheduler: stream-K (Osama et al., 2023; stream_k.cuh): whole tiles in waves over the SMs, the tiles
// of the last, partial wave split along k.
// Epilogue: any; gate and up can be written packed for the next product as well (epilogue_pack.cuh).
// Other architectures' images hold no such kernel; gemm_plan.c then takes gemm_many.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/epilogue.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/stream_k.cuh"
#include "gemm/cuda/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { GROUP_PAIRS = 32, GROUP_WEIGHTS = 8192 };

// A kernel of N_GROUPS consumer warpgroups, 32 pairs each. TILES: weights go through shared memory.
// plan_wgmma.c computes the same number of stages.
template <u32 FORMAT, u32 N_ROWS, bool IN_SHARED, u32 N_GROUPS = 2> struct hopper_kernel {
    static constexpr u32 F = FORMAT, ROWS = N_ROWS, GROUPS = N_GROUPS;
    static constexpr u32 consumers = GROUPS * 128, pairs = GROUPS * GROUP_PAIRS;
    static constexpr bool TILES = IN_SHARED, FEW = TILES && ROWS <= 64;
    static constexpr u32 chunk_bytes = (ROWS < PACKED_TILE_ROWS ? ROWS : PACKED_TILE_ROWS) * 128,
                         weights_bytes = TILES ? GROUPS * GROUP_WEIGHTS : 0,
                         stage_bytes = weights_bytes + ROWS * 128,
                         fit = (TILES ? HOPPER_TILES_ROOM : HOPPER_ROOM) / stage_bytes,
                         most = TILES ? HOPPER_MOST_TILE_STAGES : HOPPER_MOST_STAGES,
                         n_stages = fit < most ? fit : most;
    // Stages of weights requested before the rows; more of them would delay many rows.
    static constexpr u32 prefetched = FEW ? n_stages : 2;
    // The share of busy blocks, in percent, from which on the others may idle: splitting tiles takes time
    // too.
    static constexpr u32 full = !TILES ? 85 : GROUPS == 1 ? 70 : 78;
    // Steps of weights in flight to registers.
    static constexpr u32 depth = ROWS == 256 ? 1 : ROWS <= 64 ? 4 : 3;
};

// A lane's part of its two rows of weights: 128 columns dequantised, and the next ones as loaded. Plain
// numbers are not dequantised: each half of them is replaced as soon as it is used, which saves the registers
// of a second copy.
template <class K> struct lane_weights {
    static constexpr u32 F = K::F;
    static constexpr bool plain = F == QUANT_BF16 || F == QUANT_F16;
    struct strip<F> next[K::depth][2];
    struct prepared<F> now[2];
    struct stream_unit stream_unit; // the rest of the unit that is loaded next
    struct pair r;

    __device__ __forceinline__ void find(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        u32 own = threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
        r = pair_find(p, p.first_pair + min(w.first_pair<K>(stream_unit) + own, p.n_pairs - 1), p.mode);
    }
    __device__ __forceinline__ void advance(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        if (++stream_unit.begin < stream_unit.end)
            return;
        if (w.next(stream_unit))
            find(p, w);
        else
            stream_unit.begin--; // a repeated load, without effect
    }
    __device__ __forceinline__ void load(const struct gemm_params &p, struct strip<F> (&to)[2])
    {
        u32 block = stream_unit.begin * 4 + threadIdx.x % 4;
        strip_load<F>(to[0], p.w[r.matrix[0]], r.row[0], block);
        strip_load<F>(to[1], p.w[r.matrix[1]], r.row[1], block);
    }
    template <u32 H> __device__ __forceinline__ void load_half(const struct gemm_params &p)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const struct weight_planes &w = p.w[r.matrix[i]];
            u32 n_blocks = w.n_cols / 32, block = min(stream_unit.begin * 4 + threadIdx.x % 4, n_blocks - 1);
            const uint4 *at = (const uint4 *)w.quants + ((u64)r.row[i] * n_blocks + block) * 4;
            now[i].q[H] = __ldg(at + H);
            now[i].q[2 + H] = __ldg(at + 2 + H);
        }
    }
    __device__ __forceinline__ void begin(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        if (!w.first(stream_unit))
            return;
        find(p, w);
        if constexpr (plain) {
            load_half<0>(p);
            load_half<1>(p);
        } else {
#pragma unroll
            for (u32 i = 0; i < K::depth; i++) {
                load(p, next[i]);
                advance(p, w);
            }
        }
    }
    // Runs before a step's first half. Slot `at` is refilled in place: a move between slots would wait for
    // the load in flight.
    __device__ __forceinline__ void turn(const struct gemm_params &p, const struct tile_scheduler &w, u32 at)
    {
        if constexpr (!plain) {
            strip_prepare<F>(now[0], next[at][0]);
            strip_prepare<F>(now[1], next[at][1]);
            load(p, next[at]);
        }
        advance(p, w);
    }
    // Runs after a range of n_steps, so that the next one begins with slot 0.
    __device__ __forceinline__ void rotate(u32 n_steps)
    {
        for (u32 left = n_steps % K::depth; left > 0; left--) {
            struct strip<F> first[2] = {
                next[0][0], next[0][1]
            };
#pragma unroll
            for (u32 i = 1; i < K::depth; i++) {
                next[i - 1][0] = next[i][0];
                next[i - 1][1] = next[i][1];
            }
            next[K::depth - 1][0] = first[0];
            next[K::depth - 1][1] = first[1];
        }
    }
    template <u32 H> __device__ __forceinline__ void fragments(const struct gemm_params &p, u32 (&a)[4][4])
    {
        fragment<4 * H>(a[0]);
        fragment<4 * H + 1>(a[1]);
        fragment<4 * H + 2>(a[2]);
        fragment<4 * H + 3>(a[3]);
        if constexpr (plain)
            load_half<H>(p);
    }
    template <u32 S> __device__ __forceinline__ void fragment(u32 (&a)[4])
    {
        strip_step<F, S>(now[0], a[0], a[2]);
        strip_step<F, S>(now[1], a[1], a[3]);
    }
};

// The source of the next stage's copies. All divisions are done once per part: the producer has no time for
// them.
template <class K> struct hopper_source {
    struct stream_unit stream_unit;
    const u8 *rows; // of this stage
    u32 stage, end; // 64 columns each
    u32 bytes;      // of rows
    u32 second; // from one chunk of 128 rows to the next one, or 0: its place is then multiplied and ignored
    u32 matrix[K::GROUPS], eight[K::GROUPS], head[K::GROUPS]; // the first pair of each warpgroup
    bool left;

    __device__ __forceinline__ void begin(const struct gemm_params &p, const struct tile_scheduler &w,
                                          const struct tiles_params *tiles)
    {
        if (!left)
            return;
        u32 row = w.first_row<K>(stream_unit), n_stages = p.packed_cols / 64;
        stage = 2 * stream_unit.begin;
        end = 2 * stream_unit.end;
        rows = (K::TILES ? p.packed_bf16 : p.packed_mma) +
               ((u64)(row / PACKED_TILE_ROWS) * n_stages + stage) * PACKED_TILE_ROWS * 128 +
               row % PACKED_TILE_ROWS * 128;
        second =
            K::ROWS > PACKED_TILE_ROWS && row + PACKED_TILE_ROWS < w.n_rows ? n_stages * K::chunk_bytes : 0;
        bytes = (second ? 2 : 1) * K::chunk_bytes;
        if constexpr (K::TILES)
            find_pairs(w, *tiles);
    }
    __device__ __forceinline__ void find_pairs(const struct tile_scheduler &w, const struct tiles_params &t)
    {
        const struct gemm_params &p = t.pairs;
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            u32 m = 0, pair = p.first_pair + min(w.first_pair<K>(stream_unit) + group * GROUP_PAIRS,
                                                 (p.n_pairs - 1) / 32 * 32);
            if (p.mode >= EPILOGUE_ROPE_STORE)
                for (; m < 2 && pair >= p.w[m].n_rows / 2; m++)
                    pair -= p.w[m].n_rows / 2;
            matrix[group] = m;
            eight[group] = pair / 8 % t.eights[m];
            head[group] = pair / 8 / t.eights[m];
        }
    }
    __device__ __forceinline__ void next(const struct gemm_params &p, const struct tile_scheduler &w,
                                         const struct tiles_params *tiles)
    {
        rows += PACKED_TILE_ROWS * 128;
        if (++stage < end)
            return;
        left = w.next(stream_unit);
        begin(p, w, tiles);
    }
    __device__ __forceinline__ void copy_rows(u32 to, u32 full) const
    {
        bulk_copy(to, rows, K::chunk_bytes, full);
        if (second)
            bulk_copy(to + K::chunk_bytes, rows + second, K::chunk_bytes, full);
    }
    __device__ __forceinline__ void copy_weights(const struct tiles_params &t, u32 to, u32 full,
                                                 u64 policy) const
    {
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            const u32 at[3] = { stage * 64, eight[group], head[group] };
            box_copy(to + group * GROUP_WEIGHTS, &t.w[matrix[group]], full, at, policy);
        }
    }
};

// tiles: NULL where the consumers load the weights.
template <class K>
static __device__ __forceinline__ void produce(const struct gemm_params &p, const struct tiles_params *tiles,
                                               struct pipe<K> pipe, const struct tile_scheduler &w)
{
    u64 policy = cache_policy(w.n_row_tiles == 1);
    struct hopper_source<K> from;

    from.left = w.first(from.stream_unit);
    from.begin(p, w, tiles);
    if constexpr (K::TILES) {
        struct hopper_source<K> weights = from;
        auto prefetched = pipe;
        for (u32 i = 0; i < K::prefetched && weights.left;
             i++, weights.next(p, w, tiles), prefetched.next()) {
            expect_bytes(prefetched.full + 8 * prefetched.at, K::weights_bytes + weights.bytes);
            weights.copy_weights(*tiles, prefetched.stage(), prefetched.full + 8 * prefetched.at, policy);
        }
    }
    wait_for_inputs();
    for (u32 i = 0; from.left; i++, from.next(p, w, tiles), pipe.next()) {
        u32 full = pipe.full + 8 * pipe.at;
        if (!K::TILES || i >= K::prefetched) {
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            expect_bytes(full, K::weights_bytes + from.bytes);
            if constexpr (K::TILES)
                from.copy_weights(*tiles, pipe.stage(), full, policy);
        }
        from.copy_rows(pipe.stage() + K::weights_bytes, full);
    }
}

template <class K> struct hopper_products { // of a warpgroup
    f32 d[K::ROWS / 8][4];
    u32 before; // the stage that running products still read, or ~0

    __device__ __forceinline__ void clear()
    {
        before = ~0u;
#pragma unroll
        for (u32 n = 0; n < K::ROWS / 8; n++) {
            d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
            // Before the first fence.
            asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]));
        }
    }
    // The products just started continue while the next are prepared; earlier ones have finished.
    __device__ __forceinline__ void turn(struct pipe<K> &pipe)
    {
        wgmma_order();
        if (before != ~0u && threadIdx.x % 32 == 0)
            leave_stage(pipe.empty + 8 * before);
        before = pipe.at;
        pipe.next();
    }
    // 64 columns with weights from registers.
    __device__ __forceinline__ void multiply(struct pipe<K> &pipe, u32 (&a)[4][4])
    {
        wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
        u64 rows = tile_descriptor(pipe.stage());
        wgmma_fence(a);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, a[k], rows + NEXT_COLUMNS * k);
        turn(pipe);
    }
    // The same with weights from the stage in shared memory.
    __device__ __forceinline__ void multiply(struct pipe<K> &pipe, u32 warpgroup)
    {
        wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
        u64 weights = tile_descriptor(pipe.stage() + warpgroup * GROUP_WEIGHTS),
            rows = tile_descriptor(pipe.stage() + K::weights_bytes);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, weights + NEXT_COLUMNS * k, rows + NEXT_COLUMNS * k);
        turn(pipe);
    }
    __device__ __forceinline__ void finish(const struct pipe<K> &pipe)
    {
        wgmma_finish();
        if (threadIdx.x % 32 == 0)
            leave_stage(pipe.empty + 8 * before);
    }
};

// The epilogue of a tile. Each thread holds, of its pair, rows 2 t and 2 t + 1 of every eight.
template <class K> struct hopper_epilogue {
    static constexpr u32 F = K::F, ROWS = K::ROWS;
    const struct gemm_params &p;
    const struct pair &r;
    f32 (&d)[ROWS / 8][4];
    u32 first_row;     // of this thread: first_row + 8 n and the one after
    u32 from, n_ended; // rows that it finishes
    u32 swapped;       // gate's sum is the second of the pair

    static constexpr f32 back = strip<F>::scale_back;
    static constexpr bool spare =
        K::GROUPS == 2 && (K::TILES ? ROWS != 64 : ROWS == 128 && !lane_weights<K>::plain); // saves registers
    static constexpr u32 most = K::GROUPS == 3 ? 2
                                : spare        ? 8
                                               : 4,
                         batch = most < ROWS / 8 ? most : ROWS / 8; // rows at a time, in eights

    __device__ __forceinline__ u32 row(u32 n, u32 which) const
    {
        return first_row + 8 * n + which;
    }
    __device__ __forceinline__ bool ends(u32 at) const
    {
        return at - from < n_ended;
    }
    // Loads the operands of the next rows in place of the finished ones. Long epilogues are loops over a
    // window, since their instructions for all rows in a line would not stay in the cache.
    static constexpr u32 window = ROWS / 8 < 8 ? ROWS / 8 : 8;
    __device__ __forceinline__ void forward()
    {
        first_row += 8 * window;
#pragma unroll
        for (u32 n = 0; n + window < ROWS / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                d[n][i] = d[n + window][i];
    }

    // Two neighbouring outputs a row; their operands are loaded some rows at a time.
    __device__ __forceinline__ void plain()
    {
        f32 *out = p.out[0] + r.row[0];
        const f32 *add = p.add ? p.add + r.row[0] : nullptr, *bias = p.bias[0];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
#pragma unroll
        for (u32 n = 0; n < ROWS / 8; n += batch) {
            float2 in[batch][2];
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                in[i / 2][i % 2] =
                    add && ends(at) ? *(const float2 *)(add + (u64)at * p.out_stride[0]) : make_float2(0, 0);
            }
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                const f32 *v = d[n + i / 2] + i % 2;
                if (ends(at))
                    *(float2 *)(out + (u64)at * p.out_stride[0]) = make_float2(
                        v[0] * back + b.x + in[i / 2][i % 2].x, v[2] * back + b.y + in[i / 2][i % 2].y);
            }
        }
    }

    __device__ __forceinline__ void gated()
    {
        f32 *out = p.out[0] + r.row[0];
#pragma unroll 1
        for (u32 first = 0; first < ROWS / 8; first += window, forward())
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (ends(row(n, i))) {
                        f32 gate = swapped ? d[n][2 + i] : d[n][i], up = swapped ? d[n][i] : d[n][2 + i];
                        f32 v = activation_of(p.activation, gate * back) * (up * back);
                        out[(u64)row(n, i) * p.out_stride[0]] = v;
                        if (p.packed_out.at)
                            pack_put(p.packed_out, row(n, i), r.row[0], v);
                    }
    }

    // Two neighbouring outputs a row that are activated, or packed; nothing is added to them.
    __device__ __forceinline__ void handed_on()
    {
        f32 *out = p.out[0];
        const f32 *bias = p.bias[0];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
#pragma unroll 1
        for (u32 first = 0; first < ROWS / 8; first += window, forward())
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (ends(row(n, i))) {
                        float2 v = make_float2(d[n][i] * back + b.x, d[n][2 + i] * back + b.y);
                        if (p.mode == EPILOGUE_ACTIVATED)
                            v = make_float2(activation_of(p.activation, v.x),
                                            activation_of(p.activation, v.y));
                        if (out)
                            *(float2 *)(out + (u64)row(n, i) * p.out_stride[0] + r.row[0]) = v;
                        if (p.packed_out.at)
                            pack_put(p.packed_out, row(n, i), r.row[0], v.x, v.y);
                    }
    }

    // q, k or v, with the angles and places of some rows loaded at a time.
    __device__ __forceinline__ void rope()
    {
        constexpr u32 eights = batch > 1 ? batch / 2 : 1;
        u32 m = r.matrix[0], head_dim = p.rope.pages.head_dim;
        bool waves = r.turn != ~0u, keeps = m > 0 && p.mode == EPILOGUE_ROPE_STORE;
        const f32 *bias = p.bias[m];
        f32 *out = p.out[m];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
        // Offset from a page's first number to this head's and dim's; pages are fp16 here.
        u32 from_page[2], token_stride = m == 1 ? 1 : head_dim,
                          page_numbers = p.rope.pages.n_kv_heads * PAGE_TOKENS * head_dim;
        for (u32 k = 0; k < 2; k++)
            from_page[k] = r.row[k] / head_dim * PAGE_TOKENS * head_dim +
                           r.row[k] % head_dim * (m == 1 ? PAGE_TOKENS : 1);
        __half *pages = (__half *)(m == 1 ? p.k_pages : p.v_pages);
#pragma unroll 1
        for (u32 first = 0; first < ROWS / 8; first += window, forward())
#pragma unroll
            for (u32 n = 0; n < window; n += eights) {
                float2 angle[2 * eights];
                u32 position[2 * eights], page[2 * eights];
#pragma unroll
                for (u32 i = 0; i < 2 * eights; i++) {
                    u32 at = min(max(row(n + i / 2, i % 2), from), from + n_ended - 1);
                    angle[i] = waves ? *(const float2 *)(p.angles + (u64)at * p.rope.n_dims + r.turn)
                                     : make_float2(1, 0);
                    position[i] = keeps ? step_positions(p.step)[at] : 0;
                    page[i] =
                        keeps ? step_slots(p.step)[at] * p.rope.pages.max_pages + position[i] / PAGE_TOKENS
                              : 0;
                }
#pragma unroll
                for (u32 i = 0; i < 2 * eights; i++)
                    page[i] = keeps ? p.table[page[i]] : 0;
#pragma unroll
                for (u32 i = 0; i < 2 * eights; i++) {
                    const f32 *v = d[n + i / 2] + i % 2;
                    f32 x = v[0] * back + b.x, y = v[2] * back + b.y;
                    f32 sums[2] = { x * angle[i].x - y * angle[i].y, y * angle[i].x + x * angle[i].y };
                    u32 at = row(n + i / 2, i % 2);
                    if (!ends(at))
                        continue;
#pragma unroll
                    for (u32 k = 0; k < 2; k++)
                        if (keeps)
                            pages[(u64)page[i] * page_numbers + from_page[k] +
                                  position[i] % PAGE_TOKENS * token_stride] = __float2half_rn(sums[k]);
                        else
                            out[(u64)at * p.out_stride[m] + r.row[k]] = sums[k];
                }
            }
    }

    // One output at a time: rows of an odd number of outputs, and gate over up.
    __device__ __forceinline__ void single()
    {
        const f32 *bias = p.bias[0];
        f32 b[2] = { bias ? bias[r.row[0]] : 0, bias ? bias[r.row[1]] : 0 };
#pragma unroll 1
        for (u32 first = 0; first < ROWS / 8; first += window, forward())
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u64 at = (u64)row(n, i % 2) * p.out_stride[0] + r.row[i / 2];
                    if (!ends(row(n, i % 2)) || (i / 2 && !r.second))
                        continue;
                    f32 v = d[n][i] * back + b[i / 2] + (p.add ? p.add[at] : 0);
                    if (p.mode == EPILOGUE_ACTIVATED)
                        v = activation_of(p.activation, v);
                    p.out[0][at] =
                        p.mode == EPILOGUE_GATE_OVER ? activation_of(p.activation, v) * p.out[0][at] : v;
                }
    }

    __device__ __forceinline__ void all()
    {
        if (p.mode == EPILOGUE_GATED)
            gated();
        else if (p.mode >= EPILOGUE_ROPE_STORE)
            rope();
        else if ((p.mode == EPILOGUE_ACTIVATED || p.packed_out.at) && p.out_stride[0] % 2 == 0)
            handed_on();
        else if (p.mode == EPILOGUE_LINEAR && p.out_stride[0] % 2 == 0)
            plain();
        else
            single();
    }
};

// The epilogue of a part's sums.
template <class K> struct part_epilogue {
    struct reduction<K> reduction;
    struct pair pair;
    u32 warpgroup, first_row, own;

    __device__ __forceinline__ part_epilogue(const struct gemm_params &p, const struct tile_scheduler &w,
                                             const struct stream_unit &s)
        : reduction(w, s)
    {
        warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
        first_row = w.first_row<K>(s);
        own = w.first_pair<K>(s) + threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
        pair = pair_find(p, p.first_pair + min(own, p.n_pairs - 1), p.mode);
    }
    // Runs before the sums are there, which all blocks would wait for otherwise. Loads the parameters into
    // their cache.
    __device__ __forceinline__ void find_now(const struct gemm_params &p)
    {
        asm volatile(""
                     : "+r"(reduction.first), "+r"(reduction.n), "+r"(reduction.me), "+r"(first_row),
                       "+r"(pair.row[0]), "+r"(pair.row[1]));
        asm volatile("" ::"r"(p.mode), "r"(p.out_stride[0]), "l"(p.out[0]), "l"(p.bias[0]), "l"(p.add),
                     "l"(p.partial));
    }
    __device__ __forceinline__ void run(const struct gemm_params &p, const struct tile_scheduler &w,
                                        f32 (&d)[K::ROWS / 8][4], u32 swapped)
    {
        u32 from = first_row, end = first_row + K::ROWS;

        if (reduction.n > 1) {
            reduction.store_partial(p, warpgroup, d);
            if (!reduction.ends(reduction.me))
                return;
            reduction.take_over(p, warpgroup, d);
            from = first_row + reduction.begin(reduction.me) * 8;
            end = first_row + reduction.begin(reduction.me + 1) * 8;
        }
        if (own >= p.n_pairs || from >= w.n_rows)
            return;
        struct hopper_epilogue<K> hopper_epilogue = {
            p, pair, d, first_row + threadIdx.x % 4 * 2, from, min(end, w.n_rows) - from, swapped
        };
        hopper_epilogue.all();
    }
};

// 128 columns with the weights of slot `at`.
template <class K>
static __device__ __forceinline__ void
multiply_step(const struct gemm_params &p, const struct tile_scheduler &tile_scheduler, u32 at,
              struct lane_weights<K> &w, struct hopper_products<K> &x, struct pipe<K> &pipe)
{
    u32 a[2][4][4];

    w.turn(p, tile_scheduler, at);
    w.template fragments<0>(p, a[0]);
    x.multiply(pipe, a[0]);
    w.template fragments<1>(p, a[1]);
    x.multiply(pipe, a[1]);
}

template <class K>
static __device__ __forceinline__ void multiply_part(const struct gemm_params &p,
                                                     const struct tile_scheduler &tile_scheduler,
                                                     const struct stream_unit &s, struct lane_weights<K> &w,
                                                     struct hopper_products<K> &x, struct pipe<K> &pipe)
{
    u32 warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);

    x.clear();
    if constexpr (K::TILES) {
        for (u32 step = s.begin; step < s.end; step++) {
            x.multiply(pipe, warpgroup);
            x.multiply(pipe, warpgroup);
        }
    } else {
        for (u32 step = s.begin; step < s.end; step++) {
            multiply_step(p, tile_scheduler, 0, w, x, pipe);
#pragma unroll
            for (u32 at = 1; at < K::depth; at++)
                if (++step < s.end)
                    multiply_step(p, tile_scheduler, at, w, x, pipe);
        }
    }
    x.finish(pipe);
}

template <class K>
static __device__ __forceinline__ void consume(const struct gemm_params &p,
                                               const struct tile_scheduler &tile_scheduler,
                                               struct pipe<K> pipe, u32 swapped)
{
    struct lane_weights<K> w;
    struct hopper_products<K> x;
    struct stream_unit s;

    if constexpr (!K::TILES)
        w.begin(p, tile_scheduler);
    wait_for_inputs();
    for (bool left = tile_scheduler.first(s); left; left = tile_scheduler.next(s))
        if constexpr (K::TILES) { // saves registers
            struct part_epilogue<K> end(p, tile_scheduler, s);
            end.find_now(p);
            multiply_part(p, tile_scheduler, s, w, x, pipe);
            end.run(p, tile_scheduler, x.d, swapped);
        } else {
            multiply_part(p, tile_scheduler, s, w, x, pipe);
            struct part_epilogue<K> end(p, tile_scheduler, s);
            end.run(p, tile_scheduler, x.d, swapped);
            if constexpr (!w.plain)
                w.rotate(s.end - s.begin);
        }
}

template <class K>
static __device__ __forceinline__ void gemm_hopper(const struct gemm_params &p,
                                                   const struct tiles_params *tiles)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pipe<K> pipe = {
        0
    };
    struct tile_scheduler &w = *(struct tile_scheduler *)(shared + K::n_stages * (K::stage_bytes + 16));
    bool fills_waves = __shfl_sync(~0u, threadIdx.x / 32, 0) == K::consumers / 32;

    pipe.data = shared_address(shared);
    pipe.full = pipe.data + K::n_stages * K::stage_bytes;
    pipe.empty = pipe.full + 8 * K::n_stages;
    if (fills_waves && elect_one()) {
        if constexpr (K::TILES)
            prefetch_view(&tiles->w[0]);
        w = tile_scheduler_of<K>(p); // of the number of rows, which is older than any launch of this step
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, K::consumers / 32);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= K::consumers) {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 56
                                                                     : K::TILES     ? 40
                                                                                    : 24));
        if (fills_waves && elect_one())
            produce<K>(p, tiles, pipe, w);
        else
            wait_for_inputs();
    } else {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 152
                                                                     : K::TILES     ? 232
                                                                                    : 240));
        consume<K>(p, w, pipe, K::TILES ? tiles->swapped : 0);
    }
}

#define GEMM_HOPPER(name, F, ROWS)                                                \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1)            \
        gemm_hopper_##ROWS##_##name(const __grid_constant__ struct gemm_params p) \
    {                                                                             \
        gemm_hopper<hopper_kernel<F, ROWS, false>>(p, nullptr);                   \
    }
#define GEMM_HOPPER_SIZES(NAME, name, with) \
    GEMM_HOPPER(name, QUANT_##NAME, 32)     \
    GEMM_HOPPER(name, QUANT_##NAME, 64)     \
    GEMM_HOPPER(name, QUANT_##NAME, 128)    \
    GEMM_HOPPER(name, QUANT_##NAME, 256)
QUANT_HALF_FORMATS(GEMM_HOPPER_SIZES, )
QUANT_BLOCK_FORMATS(GEMM_HOPPER_SIZES, )

#define GEMM_TILES(name, GROUPS, ROWS)                                           \
    extern "C" __global__ void __launch_bounds__(                                \
        ROWS <= 64 ? HOPPER_FEW_THREADS(GROUPS) : HOPPER_THREADS(GROUPS), 1)     \
        gemm_tma_##name(const __grid_constant__ struct tiles_params t)           \
    {                                                                            \
        gemm_hopper<hopper_kernel<QUANT_BF16, ROWS, true, GROUPS>>(t.pairs, &t); \
    }
GEMM_TILES(8, 2, 8)
GEMM_TILES(16, 2, 16)
GEMM_TILES(32, 2, 32)
GEMM_TILES(64, 2, 64)
GEMM_TILES(64_half, 1, 64)
GEMM_TILES(128, 2, 128)
GEMM_TILES(128_wide, 3, 128)
GEMM_TILES(256, 2, 256)
#endif
