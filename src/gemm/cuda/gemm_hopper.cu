// gemm_hopper.cu - products for Hopper: wgmma on weights that are copied into shared memory or dequantised into registers.
//
// A tile is 32, 64 or 96 pairs of weight rows, the M side of the instruction, by 8 to 256 rows of activations. One thread keeps a belt
// of stages full: 64 columns of activations, stored by ready.cu exactly as shared memory wants them, and of bf16 weights, in boxes by the
// copy engine; the first weights are on their way before the activations are ready. It has some 500 cycles for a stage. One to three
// warpgroups take 32 pairs each. Other weights they read straight from memory some steps of 128 columns ahead, and dequantise four
// fragments while four products run.
// They meet only through the belt, so that one's results are stored while the other still multiplies.
// One block an SM walks over the tiles; those of an uneven last turn are shared (shared_tiles.cuh).
// The image of another architecture holds no such kernel; pairs.c then takes gemm_many.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/pairs.cuh"
#include "gemm/cuda/ready_next.cuh"
#include "gemm/cuda/shared_tiles.cuh"
#include "gemm/cuda/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { GROUP_PAIRS = 32, GROUP_WEIGHTS = 8192 };

// A kernel: of so many warpgroups that multiply, each 32 pairs. TILES says that weights travel through shared memory. pairs_tiles.c counts
// the stages as well.
template <u32 FORMAT, u32 N_ROWS, bool IN_SHARED, u32 N_GROUPS = 2> struct kernel {
    static constexpr u32 F = FORMAT, ROWS = N_ROWS, GROUPS = N_GROUPS;
    static constexpr u32 consumers = GROUPS * 128, pairs = GROUPS * GROUP_PAIRS;
    static constexpr bool TILES = IN_SHARED, FEW = TILES && ROWS <= 64;
    static constexpr u32 chunk_bytes = (ROWS < READY_ROWS ? ROWS : READY_ROWS) * 128,
                         weights_bytes = TILES ? GROUPS * GROUP_WEIGHTS : 0, stage_bytes = weights_bytes + ROWS * 128,
                         fit = (TILES ? HOPPER_TILES_ROOM : HOPPER_ROOM) / stage_bytes,
                         most = TILES ? HOPPER_MOST_TILE_STAGES : HOPPER_MOST_STAGES, n_stages = fit < most ? fit : most;
    // Of weights, asked for before the rows: many rows would wait behind them.
    static constexpr u32 early = FEW ? n_stages : 2;
    // With so many blocks at work, in per cent, the others may be idle: sharing tiles takes time too.
    static constexpr u32 full = !TILES ? 85 : GROUPS == 1 ? 70 : 78;
    static constexpr u32 depth = ROWS == 256 ? 1 : ROWS <= 64 ? 4 : 3; // steps of weights in registers on their way
};

