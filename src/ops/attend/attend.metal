// attend.metal - attend.h for a few rows, or any shape: positions are split over threadgroups (split decode;
// Flash-Decoding, Dao et al., 2023), the heads of a group share every read of K and V, and a second launch
// adds up the parts in their order.
//
// A simdgroup takes whole pages. For scores a lane takes one of the page's 16 tokens and every second
// dimension; for values it takes every 32nd dimension. Only tokens in the row's range count; other K are
// computed with and dropped, other V are not read. How positions are split depends on the tape and the row's
// position alone.
#include "device/metal/msl.h"
#include "ops/attend/attend_metal.h"
#include "device/metal/page_numbers.metalh"

constant uint ATTEND_HEAD_DIM [[function_constant(0)]];
constant uint ATTEND_K_FORMAT [[function_constant(1)]];
constant uint ATTEND_V_FORMAT [[function_constant(2)]];
constant uint ATTEND_HAS_SINKS [[function_constant(3)]]; // else there are none

#define LOWEST      (-1e30f) // below every score: no infinity, which fast math may not see
#define LANE_DIMS   (ATTEND_MAX_DIM / 32)
#define PART_FLOATS (ATTEND_HEAD_DIM + 2u) // of a head's part: top, total, then the sums

struct seen_range { // of one row
    u32 position, first, first_page, n_pages;
    device const u32 *table;
};

static struct seen_range range_of(constant struct attend_metal_args &args, constant struct step &step,
                                  device const u32 *table, u32 row)
{
    u32 window = args.attend.window;
    struct seen_range r;

    r.position = step_positions(&step)[row];
    r.first = window && r.position >= window ? r.position - window + 1 : 0;
    r.first_page = r.first / PAGE_TOKENS;
    r.n_pages = r.position / PAGE_TOKENS + 1 - r.first_page;
    r.table = table + u64(step_slots(&step)[row]) * args.attend.pages.max_pages;
    return r;
}

struct head_sums { // of ATTEND_HEADS heads in one simdgroup; a lane holds every 32nd dimension
    f32 row_max[ATTEND_HEADS], row_sum[ATTEND_HEADS];
    f32 at[ATTEND_HEADS][LANE_DIMS];
};

struct page { // one page of one KV head
    device const uchar *k;
    device const uchar *v;
    u32 first, last; // tokens that the row sees
};

// A lane's score of token lane % 16, for each head. q: [ATTEND_HEADS, head_dim], already scaled.
static void page_scores(thread const struct page &g, threadgroup const f32 *q, u32 lane,
                        thread f32 (&scores)[ATTEND_HEADS])
{
    u32 token = lane % PAGE_TOKENS;

    UNROLL for (u32 h = 0; h < ATTEND_HEADS; h++) scores[h] = 0.0f;
    for (u32 d = lane / PAGE_TOKENS; d < ATTEND_HEAD_DIM; d += 2) {
        f32 k = page_number(ATTEND_K_FORMAT, g.k, page_k_place(ATTEND_K_FORMAT, token, d), ATTEND_HEAD_DIM,
                            token, d);
        UNROLL for (u32 h = 0; h < ATTEND_HEADS; h++) scores[h] += q[h * ATTEND_HEAD_DIM + d] * k;
    }
    UNROLL for (u32 h = 0; h < ATTEND_HEADS; h++)
    {
        scores[h] += simd_shuffle_xor(scores[h], 16);
        scores[h] = token >= g.first && token <= g.last ? scores[h] : LOWEST;
    }
}

