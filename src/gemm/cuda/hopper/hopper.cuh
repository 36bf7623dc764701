// hopper.cuh - what gemm_hopper.cu and gemm_tma.cu share: the source of packed rows, a warpgroup's sums, and
// the epilogue of a part of a tile.
//
// K, a kernel's constants: F (format), ROWS of activations, GROUPS of 32 pairs (one a consumer warpgroup),
// pairs, consumers (threads), TILES (weights are bf16 tiles), FEW, chunk_bytes, stage_bytes, n_stages, full.
#pragma once
#include "gemm/cuda/epilogue.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/hopper/stream_k.cuh"
#include "gemm/cuda/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { GROUP_PAIRS = 32 };

// The source of the next 64 columns of rows. All divisions are done once per part: the producer has no time
// for them.
template <class K> struct rows_source {
    struct stream_unit stream_unit;
    const u8 *rows; // of this stage
    u32 stage, end; // 64 columns each
    u32 bytes;      // of rows
    u32 second; // from one chunk of 128 rows to the next one, or 0: its place is then multiplied and ignored
    bool left;

    __device__ __forceinline__ void begin(const struct gemm_params &p, const struct tile_scheduler &w)
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
    }
    // false: another part begins.
    __device__ __forceinline__ bool next(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        rows += PACKED_TILE_ROWS * 128;
        if (++stage < end)
            return true;
        left = w.next(stream_unit);
        begin(p, w);
        return false;
    }
    __device__ __forceinline__ void copy(u32 to, u32 full) const
    {
        bulk_copy(to, rows, K::chunk_bytes, full);
        if (second)
            bulk_copy(to + K::chunk_bytes, rows + second, K::chunk_bytes, full);
    }
};