// What a lane holds of its two rows of weights: 128 columns made ready, and the next ones as loaded. Plain numbers need no making
// ready: each half of them is replaced as soon as it is used, which saves the registers of a second copy.
template <class K> struct lane_weights {
    static constexpr u32 F = K::F;
    static constexpr bool plain = F == PLANES_BF16 || F == PLANES_F16;
    struct strip<F> next[K::depth][2];
    struct prepared<F> now[2];
    struct share share; // what is loaded next: the rest of it
    struct pair r;

    __device__ __forceinline__ void find(const struct pairs_params &p, const struct walk &w)
    {
        u32 own = threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
        r = pair_find(p, p.first_pair + min(w.first_pair<K>(share) + own, p.n_pairs - 1), p.mode);
    }
    __device__ __forceinline__ void advance(const struct pairs_params &p, const struct walk &w)
    {
        if (++share.begin < share.end)
            return;
        if (w.next(share))
            find(p, w);
        else
            share.begin--; // loaded for nothing
    }
    __device__ __forceinline__ void load(const struct pairs_params &p, struct strip<F> (&to)[2])
    {
        u32 block = share.begin * 4 + threadIdx.x % 4;
        strip_load<F>(to[0], p.w[r.matrix[0]], r.row[0], block);
        strip_load<F>(to[1], p.w[r.matrix[1]], r.row[1], block);
    }
    template <u32 H> __device__ __forceinline__ void load_half(const struct pairs_params &p)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const struct planes &w = p.w[r.matrix[i]];
            u32 n_blocks = w.n_cols / 32, block = min(share.begin * 4 + threadIdx.x % 4, n_blocks - 1);
            const uint4 *at = (const uint4 *)w.quants + ((u64)r.row[i] * n_blocks + block) * 4;
            now[i].q[H] = __ldg(at + H);
            now[i].q[2 + H] = __ldg(at + 2 + H);
        }
    }
    __device__ __forceinline__ void begin(const struct pairs_params &p, const struct walk &w)
    {
        if (!w.first(share))
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
    // Before a step's first half. Slot `at` is refilled in place: a move between slots would wait for the load in flight.
    __device__ __forceinline__ void turn(const struct pairs_params &p, const struct walk &w, u32 at)
    {
        if constexpr (!plain) {
            strip_prepare<F>(now[0], next[at][0]);
            strip_prepare<F>(now[1], next[at][1]);
            load(p, next[at]);
        }
        advance(p, w);
    }
    // After a share of so many steps, so that the next one begins with slot 0.
    __device__ __forceinline__ void rotate(u32 n_steps)
    {
        for (u32 left = n_steps % K::depth; left > 0; left--) {
            struct strip<F> first[2] = { next[0][0], next[0][1] };
#pragma unroll
            for (u32 i = 1; i < K::depth; i++) {
                next[i - 1][0] = next[i][0];
                next[i - 1][1] = next[i][1];
            }
            next[K::depth - 1][0] = first[0];
            next[K::depth - 1][1] = first[1];
        }
    }
    template <u32 H> __device__ __forceinline__ void fragments(const struct pairs_params &p, u32 (&a)[4][4])
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

// Where the next stage's copies come from. All divisions are made once for a share: the thread that fills the belt has no time for them.
template <class K> struct source {
    struct share share;
    const u8 *rows; // of this stage
    u32 stage, end; // 64 columns each
    u32 bytes;      // of rows
    u32 second;     // from one chunk of 128 rows to the next one, or 0: what lies in its place is multiplied for nothing
    u32 matrix[K::GROUPS], eight[K::GROUPS], head[K::GROUPS]; // of each warpgroup's pairs
    bool left;

    __device__ __forceinline__ void begin(const struct pairs_params &p, const struct walk &w, const struct tiles_params *tiles)
    {
        if (!left)
            return;
        u32 row = w.first_row<K>(share), n_stages = p.ready_cols / 64;
        stage = 2 * share.begin;
        end = 2 * share.end;
        rows = (K::TILES ? p.ready_bf16 : p.ready) + ((u64)(row / READY_ROWS) * n_stages + stage) * READY_ROWS * 128 +
               row % READY_ROWS * 128;
        second = K::ROWS > READY_ROWS && row + READY_ROWS < w.n_rows ? n_stages * K::chunk_bytes : 0;
        bytes = (second ? 2 : 1) * K::chunk_bytes;
        if constexpr (K::TILES)
            find_pairs(w, *tiles);
    }
    __device__ __forceinline__ void find_pairs(const struct walk &w, const struct tiles_params &t)
    {
        const struct pairs_params &p = t.pairs;
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            u32 m = 0, pair = p.first_pair + min(w.first_pair<K>(share) + group * GROUP_PAIRS, (p.n_pairs - 1) / 32 * 32);
            if (p.mode >= PAIRS_ROPE)
                for (; m < 2 && pair >= p.w[m].n_rows / 2; m++)
                    pair -= p.w[m].n_rows / 2;
            matrix[group] = m;
            eight[group] = pair / 8 % t.eights[m];
            head[group] = pair / 8 / t.eights[m];
        }
    }
    __device__ __forceinline__ void next(const struct pairs_params &p, const struct walk &w, const struct tiles_params *tiles)
    {
        rows += READY_ROWS * 128;
        if (++stage < end)
            return;
        left = w.next(share);
        begin(p, w, tiles);
    }
    __device__ __forceinline__ void copy_rows(u32 to, u32 full) const
    {
        bulk_copy(to, rows, K::chunk_bytes, full);
        if (second)
            bulk_copy(to + K::chunk_bytes, rows + second, K::chunk_bytes, full);
    }
    __device__ __forceinline__ void copy_weights(const struct tiles_params &t, u32 to, u32 full, u64 policy) const
    {
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            const u32 at[3] = { stage * 64, eight[group], head[group] };
            box_copy(to + group * GROUP_WEIGHTS, &t.w[matrix[group]], full, at, policy);
        }
    }
};

