// attend.metal - attend.h for a few rows, or any shape: positions are split over threadgroups (split decode;
// Flash-Decoding, Dao et al., 2023) and the heads of a group share every read of K and V. The parts are added
// up by a second launch, or by the product behind, which reads them (attend_parts.h).
//
// A simdgroup takes whole pages. For scores a lane takes one of the page's 16 tokens and every second
// dimension; for values it takes every 32nd dimension. Only tokens in the row's range count; other K are
// computed with and dropped, other V are not read. How positions are split depends on the row's position and
// on the most parts that its tape has.
#include "device/metal/msl.h"
#include "ops/attend/attend_metal.h"
#include "ops/attend/parts.metalh"
#include "device/metal/page_numbers.metalh"

constant uint ATTEND_HEAD_DIM [[function_constant(0)]];
constant uint ATTEND_K_FORMAT [[function_constant(1)]];
constant uint ATTEND_V_FORMAT [[function_constant(2)]];
constant uint ATTEND_HAS_SINKS [[function_constant(3)]]; // else there are none

#define LANE_DIMS (ATTEND_MAX_DIM / 32)
#define HEADS     attend_heads(ATTEND_HEAD_DIM)

struct split_attention { // what the kernels that split read, and the threadgroup's memory
    constant struct attend_metal_args *args;
    constant struct step *step;
    device const f32 *q;
    device const uchar *k_pages;
    device const uchar *v_pages;
    device const u32 *table;
    device const f32 *sinks;
    threadgroup f32 *heads;     // [HEADS, head_dim] of q
    threadgroup f32 *room;      // [simds, HEADS, head_dim]
    threadgroup f32 *weights;   // [simds, HEADS, 16]
    threadgroup f32 *row_maxes; // [simds, HEADS, 2]
};

struct seen_range { // of one row
    u32 position, first, first_page, n_pages;
    u32 part_pages, n_parts;
    device const u32 *table;
};

static struct seen_range range_of(thread const struct split_attention &a, u32 row)
{
    u32 window = a.args->attend.window, n_splits = a.args->n_splits;
    struct seen_range r;

    r.position = step_positions(a.step)[row];
    r.first = window && r.position >= window ? r.position - window + 1 : 0;
    r.first_page = r.first / PAGE_TOKENS;
    r.n_pages = r.position / PAGE_TOKENS + 1 - r.first_page;
    r.part_pages = max((r.n_pages + n_splits - 1) / n_splits, ATTEND_PAGES * attend_simds(ATTEND_HEAD_DIM));
    r.part_pages = n_splits == 1 ? r.n_pages : r.part_pages;
    r.n_parts = (r.n_pages + r.part_pages - 1) / r.part_pages;
    r.table = a.table + u64(step_slots(a.step)[row]) * a.args->attend.pages.max_pages;
    return r;
}

struct head_sums { // of HEADS heads in one simdgroup; a lane holds every 32nd dimension
    f32 row_max[ATTEND_MOST_HEADS], row_sum[ATTEND_MOST_HEADS];
    f32 at[ATTEND_MOST_HEADS][LANE_DIMS];
};

struct page { // one page of one KV head
    device const uchar *k;
    device const uchar *v;
    u32 first, last; // tokens that the row sees
};

// A lane's score of token lane % 16, for each head. q: [HEADS, head_dim], already scaled.
static void page_scores(thread const struct page &g, threadgroup const f32 *q, u32 lane,
                        thread f32 (&scores)[ATTEND_MOST_HEADS])
{
    u32 token = lane % PAGE_TOKENS;

    UNROLL for (u32 h = 0; h < HEADS; h++) scores[h] = 0.0f;
    for (u32 d = lane / PAGE_TOKENS; d < ATTEND_HEAD_DIM; d += 2) {
        f32 k = page_number(ATTEND_K_FORMAT, g.k, page_k_place(ATTEND_K_FORMAT, token, d), ATTEND_HEAD_DIM,
                            token, d);
        UNROLL for (u32 h = 0; h < HEADS; h++) scores[h] += q[h * ATTEND_HEAD_DIM + d] * k;
    }
    UNROLL for (u32 h = 0; h < HEADS; h++)
    {
        scores[h] += simd_shuffle_xor(scores[h], 16);
        scores[h] = token >= g.first && token <= g.last ? scores[h] : LOWEST;
    }
}

