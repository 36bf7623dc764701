// latent_attend.metal - the operation as defined in latent.h: positions are split over threadgroups, eight
// heads share every page, and a second launch adds up the parts in their order, as in attend.metal.
//
// The simdgroups of a threadgroup take a page together. For scores each has two heads; a lane has four of the
// page's 16 tokens and every eighth dimension, or pair of them. For values a thread has every 128th
// dimension or pair, for all eight heads, so that a page's numbers are read and decoded once for them. Four
// tokens of a dimension lie side by side, and are read at once. Only tokens up to the row's position count;
// other keys are computed with and dropped, and other values are zero.
//
// A prompt's rows take this way too: it costs 1.7 instructions a multiply-add, and simdgroup matrices with
// what stands beside them 1.4 to 1.7 (2026-11-22-agx-kernel-counts.md). That count leaves 384 threads: eight
// heads' sums stay in registers, and the counting compiler unrolls the loop over tokens whatever it is told.
#include "device/metal/msl.h"
#include "device/metal/page_numbers.metalh"
#include "ops/latent/latent_metal.h"

constant uint LATENT_KEY [[function_constant(0)]];
constant uint LATENT_DIMS [[function_constant(1)]];
constant uint LATENT_FORMAT [[function_constant(2)]];

#define LOWEST      (-1e30f) // below every score: no infinity, which fast math may not see
#define THREAD_DIMS (LATENT_MAX_DIMS / LATENT_THREADS)
#define SIMD_HEADS  (LATENT_HEADS / (LATENT_THREADS / 32))
#define PART_FLOATS (LATENT_DIMS + 2u) // of a head's part: top, total, then the sums

struct score_sums { // of a simdgroup's heads
    f32 row_max[SIMD_HEADS], row_sum[SIMD_HEADS];
};