// tiles: NULL where consumers read the weights.
template <class K>
static __device__ __forceinline__ void produce(const struct pairs_params &p, const struct tiles_params *tiles,
                                               struct belt<K> belt, const struct walk &w)
{
    u64 policy = cache_policy(w.n_row_tiles == 1);
    struct source<K> from;

    from.left = w.first(from.share);
    from.begin(p, w, tiles);
    if constexpr (K::TILES) {
        struct source<K> weights = from;
        auto early = belt;
        for (u32 i = 0; i < K::early && weights.left; i++, weights.next(p, w, tiles), early.next()) {
            expect_bytes(early.full + 8 * early.at, K::weights_bytes + weights.bytes);
            weights.copy_weights(*tiles, early.stage(), early.full + 8 * early.at, policy);
        }
    }
    wait_for_inputs();
    for (u32 i = 0; from.left; i++, from.next(p, w, tiles), belt.next()) {
        u32 full = belt.full + 8 * belt.at;
        if (!K::TILES || i >= K::early) {
            wait_for_stage(belt.empty + 8 * belt.at, belt.phase ^ 1);
            expect_bytes(full, K::weights_bytes + from.bytes);
            if constexpr (K::TILES)
                from.copy_weights(*tiles, belt.stage(), full, policy);
        }
        from.copy_rows(belt.stage() + K::weights_bytes, full);
    }
}

template <class K> struct products { // of a warpgroup
    f32 d[K::ROWS / 8][4];
    u32 before; // the stage that products in flight still read, or ~0

    __device__ __forceinline__ void clear()
    {
        before = ~0u;
#pragma unroll
        for (u32 n = 0; n < K::ROWS / 8; n++) {
            d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
            asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])); // before the first fence
        }
    }
    // The products just begun run on while the next are prepared; those before them are done.
    __device__ __forceinline__ void turn(struct belt<K> &belt)
    {
        wgmma_turn();
        if (before != ~0u && threadIdx.x % 32 == 0)
            leave_stage(belt.empty + 8 * before);
        before = belt.at;
        belt.next();
    }
    // 64 columns with weights from registers.
    __device__ __forceinline__ void multiply(struct belt<K> &belt, u32 (&a)[4][4])
    {
        wait_for_stage(belt.full + 8 * belt.at, belt.phase);
        u64 rows = tile_descriptor(belt.stage());
        wgmma_fence(a);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, a[k], rows + NEXT_COLUMNS * k);
        turn(belt);
    }
    // The same with weights from the stage.
    __device__ __forceinline__ void multiply(struct belt<K> &belt, u32 warpgroup)
    {
        wait_for_stage(belt.full + 8 * belt.at, belt.phase);
        u64 weights = tile_descriptor(belt.stage() + warpgroup * GROUP_WEIGHTS),
            rows = tile_descriptor(belt.stage() + K::weights_bytes);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, weights + NEXT_COLUMNS * k, rows + NEXT_COLUMNS * k);
        turn(belt);
    }
    __device__ __forceinline__ void finish(const struct belt<K> &belt)
    {
        wgmma_finish();
        if (threadIdx.x % 32 == 0)
            leave_stage(belt.empty + 8 * before);
    }
};