// Online softmax over one page (Milakov and Gimelshein, 2018). weights: [HEADS, 16], this simdgroup's.
static void page_add(thread const struct page &g, threadgroup const f32 *q, threadgroup f32 *weights,
                     u32 lane, thread struct head_sums &s)
{
    f32 scores[ATTEND_MOST_HEADS];
    u32 token = lane % PAGE_TOKENS;

    page_scores(g, q, lane, scores);
    UNROLL for (u32 h = 0; h < HEADS; h++)
    {
        f32 row_max = max(s.row_max[h], simd_max(scores[h])), rescale = precise::exp(s.row_max[h] - row_max);
        f32 weight = token >= g.first && token <= g.last ? precise::exp(scores[h] - row_max) : 0.0f;
        s.row_max[h] = row_max;
        s.row_sum[h] = s.row_sum[h] * rescale + simd_sum(lane < PAGE_TOKENS ? weight : 0.0f);
        UNROLL for (u32 i = 0; i < LANE_DIMS; i++) if (32 * i < ATTEND_HEAD_DIM) s.at[h][i] *= rescale;
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
            UNROLL for (u32 h = 0; h < HEADS; h++) s.at[h][i] += weights[h * PAGE_TOKENS + t] * v;
        }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

struct head_end { // of a head's sums over all simdgroups
    f32 row_max, row_sum;
};

// of head h; first: below all scores, or the head's sink
static struct head_end head_end(thread const struct split_attention &a, u32 h, f32 first)
{
    struct head_end e = { first, 0.0f };

    for (u32 i = 0; i < attend_simds(ATTEND_HEAD_DIM); i++)
        e.row_max = max(e.row_max, a.row_maxes[(i * HEADS + h) * 2]);
    for (u32 i = 0; i < attend_simds(ATTEND_HEAD_DIM); i++)
        e.row_sum +=
            precise::exp(a.row_maxes[(i * HEADS + h) * 2] - e.row_max) * a.row_maxes[(i * HEADS + h) * 2 + 1];
    if (ATTEND_HAS_SINKS && first > LOWEST)
        e.row_sum += precise::exp(first - e.row_max);
    return e;
}

// Dimension d of head h, of all simdgroups.
static f32 head_sum(thread const struct split_attention &a, thread const struct head_end &e, u32 h, u32 d)
{
    f32 sum = 0.0f;

    for (u32 i = 0; i < attend_simds(ATTEND_HEAD_DIM); i++)
        sum += precise::exp(a.row_maxes[(i * HEADS + h) * 2] - e.row_max) *
               a.room[(i * HEADS + h) * ATTEND_HEAD_DIM + d];
    return sum;
}

// This simdgroup's part of the sums of HEADS heads, over pages [first, end) of the row's.
static void pages_add(thread const struct split_attention &a, thread const struct seen_range &r, uint2 pages,
                      u32 kv_head, u32 thread_index)
{
    constant struct page_shape &shape = a.args->attend.pages;
    u32 simd = thread_index / 32, lane = thread_index % 32;
    struct head_sums s = {};

    UNROLL for (u32 i = 0; i < HEADS; i++) s.row_max[i] = LOWEST;
    for (u32 i = pages.x + simd; i < pages.y; i += attend_simds(ATTEND_HEAD_DIM)) {
        // first: the page's first position
        u32 first = (r.first_page + i) * PAGE_TOKENS, number = r.table[r.first_page + i];
        struct page g = { a.k_pages + page_head_at(shape, ATTEND_K_FORMAT, number, kv_head),
                          a.v_pages + page_head_at(shape, ATTEND_V_FORMAT, number, kv_head),
                          r.first > first ? r.first - first : 0, min(r.position - first, PAGE_TOKENS - 1) };
        page_add(g, a.heads, a.weights + simd * HEADS * PAGE_TOKENS, lane, s);
    }
    UNROLL for (u32 i = 0; i < HEADS; i++)
    {
        u32 of = simd * HEADS + i;
        if (lane == 0) {
            a.row_maxes[of * 2] = s.row_max[i];
            a.row_maxes[of * 2 + 1] = s.row_sum[i];
        }
        UNROLL for (u32 j = 0; j < LANE_DIMS;
                    j++) if (32 * j < ATTEND_HEAD_DIM && lane + 32 * j < ATTEND_HEAD_DIM)
            a.room[of * ATTEND_HEAD_DIM + lane + 32 * j] = s.at[i][j];
    }
}

// Heads of the row's from `head`, h of which lie in a.room, to the row's part, or finished to out where there
// are no parts.
static void heads_write(thread const struct split_attention &a, u32 head, u32 n_heads, u32 part_number,
                        device f32 *to, bool finished, u32 thread_index)
{
    u32 n_cols = a.args->attend.n_heads * ATTEND_HEAD_DIM, span = attend_span(ATTEND_HEAD_DIM);

    for (u32 h = 0; h < n_heads; h++) {
        f32 sink = ATTEND_HAS_SINKS && part_number == 0 ? a.sinks[head + h] : LOWEST;
        struct head_end e = head_end(a, h, sink);
        u32 first = (head + h) * ATTEND_HEAD_DIM;
        for (u32 d = thread_index; d < ATTEND_HEAD_DIM; d += 32 * attend_simds(ATTEND_HEAD_DIM))
            to[first + d] = finished ? head_sum(a, e, h, d) / e.row_sum : head_sum(a, e, h, d);
        if (!finished && thread_index < ATTEND_HEAD_DIM / span) {
            to[n_cols + first / span + thread_index] = e.row_max;
            to[n_cols + (n_cols + first) / span + thread_index] = e.row_sum;
        }
    }
}

// One part of one row, for HEADS query heads of one KV head. There is no loop over all its query
// heads: places of the sums, which do not change in it, would stay in registers. rows: the tape's rows of
// parts, or the result.
static void part_of_row(thread const struct split_attention &a, uint3 at, device f32 *rows, bool finished,
                        u32 thread_index)
{
    u32 n_heads = a.args->attend.n_heads, n_cols = n_heads * ATTEND_HEAD_DIM,
        group = n_heads / a.args->attend.pages.n_kv_heads, shares = attend_shares(group, ATTEND_HEAD_DIM),
        kv_head = at.y / shares, first = at.y % shares * HEADS, head = kv_head * group + first,
        n = min(group - first, HEADS), span = attend_span(ATTEND_HEAD_DIM);
    struct seen_range r = range_of(a, at.z);
    device f32 *row =
        rows + u64(at.z) * (finished ? n_cols : attend_parts_words(a.args->n_splits, n_cols, span));
    device f32 *to = finished ? row : row + ATTEND_PARTS_AT + at.x * attend_part_words(n_cols, span);
    device const f32 *q = a.q + u64(at.z) * n_cols + head * ATTEND_HEAD_DIM;

    if (at.x >= r.n_parts)
        return;
    if (!finished && at.x == 0 && at.y == 0 && thread_index == 0)
        *(device u32 *)row = r.n_parts;
    uint2 pages = uint2(at.x * r.part_pages, min((at.x + 1) * r.part_pages, r.n_pages));
    for (u32 i = thread_index; i < HEADS * ATTEND_HEAD_DIM; i += 32 * attend_simds(ATTEND_HEAD_DIM))
        a.heads[i] = i < n * ATTEND_HEAD_DIM ? q[i] * a.args->attend.scale : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    pages_add(a, r, pages, kv_head, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    heads_write(a, head, n, at.x, to, finished, thread_index);
}

#define ATTEND_BUFFERS                                                                               \
    constant struct attend_metal_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *q [[buffer(2)]], device const uchar *k_pages [[buffer(3)]],                \
        device const uchar *v_pages [[buffer(4)]], device const u32 *table [[buffer(5)]],            \
        device const f32 *sinks [[buffer(7)]]
#define ATTEND_AT                                                                        \
    threadgroup f32 *room [[threadgroup(0)]], uint3 at [[threadgroup_position_in_grid]], \
        uint thread_index [[thread_index_in_threadgroup]]
#define ATTEND_PART(to, finished)                                                 \
    threadgroup f32 weights[ATTEND_MOST_SIMDS * ATTEND_MOST_HEADS * PAGE_TOKENS]; \
    threadgroup f32 row_maxes[ATTEND_MOST_SIMDS * ATTEND_MOST_HEADS * 2];         \
    struct split_attention a = {};                                                \
    a.args = &args;                                                               \
    a.step = &step;                                                               \
    a.q = q;                                                                      \
    a.k_pages = k_pages;                                                          \
    a.v_pages = v_pages;                                                          \
    a.table = table;                                                              \
    a.sinks = sinks;                                                              \
    a.heads = room + attend_simds(ATTEND_HEAD_DIM) * HEADS * ATTEND_HEAD_DIM;     \
    a.room = room;                                                                \
    a.weights = weights;                                                          \
    a.row_maxes = row_maxes;                                                      \
    if (at.z < step.n_rows)                                                       \
    part_of_row(a, at, to, finished, thread_index)

// Grid: parts, KV heads times attend_shares, rows; 32 threads for each of attend_simds. parts: [rows,
// attend_parts_words], for attend_merge behind it.
kernel void attend_split(ATTEND_BUFFERS, device f32 *parts [[buffer(18)]], ATTEND_AT)
{
    ATTEND_PART(parts, false);
}

// The same; parts: for the product behind.
kernel void attend_parts(ATTEND_BUFFERS, device f32 *parts [[buffer(9)]], ATTEND_AT)
{
    ATTEND_PART(parts, false);
}

// The same where a row's past is one part.
kernel void attend_whole(ATTEND_BUFFERS, device f32 *out [[buffer(6)]], ATTEND_AT)
{
    ATTEND_PART(out, true);
}

// Grid: heads, rows; 64 threads.
kernel void attend_merge(constant struct attend_metal_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device f32 *out [[buffer(6)]],
                         device const f32 *parts [[buffer(18)]], uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    u32 n_cols = args.attend.n_heads * ATTEND_HEAD_DIM, span = attend_span(ATTEND_HEAD_DIM);

    if (at.y >= step.n_rows)
        return;
    parts += u64(at.y) * attend_parts_words(args.n_splits, n_cols, span);
    for (u32 d = thread_index; d < ATTEND_HEAD_DIM; d += 64)
        out[u64(at.y) * n_cols + at.x * ATTEND_HEAD_DIM + d] =
            parts_merged<f32>(parts, n_cols, span, at.x * ATTEND_HEAD_DIM + d);
}