// Dimensions that lie in one word.
static u32 word_dims()
{
    return LATENT_FORMAT == KV_BF16 ? 2 : 1;
}
// Dimensions that a lane takes at once for scores.
static u32 run_dims()
{
    return LATENT_KEY % 4 == 0 ? 4 : word_dims();
}
static f32 dot_add(float4 a, float4 b, f32 sum)
{
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// Numbers of the tokens [token, token + 4), and of word_dims dimensions from d on. token: a multiple of four.
static void four_tokens(device const uchar *page, u32 token, u32 d, thread float4 *to)
{
    u32 at = page_k_place(LATENT_FORMAT, token, d) / 4;

    if (LATENT_FORMAT == KV_F32) {
        to[0] = ((device const float4 *)page)[at];
    } else if (LATENT_FORMAT == KV_F16) {
        to[0] = float4(((device const half4 *)page)[at]);
    } else if (LATENT_FORMAT == KV_BF16) {
        uint4 both = ((device const uint4 *)page)[at / 2];
        to[0] = as_type<float4>(both << 16);
        to[1] = as_type<float4>(both & 0xffff0000u);
    } else {
        UNROLL for (u32 i = 0; i < 4; i++) to[0][i] = page_number(
            LATENT_FORMAT, page, page_k_place(LATENT_FORMAT, token + i, d), LATENT_KEY, token + i, d);
    }
}

// Online softmax over one page, of the simdgroup's heads. q: theirs, [SIMD_HEADS, key]; last: the last token
// that counts; weights: [SIMD_HEADS, 16], rescales: [SIMD_HEADS].
static void page_scores(device const uchar *page, threadgroup const f32 *q, u32 last, u32 lane,
                        thread struct score_sums &s, threadgroup f32 *weights, threadgroup f32 *rescales)
{
    u32 quad = lane % 4, part = lane / 4, token = 4 * quad + part % 4; // lanes from 16 on: as those below
    float4 scores[SIMD_HEADS] = {};

    for (u32 d = part * run_dims(); d < LATENT_KEY; d += 8 * run_dims()) {
        float4 k[4];
        UNROLL for (u32 i = 0; i < run_dims(); i += word_dims()) four_tokens(page, 4 * quad, d + i, k + i);
        UNROLL for (u32 h = 0; h < SIMD_HEADS; h++)
        {
            threadgroup const f32 *x = q + h * LATENT_KEY + d;
            float4 four = run_dims() == 4 ? *(threadgroup const float4 *)x : float4(x[0]);
            if (run_dims() == 2)
                four.y = x[1];
            UNROLL for (u32 i = 0; i < run_dims(); i++) scores[h] = fma(float4(four[i]), k[i], scores[h]);
        }
    }
    UNROLL for (u32 h = 0; h < SIMD_HEADS; h++)
    {
        UNROLL for (u32 i = 4; i < 32; i *= 2) scores[h] += simd_shuffle_xor(scores[h], ushort(i));
        f32 score = scores[h][part % 4];
        score = token <= last ? score : LOWEST;
        f32 row_max = max(s.row_max[h], simd_max(score)), rescale = precise::exp(s.row_max[h] - row_max);
        f32 weight = token <= last ? precise::exp(score - row_max) : 0.0f;
        s.row_max[h] = row_max;
        s.row_sum[h] = s.row_sum[h] * rescale + simd_sum(lane < PAGE_TOKENS ? weight : 0.0f);
        if (lane < PAGE_TOKENS)
            weights[h * PAGE_TOKENS + token] = weight;
        if (lane == 0)
            rescales[h] = rescale;
    }
}

// A thread's part of all heads' values.
static void page_values(device const uchar *page, threadgroup const f32 *weights,
                        threadgroup const f32 *rescales, u32 last, u32 thread_index,
                        thread f32 (&sums)[LATENT_HEADS][THREAD_DIMS])
{
    UNROLL for (u32 h = 0; h < LATENT_HEADS; h++) UNROLL for (u32 i = 0; i < THREAD_DIMS; i++) sums[h][i] *=
        rescales[h];
    // four passes at once would keep the places of all
    _Pragma("clang loop unroll(disable)") for (u32 t = 0; t <= last; t += 4)
    {
        float4 v[THREAD_DIMS] = {};
        UNROLL for (u32 i = 0; i < THREAD_DIMS; i += word_dims())
        {
            u32 d = word_dims() * thread_index + LATENT_THREADS * i;
            if (d < LATENT_DIMS)
                four_tokens(page, t, d, v + i);
        }
        UNROLL for (u32 i = 0; i < THREAD_DIMS; i++) UNROLL for (u32 n = 1; n < 4; n++) v[i][n] =
            t + n <= last ? v[i][n] : 0.0f;
        UNROLL for (u32 h = 0; h < LATENT_HEADS; h++)
        {
            float4 w = *(threadgroup const float4 *)(weights + h * PAGE_TOKENS + t);
            UNROLL for (u32 i = 0; i < THREAD_DIMS; i++) sums[h][i] = dot_add(w, v[i], sums[h][i]);
        }
    }
}

// Grid: parts, tiles of heads, rows. parts: [rows, n_heads, n_splits, PART_FLOATS]; q: [LATENT_HEADS, key].
kernel void latent_attend(constant struct latent_attend_metal_args &args [[buffer(0)]],
                          constant struct step &step [[buffer(1)]], device const f32 *queries [[buffer(2)]],
                          device const uchar *pages [[buffer(3)]], device const u32 *table [[buffer(4)]],
                          device f32 *out [[buffer(5)]], device f32 *parts [[buffer(18)]],
                          threadgroup f32 *q [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup float4 weights_of_four[LATENT_HEADS * PAGE_TOKENS / 4];
    threadgroup f32 rescales[LATENT_HEADS];
    threadgroup f32 totals[LATENT_HEADS];
    u32 row = at.z, first_head = at.y * LATENT_HEADS, simd = thread_index / 32, lane = thread_index % 32;
    f32 sums[LATENT_HEADS][THREAD_DIMS] = {};
    struct score_sums s = {};
    threadgroup f32 *weights = (threadgroup f32 *)weights_of_four;

    if (row >= step.n_rows)
        return;
    u32 position = step_positions(&step)[row],
        end = min((at.x + 1) * args.split_pages, position / PAGE_TOKENS + 1);
    if (at.x * args.split_pages > position / PAGE_TOKENS)
        return;
    u32 n_heads = min(args.attend.n_heads - first_head, u32(LATENT_HEADS));
    u64 head = u64(row) * args.attend.n_heads + first_head;
    table += u64(step_slots(&step)[row]) * args.attend.pages.max_pages;
    for (u32 i = thread_index; i < LATENT_HEADS * LATENT_KEY; i += LATENT_THREADS)
        q[i] = i < n_heads * LATENT_KEY ? queries[head * LATENT_KEY + i] * args.attend.scale : 0.0f;
    UNROLL for (u32 h = 0; h < SIMD_HEADS; h++) s.row_max[h] = LOWEST;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 i = at.x * args.split_pages; i < end; i++) {
        device const uchar *page = pages + page_head_at(args.attend.pages, LATENT_FORMAT, table[i], 0);
        u32 last = min(position - i * PAGE_TOKENS, PAGE_TOKENS - 1);
        page_scores(page, q + simd * SIMD_HEADS * LATENT_KEY, last, lane, s,
                    weights + simd * SIMD_HEADS * PAGE_TOKENS, rescales + simd * SIMD_HEADS);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        page_values(page, weights, rescales, last, thread_index, sums);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    UNROLL for (u32 h = 0; h < SIMD_HEADS; h++) if (lane == 0) totals[simd * SIMD_HEADS + h] = s.row_sum[h];
    UNROLL for (u32 h = 0; h < SIMD_HEADS;
                h++) if (args.n_splits > 1 && lane == 0 && simd * SIMD_HEADS + h < n_heads)
    {
        device f32 *part = parts + ((head + simd * SIMD_HEADS + h) * args.n_splits + at.x) * PART_FLOATS;
        part[0] = s.row_max[h];
        part[1] = s.row_sum[h];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (u32 h = 0; h < LATENT_HEADS; h++) UNROLL for (u32 i = 0; i < THREAD_DIMS; i++)
    {
        u32 d = word_dims() * thread_index + LATENT_THREADS * (i - i % word_dims()) + i % word_dims();
        if (h >= n_heads || d >= LATENT_DIMS)
            continue;
        if (args.n_splits > 1)
            parts[((head + h) * args.n_splits + at.x) * PART_FLOATS + 2 + d] = sums[h][i];
        else
            out[(head + h) * LATENT_DIMS + d] = sums[h][i] / totals[h];
    }
}

// Grid: heads, rows.
kernel void latent_merge(constant struct latent_attend_metal_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device f32 *out [[buffer(5)]],
                         device const f32 *parts [[buffer(18)]], uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    u32 row = at.y;
    u64 head = u64(row) * args.attend.n_heads + at.x;
    f32 row_max = LOWEST, row_sum = 0.0f;

    if (row >= step.n_rows)
        return;
    u32 n_parts = step_positions(&step)[row] / PAGE_TOKENS / args.split_pages + 1;
    parts += head * args.n_splits * PART_FLOATS;
    for (u32 i = 0; i < n_parts; i++)
        row_max = max(row_max, parts[i * PART_FLOATS]);
    for (u32 i = 0; i < n_parts; i++)
        row_sum += precise::exp(parts[i * PART_FLOATS] - row_max) * parts[i * PART_FLOATS + 1];
    for (u32 d = thread_index; d < LATENT_DIMS; d += LATENT_THREADS) {
        f32 sum = 0.0f;
        for (u32 i = 0; i < n_parts; i++)
            sum += precise::exp(parts[i * PART_FLOATS] - row_max) * parts[i * PART_FLOATS + 2 + d];
        out[head * LATENT_DIMS + d] = sum / row_sum;
    }
}