template <class K> struct hopper_sums { // of a warpgroup
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
    __device__ __forceinline__ void leave_before(const struct pipe<K> &pipe) const
    {
        if (before != ~0u && threadIdx.x % 32 == 0)
            leave_stage(pipe.empty + 8 * before);
    }
    __device__ __forceinline__ void finish(const struct pipe<K> &pipe)
    {
        wgmma_finish();
        leave_before(pipe);
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
    static constexpr bool spare = K::GROUPS == 2 && (K::TILES ? ROWS != 64 : ROWS == 128); // saves registers
    static constexpr u32 most = K::GROUPS >= 3 ? 2
                                : spare        ? 8
                                               : 4,
                         batch =
                             most < epilogue_window(ROWS) ? most : epilogue_window(ROWS); // rows, in eights

    __device__ __forceinline__ u32 row(u32 n, u32 which) const
    {
        return first_row + 8 * n + which;
    }
    __device__ __forceinline__ bool ends(u32 at) const
    {
        return at - from < n_ended;
    }
    // Rows are finished a window at a time, the next window's sums moved into the place of the finished ones:
    // code that runs once a launch comes from memory, instruction by instruction, and all rows' in a line
    // took longer than their products (bench/results/2026-11-28-h200-rows.md).
    static constexpr u32 window = epilogue_window(ROWS);
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
        for (u32 n = 0; n < window; n += batch) {
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

    // Where the window's packed rows lie: a window is within a tile of packed rows.
    struct packed_window {
        __nv_bfloat16 *rows[2]; // of the first eight, NULL: none
        u32 next;               // eight rows further

        __device__ __forceinline__ packed_window(const hopper_epilogue &e, u32 column)
        {
            const struct packed_out &to = e.p.packed_out;
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                rows[i] = to.at ? packed_place(to, e.row(0, i), column) : nullptr;
            next = to.form == PACKING_BF16_ROWS ? 8 * to.n_cols : 8 * 64;
        }
        __device__ __forceinline__ __nv_bfloat16 *at(u32 n, u32 which) const
        {
            return rows[which] + n * next;
        }
    };

    __device__ __forceinline__ void gated()
    {
        f32 *out = p.out[0];
        struct packed_window packed(*this, r.row[0]);
#pragma unroll
        for (u32 n = 0; n < window; n++)
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                f32 gate = swapped ? d[n][2 + i] : d[n][i], up = swapped ? d[n][i] : d[n][2 + i];
                d[n][i] = activation_of(p.activation, gate * back) * (up * back);
            }
        // Apart from the arithmetic, which branches would put in a line.
        if (packed.rows[0])
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (ends(row(n, i)))
                        *packed.at(n, i) = __float2bfloat16_rn(d[n][i]);
        if (out)
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (ends(row(n, i)))
                        out[(u64)row(n, i) * p.out_stride[0] + r.row[0]] = d[n][i];
    }

    // Two neighbouring outputs a row that are activated, or packed; nothing is added to them.
    __device__ __forceinline__ void handed_on()
    {
        f32 *out = p.out[0];
        const f32 *bias = p.bias[0];
        float2 b = bias ? make_float2(bias[r.row[0]], bias[r.row[1]]) : make_float2(0, 0);
        struct packed_window packed(*this, r.row[0]), second(*this, r.row[0] + 1);
        bool apart = p.packed_out.form == PACKING_MMA;
#pragma unroll
        for (u32 n = 0; n < window; n++)
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                if (ends(row(n, i))) {
                    float2 v = make_float2(d[n][i] * back + b.x, d[n][2 + i] * back + b.y);
                    if (p.mode == EPILOGUE_ACTIVATED)
                        v = make_float2(activation_of(p.activation, v.x), activation_of(p.activation, v.y));
                    if (out)
                        *(float2 *)(out + (u64)row(n, i) * p.out_stride[0] + r.row[0]) = v;
                    if (packed.rows[i] && !apart)
                        *(__nv_bfloat162 *)packed.at(n, i) = __floats2bfloat162_rn(v.x, v.y);
                    if (packed.rows[i] && apart) {
                        *packed.at(n, i) = __float2bfloat16_rn(v.x);
                        *second.at(n, i) = __float2bfloat16_rn(v.y);
                    }
                }
    }

    // The place of each of the window's rows in the pages, 16 times its page and the token in it: a lane
    // finds those of the rows `lane` and `lane` + 32, and the warp's lanes exchange them.
    struct page_places {
        u32 at[2];

        __device__ __forceinline__ page_places(const hopper_epilogue &e, bool wanted)
        {
            u32 first = e.first_row - threadIdx.x % 4 * 2 + threadIdx.x % 32;
            at[0] = at[1] = 0;
#pragma unroll
            for (u32 k = 0; wanted && k < 2; k++) {
                u32 row = min(first + 32 * k, e.p.step->n_rows - 1), position = step_positions(e.p.step)[row];
                u32 page =
                    e.p.table[step_slots(e.p.step)[row] * e.p.rope.pages.max_pages + position / PAGE_TOKENS];
                at[k] = page * PAGE_TOKENS + position % PAGE_TOKENS;
            }
        }
        __device__ __forceinline__ u32 of(u32 n, u32 which) const
        {
            return __shfl_sync(~0u, at[n / 4], n % 4 * 8 + threadIdx.x % 4 * 2 + which);
        }
    };

    // q, k or v, with the angles of some rows loaded at a time. Every lane of the warp comes.
    __device__ __forceinline__ void rope()
    {
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
        bool any_keeps = __any_sync(~0u, keeps);
        struct page_places places(*this, any_keeps);
#pragma unroll
        for (u32 n = 0; n < window; n += batch) {
            float2 angle[2 * batch];
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                u32 at = row(n + i / 2, i % 2);
                angle[i] = waves && ends(at) ? *(const float2 *)(p.angles + (u64)at * p.rope.n_dims + r.turn)
                                             : make_float2(1, 0);
            }
#pragma unroll
            for (u32 i = 0; i < 2 * batch; i++) {
                f32 *v = d[n + i / 2] + i % 2, x = v[0] * back + b.x, y = v[2] * back + b.y;
                v[0] = x * angle[i].x - y * angle[i].y;
                v[2] = y * angle[i].x + x * angle[i].y;
            }
        }
        if (any_keeps)
#pragma unroll
            for (u32 i = 0; i < 2 * window; i++) {
                u32 place = places.of(i / 2, i % 2);
                __half *to =
                    pages + (u64)(place / PAGE_TOKENS) * page_numbers + place % PAGE_TOKENS * token_stride;
#pragma unroll
                for (u32 k = 0; k < 2; k++)
                    if (keeps && ends(row(i / 2, i % 2)))
                        to[from_page[k]] = __float2half_rn(d[i / 2][2 * k + i % 2]);
            }
        if (!keeps)
#pragma unroll
            for (u32 i = 0; i < 2 * window; i++)
#pragma unroll
                for (u32 k = 0; k < 2; k++)
                    if (ends(row(i / 2, i % 2)))
                        out[(u64)row(i / 2, i % 2) * p.out_stride[m] + r.row[k]] = d[i / 2][2 * k + i % 2];
    }

    // One output at a time: rows of an odd number of outputs, and gate over up.
    __device__ __forceinline__ void single()
    {
        const f32 *bias = p.bias[0];
        f32 b[2] = { bias ? bias[r.row[0]] : 0, bias ? bias[r.row[1]] : 0 };
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

    __device__ __forceinline__ void end_window()
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
        u32 from = 0, end = K::ROWS / 8; // eights of rows that this block finishes

        if (reduction.n > 1) {
            reduction.store_partial(p, warpgroup, d);
            from = reduction.begin(reduction.me);
            end = reduction.begin(reduction.me + 1);
        }
        u32 n_ended = own < p.n_pairs && first_row + from * 8 < w.n_rows
                          ? min(end * 8, w.n_rows - first_row) - from * 8
                          : 0;
        struct hopper_epilogue<K> epilogue = {
            p, pair, d, first_row + threadIdx.x % 4 * 2, first_row + from * 8, n_ended, swapped
        };
#pragma unroll 1
        for (u32 at = 0; at < end; at += epilogue.window, epilogue.forward()) {
            if (at + epilogue.window <= from)
                continue;
            if (reduction.n > 1)
                reduction.take_over(p, warpgroup, d, at);
            if (first_row + at * 8 < w.n_rows) // for the whole warp
                epilogue.end_window();
        }
    }
};
#endif
