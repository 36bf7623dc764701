// attend_tile.cuh - prefill attention but for its products: pages, masks and online softmax
// (FlashAttention-2; Dao, 2023).
//
// Computes   out = softmax(scale * q . K) V   for 64 rows of the step and one head. Bound by arithmetic.
//
//                        64 tokens: 4 pages        next 4 pages, on their way
//                      +--------------------+    +--------------------+     (heads of 256: 32 tokens)
//   64 rows   warp 0   |  16 rows           |    |                    |   grid: (row tiles + helpers, heads)
//   of one    warp 1   |                    |    |                    |      block: 4 warps, or 8 of 512
//   head      ...      |                    |    |                    |
//                      +--------------------+    +--------------------+
//
// Rows of several sequences: neighbouring rows of one slot are a run. A block handles its runs one after the
// other, each over its own pages, with the other rows masked out; helper blocks share the runs of a tile that
// has many.
// Shared memory: K as in a page of F16, [page][dim][16 tokens], 16-byte words swizzled within 256 bytes; V as
// [64 dims][tokens], rows of 128 bytes swizzled within 8: ldmatrix.trans reads both without bank
// conflicts. Two stages filled by cp.async; pages of F16 are copied as they lie, BF16 and Q8_0 become F16 on
// the way.
// Epilogue: fp32 rows, or rows packed for the next product (epilogue_pack.cuh).
#pragma once
#include "ops/attend/attend_cuda.h"
#include "gemm/cuda/epilogue_pack.cuh"
#include "device/cuda/pages.cuh"

enum { MANY_ROWS = 64 };
#define LOWEST (-1e30f)

struct row_run {                    // rows [first, end) of the block: one slot, rising positions
    u32 first, end, slot, position; // of the first row
};

static __device__ __forceinline__ u32 two_halves(f32 low, f32 high)
{
    __half2 h = __floats2half2_rn(low, high);
    return *(u32 *)&h;
}
static __device__ __forceinline__ u32 two_bf16(f32 low, f32 high)
{
    __nv_bfloat162 b = __floats2bfloat162_rn(low, high);
    return *(u32 *)&b;
}
// A weight far below any other may become zero.
static __device__ __forceinline__ f32 exp2_near(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ void copy_16(u32 to, const void *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0));
}
static __device__ __forceinline__ void store_16(u32 to, const u32 (&v)[4])
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// Byte offset of a 16-byte word within a page's K.
static __device__ __forceinline__ u32 k_place(u32 dim, u32 half)
{
    return (dim * 2 + (half ^ (dim >> 2 & 1))) * 16;
}

// Four fp16 words of number `which` of eight groups of two (bf16) or four (int8, times its scale).
static __device__ __forceinline__ void ungroup(u32 format, const u32 (&groups)[8], u32 which,
                                               const f32 (&scales)[8], u32 (&to)[4])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 a = groups[2 * i], b = groups[2 * i + 1];
        if (format == KV_BF16)
            to[i] = two_halves(__uint_as_float(which ? a & 0xffff0000 : a << 16),
                               __uint_as_float(which ? b & 0xffff0000 : b << 16));
        else
            to[i] = two_halves((f32)(i8)(a >> 8 * which) * scales[2 * i],
                               (f32)(i8)(b >> 8 * which) * scales[2 * i + 1]);
    }
}

// Heads of 512 have two warps for 16 rows, each with one half of the dims of q, K, V and the result; scores
// are the sum of both halves'.
template <u32 D> struct head_parts {
    static constexpr u32 n = D > 256 ? 2 : 1, own = D / n, threads = n * 128;
};