// The ends of a tile. Each thread holds, of its pair, rows 2 t and 2 t + 1 of every eight.
template <class K> struct ending {
    static constexpr u32 F = K::F, ROWS = K::ROWS;
    const struct pairs_params &p;
    const struct pair &r;
    f32 (&d)[ROWS / 8][4];
    u32 first_row;     // of this thread: first_row + 8 n and the one after
    u32 from, n_ended; // rows that it ends
    u32 swapped;       // gate's sum is the second of the pair

    static constexpr f32 back = strip<F>::scale_back;
    static constexpr bool spare = K::GROUPS == 2 && (K::TILES ? ROWS != 64 : ROWS == 128 && !lane_weights<K>::plain); // registers
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
    // The next rows take the place of those that are ended: long endings are loops over a window, since their instructions for all rows
    // in a line would not stay in the cache.
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

    // Two neighbouring outputs a row, with what is added to them loaded some rows at a time.
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
                in[i / 2][i % 2] = add && ends(at) ? *(const float2 *)(add + (u64)at * p.out_stride[0]) : make_float2(0, 0);
            }
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                const f32 *v = d[n + i / 2] + i % 2;
                if (ends(at))
                    *(float2 *)(out + (u64)at * p.out_stride[0]) =
                        make_float2(v[0] * back + b.x + in[i / 2][i % 2].x, v[2] * back + b.y + in[i / 2][i % 2].y);
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
                        if (p.next.at)
                            put_next(p.next, row(n, i), r.row[0], v);
                    }
    }

    // q, k or v, with the angles and places of some rows loaded at a time.
    __device__ __forceinline__ void rope()
    {
        constexpr u32 eights = batch > 1 ? batch / 2 : 1;
        u32 m = r.matrix[0], head_dim = p.rope.pages.head_dim;
        bool turns = r.turn != ~0u, keeps = m > 0 && p.mode == PAIRS_ROPE;
        const f32 *bias = p.bias[m];
        f32 *out = p.out[m];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
        // From a page's first number to this head's and dim's; pages are fp16 here.
        u32 from_page[2], token_stride = m == 1 ? 1 : head_dim, page_numbers = p.rope.pages.n_kv_heads * PAGE_TOKENS * head_dim;
        for (u32 k = 0; k < 2; k++)
            from_page[k] = r.row[k] / head_dim * PAGE_TOKENS * head_dim + r.row[k] % head_dim * (m == 1 ? PAGE_TOKENS : 1);
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
                    angle[i] = turns ? *(const float2 *)(p.angles + (u64)at * p.rope.n_dims + r.turn) : make_float2(1, 0);
                    position[i] = keeps ? step_positions(p.step)[at] : 0;
                    page[i] = keeps ? step_slots(p.step)[at] * p.rope.pages.max_pages + position[i] / PAGE_TOKENS : 0;
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
                            pages[(u64)page[i] * page_numbers + from_page[k] + position[i] % PAGE_TOKENS * token_stride] =
                                __float2half_rn(sums[k]);
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
                    p.out[0][at] = p.mode == PAIRS_GATE_OVER ? activation_of(p.activation, v) * p.out[0][at] : v;
                }
    }

    __device__ __forceinline__ void all()
    {
        if (p.mode == PAIRS_GATED)
            gated();
        else if (p.mode >= PAIRS_ROPE)
            rope();
        else if (p.mode == PAIRS_PLAIN && p.out_stride[0] % 2 == 0)
            plain();
        else
            single();
    }
};

// What becomes of a share's sums.
template <class K> struct share_end {
    struct meeting<K> meeting;
    struct pair pair;
    u32 warpgroup, first_row, own;

    __device__ __forceinline__ share_end(const struct pairs_params &p, const struct walk &w, const struct share &s)
        : meeting(w, s)
    {
        warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
        first_row = w.first_row<K>(s);
        own = w.first_pair<K>(s) + threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
        pair = pair_find(p, p.first_pair + min(own, p.n_pairs - 1), p.mode);
    }
    // Before the sums are there, behind which all would wait for it. The parameters come into their cache.
    __device__ __forceinline__ void find_now(const struct pairs_params &p)
    {
        asm volatile(""
                     : "+r"(meeting.first), "+r"(meeting.n), "+r"(meeting.me), "+r"(first_row), "+r"(pair.row[0]),
                       "+r"(pair.row[1]));
        asm volatile("" ::"r"(p.mode), "r"(p.out_stride[0]), "l"(p.out[0]), "l"(p.bias[0]), "l"(p.add), "l"(p.partial));
    }
    __device__ __forceinline__ void run(const struct pairs_params &p, const struct walk &w, f32 (&d)[K::ROWS / 8][4], u32 swapped)
    {
        u32 from = first_row, end = first_row + K::ROWS;

        if (meeting.n > 1) {
            meeting.hand_over(p, warpgroup, d);
            if (!meeting.ends(meeting.me))
                return;
            meeting.take_over(p, warpgroup, d);
            from = first_row + meeting.begin(meeting.me) * 8;
            end = first_row + meeting.begin(meeting.me + 1) * 8;
        }
        if (own >= p.n_pairs || from >= w.n_rows)
            return;
        struct ending<K> ending = {
            p, pair, d, first_row + threadIdx.x % 4 * 2, from, min(end, w.n_rows) - from, swapped
        };
        ending.all();
    }
};