// Online softmax over one page (Milakov and Gimelshein, 2018). weights: [ATTEND_HEADS, 16], this simdgroup's.
static void page_add(thread const struct page &g, threadgroup const f32 *q, threadgroup f32 *weights,
                     u32 lane, thread struct head_sums &s)
{
    f32 scores[ATTEND_HEADS];
    u32 token = lane % PAGE_TOKENS;

    page_scores(g, q, lane, scores);
    UNROLL for (u32 h = 0; h < ATTEND_HEADS; h++)
    {
        f32 row_max = max(s.row_max[h], simd_max(scores[h])), rescale = precise::exp(s.row_max[h] - row_max);
        f32 weight = token >= g.first && token <= g.last ? precise::exp(scores[h] - row_max) : 0.0f;
        s.row_max[h] = row_max;
        s.row_sum[h] = s.row_sum[h] * rescale + simd_sum(lane < PAGE_TOKENS ? weight : 0.0f);
        UNROLL for (u32 i = 0; i < LANE_DIMS; i++) s.at[h][i] *= rescale;
        if (lane < PAGE_TOKENS)
            weights[h * PAGE_TOKENS + token] = weight;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 t = g.first; t <= g.last; t++)
        UNROLL for (u32 i = 0; i < LANE_DIMS; i++)
        {
            u32 d = lane + 32 * i;
            if (d >= ATTEND_HEAD_DIM)
                continue;
            f32 v = page_number(ATTEND_V_FORMAT, g.v, page_v_place(ATTEND_V_FORMAT, ATTEND_HEAD_DIM, t, d),
                                ATTEND_HEAD_DIM, t, d);
            UNROLL for (u32 h = 0; h < ATTEND_HEADS; h++) s.at[h][i] += weights[h * PAGE_TOKENS + t] * v;
        }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Head h of what four simdgroups found, to its part. row_maxes: [4, ATTEND_HEADS, 2]; room: [4, ATTEND_HEADS,
// head_dim].
static void part_write(threadgroup const f32 *row_maxes, threadgroup const f32 *room, u32 h, device f32 *part,
                       u32 thread_index)
{
    f32 row_max = LOWEST, row_sum = 0.0f;

    for (u32 i = 0; i < 4; i++)
        row_max = max(row_max, row_maxes[(i * ATTEND_HEADS + h) * 2]);
    for (u32 i = 0; i < 4; i++)
        row_sum += precise::exp(row_maxes[(i * ATTEND_HEADS + h) * 2] - row_max) *
                   row_maxes[(i * ATTEND_HEADS + h) * 2 + 1];
    for (u32 d = thread_index; d < ATTEND_HEAD_DIM; d += 128) {
        f32 sum = 0.0f;
        for (u32 i = 0; i < 4; i++)
            sum += precise::exp(row_maxes[(i * ATTEND_HEADS + h) * 2] - row_max) *
                   room[(i * ATTEND_HEADS + h) * ATTEND_HEAD_DIM + d];
        part[2 + d] = sum;
    }
    if (thread_index == 0) {
        part[0] = row_max;
        part[1] = row_sum;
    }
}

// Grid: parts, KV heads, rows; 128 threads. parts: [rows, n_heads, n_splits, PART_FLOATS].
kernel void attend_split(constant struct attend_metal_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device const f32 *q [[buffer(2)]],
                         device const uchar *k_pages [[buffer(3)]], device const uchar *v_pages [[buffer(4)]],
                         device const u32 *table [[buffer(5)]], device f32 *parts [[buffer(18)]],
                         threadgroup f32 *room [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup f32 weights[4 * ATTEND_HEADS * PAGE_TOKENS];
    threadgroup f32 row_maxes[4 * ATTEND_HEADS * 2];
    u32 row = at.z, kv_head = at.y, simd = thread_index / 32, lane = thread_index % 32;
    u32 group = args.attend.n_heads / args.attend.pages.n_kv_heads;
    threadgroup f32 *heads = room + 4 * ATTEND_HEADS * ATTEND_HEAD_DIM; // [ATTEND_HEADS, head_dim] of q

    if (row >= step.n_rows)
        return;
    struct seen_range r = range_of(args, step, table, row);
    u32 end = min((at.x + 1) * args.split_pages, r.n_pages);
    if (at.x * args.split_pages >= r.n_pages)
        return;
    for (u32 h = 0; h < group; h += ATTEND_HEADS) {
        u64 head = u64(row) * args.attend.n_heads + kv_head * group + h;
        u32 n_heads = min(group - h, u32(ATTEND_HEADS));
        struct head_sums s = {};
        for (u32 i = thread_index; i < ATTEND_HEADS * ATTEND_HEAD_DIM; i += 128)
            heads[i] =
                i < n_heads * ATTEND_HEAD_DIM ? q[head * ATTEND_HEAD_DIM + i] * args.attend.scale : 0.0f;
        UNROLL for (u32 i = 0; i < ATTEND_HEADS; i++) s.row_max[i] = LOWEST;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (u32 i = at.x * args.split_pages + simd; i < end; i += 4) {
            // first: the page's first position
            u32 first = (r.first_page + i) * PAGE_TOKENS, number = r.table[r.first_page + i];
            struct page g = { k_pages + page_head_at(args.attend.pages, ATTEND_K_FORMAT, number, kv_head),
                              v_pages + page_head_at(args.attend.pages, ATTEND_V_FORMAT, number, kv_head),
                              r.first > first ? r.first - first : 0,
                              min(r.position - first, PAGE_TOKENS - 1) };
            page_add(g, heads, weights + simd * ATTEND_HEADS * PAGE_TOKENS, lane, s);
        }
        UNROLL for (u32 i = 0; i < ATTEND_HEADS; i++)
        {
            u32 of = simd * ATTEND_HEADS + i;
            if (lane == 0) {
                row_maxes[of * 2] = s.row_max[i];
                row_maxes[of * 2 + 1] = s.row_sum[i];
            }
            UNROLL for (u32 j = 0; j < LANE_DIMS; j++) if (lane + 32 * j < ATTEND_HEAD_DIM)
                room[of * ATTEND_HEAD_DIM + lane + 32 * j] = s.at[i][j];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (u32 i = 0; i < n_heads; i++)
            part_write(row_maxes, room, i, parts + ((head + i) * args.n_splits + at.x) * PART_FLOATS,
                       thread_index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Grid: heads, rows; 64 threads.
kernel void attend_merge(constant struct attend_metal_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device const u32 *table [[buffer(5)]],
                         device f32 *out [[buffer(6)]], device const f32 *sinks [[buffer(7)]],
                         device const f32 *parts [[buffer(18)]], uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    u32 row = at.y;
    u64 head = u64(row) * args.attend.n_heads + at.x;
    f32 row_max = ATTEND_HAS_SINKS ? sinks[at.x] : LOWEST, row_sum = 0.0f;

    if (row >= step.n_rows)
        return;
    struct seen_range r = range_of(args, step, table, row);
    u32 n_parts = (r.n_pages + args.split_pages - 1) / args.split_pages;
    parts += head * args.n_splits * PART_FLOATS;
    for (u32 i = 0; i < n_parts; i++)
        row_max = max(row_max, parts[i * PART_FLOATS]);
    for (u32 i = 0; i < n_parts; i++)
        row_sum += precise::exp(parts[i * PART_FLOATS] - row_max) * parts[i * PART_FLOATS + 1];
    if (ATTEND_HAS_SINKS)
        row_sum += precise::exp(sinks[at.x] - row_max);
    for (u32 d = thread_index; d < ATTEND_HEAD_DIM; d += 64) {
        f32 sum = 0.0f;
        for (u32 i = 0; i < n_parts; i++)
            sum += precise::exp(parts[i * PART_FLOATS] - row_max) * parts[i * PART_FLOATS + 2 + d];
        out[head * ATTEND_HEAD_DIM + d] = sum / row_sum;
    }
}