template <u32 D, bool SINKS> struct attention {
    static constexpr u32 OWN = head_parts<D>::own, THREADS = head_parts<D>::threads;
    const struct attend_params &p;
    u32 shared, kv_head;
    u32 q[OWN / 16][4];
    f32 out[OWN / 8][4];
    f32 row_max[2], row_sum[2]; // of rows g and g + 8
    u32 position[2];            // ~0: not in this run

    // A thread's part of a head of 256 leaves it registers for the scores of 32 tokens.
    static constexpr u32 tile_pages = D > 128 ? 2 : 4, tile_tokens = tile_pages * PAGE_TOKENS,
                         page_bytes = PAGE_TOKENS * D * 2, tile_bytes = tile_pages * page_bytes;

    // Byte offset of a 16-byte word within a tile's V.
    static __device__ __forceinline__ u32 v_place(u32 token, u32 word)
    {
        return word / 8 * (tile_tokens * 128) + token * 128 + (word % 8 ^ token % 8) * 16;
    }

    // K of stage s lies at s * 2 tiles, V one tile further.
    __device__ __forceinline__ void fetch(const u32 *table, u32 first_page, u32 last, u32 stage)
    {
        u32 to = shared + stage * 2 * tile_bytes;
        if (p.args.pages.k_format == KV_F16)
            fetch_k(table, first_page, last, to);
        else
            convert(false, table, first_page, last, to);
        if (p.args.pages.v_format == KV_F16)
            fetch_v(table, first_page, last, to + tile_bytes);
        else
            convert(true, table, first_page, last, to + tile_bytes);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ void fetch_k(const u32 *table, u32 first_page, u32 last, u32 to)
    {
#pragma unroll
        for (u32 i = threadIdx.x; i < tile_pages * D * 2; i += THREADS) {
            u32 page = i / (D * 2), word = i % (D * 2);
            bool exists = (first_page + page) * PAGE_TOKENS <= last;
            u64 at = page_at(&p.args.pages, exists ? table[first_page + page] : 0, kv_head) + word * 8;
            copy_16(to + page * page_bytes + k_place(word / 2, word % 2), (const __half *)p.k_pages + at,
                    exists);
        }
    }
    __device__ __forceinline__ void fetch_v(const u32 *table, u32 first_page, u32 last, u32 to)
    {
#pragma unroll
        for (u32 i = threadIdx.x; i < tile_pages * D * 2; i += THREADS) {
            u32 page = i / (D * 2), word = i % (D * 2), token = page * PAGE_TOKENS + word / (D / 8);
            bool written = first_page * PAGE_TOKENS + token <= last; // unwritten tokens may be NaN
            u64 at = page_at(&p.args.pages, written ? table[first_page + page] : 0, kv_head) + word * 8;
            copy_16(to + v_place(token, word % (D / 8)), (const __half *)p.v_pages + at, written);
        }
    }

    // 32 bytes at a time: of K a group of dims of eight tokens, of V a group of tokens and eight dims.
    __device__ __forceinline__ void convert(bool is_v, const u32 *table, u32 first_page, u32 last, u32 to)
    {
        const struct page_shape &shape = p.args.pages;
        u32 format = is_v ? shape.v_format : shape.k_format, group = page_group(format),
            bytes = page_head_bytes(format, D);
        u32 units = PAGE_TOKENS * D / group / 8; // of a page
        const u8 *pages = (const u8 *)(is_v ? p.v_pages : p.k_pages);

        for (u32 i = threadIdx.x; i < tile_pages * units; i += THREADS) {
            u32 page = i / units, unit = i % units, first = (first_page + page) * PAGE_TOKENS;
            u32 outer = is_v ? unit / (D / 8) : unit / 2, inner = is_v ? unit % (D / 8) : unit % 2;
            const u8 *head =
                pages + page_place(&shape, first <= last ? table[first_page + page] : 0, kv_head) * bytes;
            const u32 *from = (const u32 *)(head) + unit * 8;
            u32 words[8], fp16[4];
            f32 scales[8] = {};
#pragma unroll
            for (u32 k = 0; k < 8; k++)
                words[k] = from[k];
            for (u32 w = 0; w < group; w++) {
                u32 token = is_v ? outer * group + w : inner * 8, dim = is_v ? inner * 8 : outer * group + w;
                if (format == KV_Q8_0) {
                    const __half *s = (const __half *)(head + page_scale_at(&shape, token, dim));
#pragma unroll
                    for (u32 k = 0; k < 8; k++)
                        scales[k] = __half2float(s[is_v ? 0 : k]);
                }
                ungroup(format, words, w, scales, fp16);
                if (is_v && first + token > last)
                    fp16[0] = fp16[1] = fp16[2] = fp16[3] = 0;
                store_16(to + (is_v ? v_place(page * PAGE_TOKENS + token, inner)
                                    : page * page_bytes + k_place(dim, inner)),
                         fp16);
            }
        }
    }

    // The first of the warp's dims.
    static __device__ __forceinline__ u32 first_dim()
    {
        return D > OWN ? threadIdx.x / 128 * OWN : 0;
    }

    __device__ __forceinline__ void load_q(u32 row, u32 head, bool exists, u32 which)
    {
        const f32 *from = p.q + ((u64)row * p.args.n_heads + head) * D + first_dim() + (threadIdx.x & 3) * 2;
        f32 scale = p.args.scale * 1.4426950408889634f; // base 2 from here on
#pragma unroll
        for (u32 k = 0; k < OWN / 16; k++)
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float2 v = exists ? *(const float2 *)(from + k * 16 + half * 8) : make_float2(0, 0);
                q[k][which + 2 * half] = two_halves(v.x * scale, v.y * scale);
            }
    }

    // Both halves' scores, the same in both warps.
    __device__ __forceinline__ void add_halves(f32 (&s)[tile_tokens / 8][4])
    {
        extern __shared__ __align__(1024) unsigned char many_shared[];
        f32(*parts)[tile_tokens / 8][32] =
            (f32(*)[tile_tokens / 8][32])(many_shared + 4 * tile_bytes); // [warp * 4 + i][n][lane]
        u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
        for (u32 n = 0; n < tile_tokens / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                parts[warp * 4 + i][n][lane] = s[n][i];
        __syncthreads();
#pragma unroll
        for (u32 n = 0; n < tile_tokens / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                s[n][i] += parts[(warp ^ 4) * 4 + i][n][lane];
    }

    __device__ __forceinline__ bool seen(u32 token, u32 which) const
    {
        u32 window = p.args.window;
        return position[which] != ~0u && token <= position[which] &&
               (!window || token + window > position[which]);
    }

    // Scores of a tile become weights, and what was summed before is scaled to them. masked: some scores must
    // not count.
    __device__ __forceinline__ void soften(f32 (&s)[tile_tokens / 8][4], u32 first_token, bool masked)
    {
        f32 new_max[2] = { row_max[0], row_max[1] };
        if (masked)
#pragma unroll
            for (u32 n = 0; n < tile_tokens / 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    s[n][i] =
                        seen(first_token + n * 8 + threadIdx.x % 4 * 2 + i % 2, i / 2) ? s[n][i] : LOWEST;
#pragma unroll
        for (u32 n = 0; n < tile_tokens / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                new_max[i / 2] = fmaxf(new_max[i / 2], s[n][i]);
        rescale(new_max);
        // Where nothing was seen yet, the highest is LOWEST too and must not weigh 1.
        f32 base[2] = { row_max[0] <= LOWEST ? 0 : row_max[0], row_max[1] <= LOWEST ? 0 : row_max[1] };
#pragma unroll
        for (u32 n = 0; n < tile_tokens / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                s[n][i] = exp2_near(s[n][i] - base[i / 2]);
                row_sum[i / 2] += s[n][i];
            }
    }

    __device__ __forceinline__ void rescale(f32 (&new_max)[2])
    {
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            new_max[which] = fmaxf(new_max[which], __shfl_xor_sync(~0u, new_max[which], 1));
            new_max[which] = fmaxf(new_max[which], __shfl_xor_sync(~0u, new_max[which], 2));
            f32 factor = exp2_near(row_max[which] - new_max[which]);
            row_max[which] = new_max[which];
            row_sum[which] *= factor;
#pragma unroll
            for (u32 n = 0; n < OWN / 8; n++) {
                out[n][2 * which] *= factor;
                out[n][2 * which + 1] *= factor;
            }
        }
    }

    // A row of the head in the order of the fragments. Of eight columns lanes t and t ^ 1 trade one, so that
    // each has two neighbours of a 16-byte word, which hold as many of each block of 32 columns: else they
    // would be stored by twos of bytes.
    __device__ __forceinline__ void pack_fragments(u32 row, u32 column, u32 which, f32 factor)
    {
        constexpr u32 blocks = OWN < 128 ? OWN / 32 : 4; // side by side
        u32 t = threadIdx.x & 3;
#pragma unroll
        for (u32 n = 0; n < OWN / 8; n += n % 4 == 3 ? blocks * 4 - 3 : 1) {
            u32 words[4];
#pragma unroll
            for (u32 i = 0; i < blocks; i++) {
                const f32 *v = out[n + 4 * i] + 2 * which;
                f32 mine = (t & 1 ? v[1] : v[0]) * factor,
                    other = __shfl_xor_sync(~0u, (t & 1 ? v[0] : v[1]) * factor, 1);
                words[i] = t & 1 ? two_bf16(other, mine) : two_bf16(mine, other);
            }
            if (position[which] == ~0u)
                continue;
            u8 *to = (u8 *)packed_place(p.packed_out, row, column + n * 8 + t / 2 * 4 + t % 2);
            if (blocks == 4)
                *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
            else
                *(uint2 *)to = make_uint2(words[0], words[1]);
        }
    }
    __device__ __forceinline__ void put(u32 row, u32 head, u32 which)
    {
        f32 sum = row_sum[which];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (SINKS)
            sum += exp2f(p.sinks[head] * 1.4426950408889634f - row_max[which]);
        u32 column = head * D + first_dim(), first = column + (threadIdx.x & 3) * 2;
        f32 *to = p.out + (u64)row * p.args.n_heads * D + first, factor = 1 / sum;
        bool in_order = p.packed_out.at && p.packed_out.form != PACKING_MMA;
#pragma unroll
        for (u32 n = 0; n < OWN / 8; n++) {
            f32 a = out[n][2 * which] * factor, b = out[n][2 * which + 1] * factor;
            if (position[which] != ~0u)
                *(float2 *)(to + n * 8) = make_float2(a, b);
            if (position[which] != ~0u && in_order)
                pack_put(p.packed_out, row, first + n * 8, a, b);
        }
        if (p.packed_out.at && p.packed_out.form == PACKING_MMA)
            pack_fragments(row, column, which, factor);
    }
};

// Which of the block's rows begin a run, a bit each: every thread finds the same.
static __device__ __forceinline__ u64 run_starts(const struct attend_params &p, u32 base, u32 n)
{
    const u32 *slots = step_slots(p.step) + base, *positions = step_positions(p.step) + base;
    u32 lane = threadIdx.x & 31, bits[2];

#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 i = half * 32 + lane, before = max(i, 1u) - 1;
        bool follows = i < n && i > 0 && slots[i] == slots[before] && positions[i] == positions[before] + 1;
        bits[half] = __ballot_sync(~0u, i < n && !follows);
    }
    return bits[0] | (u64)bits[1] << 32;
}
// Which of them are attend_few's.
static __device__ __forceinline__ u64 decode_rows(const struct attend_params &p, u32 base)
{
    u32 lane = threadIdx.x & 31;
    return __ballot_sync(~0u, attend_is_decode(p, base + lane)) |
           (u64)__ballot_sync(~0u, attend_is_decode(p, base + 32 + lane)) << 32;
}
static __device__ __forceinline__ struct row_run run_at(const struct attend_params &p, u32 base, u64 starts,
                                                        u32 n)
{
    u32 first = __ffsll((long long)starts) - 1;
    u64 others = starts & (starts - 1);
    return { first, others ? (u32)__ffsll((long long)others) - 1 : n, step_slots(p.step)[base + first],
             step_positions(p.step)[base + first] };
}

// TILE(attention, stage, first token, masked) adds one tile.
template <u32 D, bool SINKS, typename Tile>
static __device__ __forceinline__ void run_through(struct attention<D, SINKS> &a, const struct row_run &r,
                                                   u32 base, Tile tile)
{
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4, last = r.position + (r.end - r.first) - 1,
        window = a.p.args.window;
    u32 first_page = window && r.position >= window ? (r.position - window + 1) / PAGE_TOKENS : 0,
        end_page = last / PAGE_TOKENS + 1;
    const u32 *table = a.p.table + (u64)r.slot * a.p.args.pages.max_pages;
    // the same for all warps: their products may be one instruction
    bool all = r.first == 0 && r.end == MANY_ROWS && !window;

#pragma unroll
    for (u32 which = 0; which < 2; which++) {
        u32 row = warp * 16 + lane / 4 + 8 * which;
        bool mine = row >= r.first && row < r.end;
        a.position[which] = mine ? r.position + row - r.first : ~0u;
        a.load_q(base + row, blockIdx.y, mine, which);
        a.row_max[which] = LOWEST;
        a.row_sum[which] = 0;
    }
#pragma unroll
    for (u32 n = 0; n < a.OWN / 8; n++)
        a.out[n][0] = a.out[n][1] = a.out[n][2] = a.out[n][3] = 0;
    a.fetch(table, first_page, last, 0);
    for (u32 page = first_page, stage = 0; page < end_page; page += a.tile_pages, stage ^= 1) {
        u32 first = page * PAGE_TOKENS;
        a.fetch(table, page + a.tile_pages, last, stage ^ 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        __syncthreads();
        tile(a, stage, first, !all || first + a.tile_tokens - 1 > r.position);
        __syncthreads();
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    a.put(base + warp * 16 + lane / 4, blockIdx.y, 0);
    a.put(base + warp * 16 + lane / 4 + 8, blockIdx.y, 1);
}

// MIXED: attend_few computes the decode rows. Blocks with the longest pasts start first. The helpers of a
// tile take its runs in turn.
template <u32 D, bool MIXED, bool SINKS, typename Tile>
static __device__ __forceinline__ void attend_rows(const struct attend_params &p, Tile tile)
{
    extern __shared__ __align__(1024) unsigned char many_shared[];
    u32 n_tiles = gridDim.x - p.n_helped * p.n_helpers, tile_at = n_tiles - 1 - blockIdx.x, turn = 0,
        n_turns = 1;

    if (blockIdx.x >= n_tiles) {
        tile_at = (blockIdx.x - n_tiles) / p.n_helpers;
        turn = 1 + (blockIdx.x - n_tiles) % p.n_helpers;
    }
    if (tile_at < p.n_helped)
        n_turns = 1 + p.n_helpers;
    u32 base = tile_at * MANY_ROWS, n_rows = p.step->n_rows,
        n = n_rows > base ? min((u32)MANY_ROWS, n_rows - base) : 0;
    // the step is older than any launch
    u64 starts = run_starts(p, base, n), decode = MIXED ? decode_rows(p, base) : 0;
    u32 kv_head = blockIdx.y / (p.args.n_heads / p.args.pages.n_kv_heads);

    if (MIXED && !(starts & ~decode) && (blockIdx.x > 0 || blockIdx.y > 0))
        return; // the first block waits, so this launch ends after attend_few's
    wait_for_inputs();
    struct attention<D, SINKS> a = {
        p, (u32)__cvta_generic_to_shared(many_shared), kv_head
    };
    for (u32 k = 0; starts; starts &= starts - 1)
        if (!(decode & starts & -starts) && k++ % n_turns == turn)
            run_through<D, SINKS>(a, run_at(p, base, starts, n), base, tile);
}
