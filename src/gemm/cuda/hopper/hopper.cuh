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
        f32 *out = p.out[0];
#pragma unroll 1
        for (u32 first = 0; first < ROWS / 8; first += window, forward())
#pragma unroll
            for (u32 n = 0; n < window; n++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    if (ends(row(n, i))) {
                        f32 gate = swapped ? d[n][2 + i] : d[n][i], up = swapped ? d[n][i] : d[n][2 + i];
                        f32 v = activation_of(p.activation, gate * back) * (up * back);
                        if (out)
                            out[(u64)row(n, i) * p.out_stride[0] + r.row[0]] = v;
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
#endif