template <class K>
static __device__ __forceinline__ void multiply_share(const struct pairs_params &p, const struct walk &walk,
                                                      const struct share &s, struct lane_weights<K> &w, struct products<K> &x,
                                                      struct belt<K> &belt)
{
    u32 warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);

    x.clear();
    if constexpr (K::TILES) {
        for (u32 step = s.begin; step < s.end; step++) {
            x.multiply(belt, warpgroup);
            x.multiply(belt, warpgroup);
        }
    } else {
        for (u32 step = s.begin; step < s.end;)
#pragma unroll
            for (u32 i = 0; i < K::depth && step < s.end; i++, step++) {
                u32 a[2][4][4];
                w.turn(p, walk, i);
                w.template fragments<0>(p, a[0]);
                x.multiply(belt, a[0]);
                w.template fragments<1>(p, a[1]);
                x.multiply(belt, a[1]);
            }
    }
    x.finish(belt);
}

template <class K>
static __device__ __forceinline__ void consume(const struct pairs_params &p, const struct walk &walk, struct belt<K> belt,
                                               u32 swapped)
{
    struct lane_weights<K> w;
    struct products<K> x;
    struct share s;

    if constexpr (!K::TILES)
        w.begin(p, walk);
    wait_for_inputs();
    for (bool left = walk.first(s); left; left = walk.next(s))
        if constexpr (K::TILES) { // else registers are short
            struct share_end<K> end(p, walk, s);
            end.find_now(p);
            multiply_share(p, walk, s, w, x, belt);
            end.run(p, walk, x.d, swapped);
        } else {
            multiply_share(p, walk, s, w, x, belt);
            struct share_end<K> end(p, walk, s);
            end.run(p, walk, x.d, swapped);
            if constexpr (!w.plain)
                w.rotate(s.end - s.begin);
        }
}

template <class K>
static __device__ __forceinline__ void gemm_hopper(const struct pairs_params &p, const struct tiles_params *tiles)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct belt<K> belt = {
    };
    struct walk &w = *(struct walk *)(shared + K::n_stages * (K::stage_bytes + 16));
    bool fills = __shfl_sync(~0u, threadIdx.x / 32, 0) == K::consumers / 32;

    belt.data = shared_address(shared);
    belt.full = belt.data + K::n_stages * K::stage_bytes;
    belt.empty = belt.full + 8 * K::n_stages;
    if (fills && elect_one()) {
        if constexpr (K::TILES)
            prefetch_view(&tiles->w[0]);
        w = walk_of<K>(p); // of the number of rows, which is older than any launch of this step
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(belt.full + 8 * i, 1);
            barrier_begin(belt.empty + 8 * i, K::consumers / 32);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= K::consumers) {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 56 : K::TILES ? 40 : 24));
        if (fills && elect_one())
            produce<K>(p, tiles, belt, w);
        else
            wait_for_inputs();
    } else {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 152 : K::TILES ? 232 : 240));
        consume<K>(p, w, belt, K::TILES ? tiles->swapped : 0);
    }
}

#define GEMM_HOPPER(name, F, ROWS)                                                 \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1)             \
        gemm_hopper_##ROWS##_##name(const __grid_constant__ struct pairs_params p) \
    {                                                                              \
        gemm_hopper<kernel<F, ROWS, false>>(p, nullptr);                           \
    }
#define BOTH(name, F)         \
    GEMM_HOPPER(name, F, 32) \
    GEMM_HOPPER(name, F, 64) \
    GEMM_HOPPER(name, F, 128) \
    GEMM_HOPPER(name, F, 256)
BOTH(f16, PLANES_F16)
BOTH(bf16, PLANES_BF16)
BOTH(q4_0, PLANES_Q4_0)
BOTH(q4_1, PLANES_Q4_1)
BOTH(q5_0, PLANES_Q5_0)
BOTH(q5_1, PLANES_Q5_1)
BOTH(q8_0, PLANES_Q8_0)
BOTH(q2_k, PLANES_Q2_K)
BOTH(q3_k, PLANES_Q3_K)
BOTH(q4_k, PLANES_Q4_K)
BOTH(q5_k, PLANES_Q5_K)
BOTH(q6_k, PLANES_Q6_K)
BOTH(iq4_nl, PLANES_IQ4_NL)
BOTH(iq4_xs, PLANES_IQ4_XS)
BOTH(mxfp4, PLANES_MXFP4)

#define GEMM_TILES(name, GROUPS, ROWS)                                                                                \
    extern "C" __global__ void __launch_bounds__(ROWS <= 64 ? HOPPER_FEW_THREADS(GROUPS) : HOPPER_THREADS(GROUPS), 1) \
        gemm_tiles_##name(const __grid_constant__ struct tiles_params t)                                              \
    {                                                                                                                 \
        gemm_hopper<kernel<PLANES_BF16, ROWS, true, GROUPS>>(t.pairs, &t);                                            \
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
