// attend_many.metal - attend.h for many rows and heads of up to 256 dimensions: simdgroup matrices and online
// softmax (FlashAttention-2; Dao, 2023) over pages.
//
// A threadgroup takes one head and 32 rows of the step, or 16 where heads are wide; two or four simdgroups
// share eight of them: each has its part of the dimensions, 64 at most, so that queries and sums fit the
// registers, and adds its part of the scores in threadgroup memory. Rows may belong to several sequences:
// runs of neighbouring positions of one slot are handled one after the other, from zeroed sums, so what one
// sequence holds never meets another's. One page, 16 tokens, is in threadgroup memory at a time, as float
// whatever the pages hold, of wide heads first its K and then its V; tokens that nobody sees are zero there.
// K pages lie [dim][token] and V pages [token][dim]: both are the right-hand matrix as they stand. Eight
// rows' sums are shrunk by a diagonal matrix. A row whose scores are not all finite, or close to the largest
// number, takes no part and comes out as NaN, so that it spoils no other row.
#include "device/metal/msl.h"
#include "ops/attend/attend_metal.h"
#include "device/metal/page_numbers.metalh"

constant uint ATTEND_HEAD_DIM [[function_constant(0)]];
constant uint ATTEND_K_FORMAT [[function_constant(1)]];
constant uint ATTEND_V_FORMAT [[function_constant(2)]];
constant uint ATTEND_HAS_SINKS [[function_constant(3)]]; // else there are none

#define LOWEST   (-1e30f)
#define MATRICES 8 // of a simdgroup: its part of the head's
#define SHARERS  attend_sharers(ATTEND_HEAD_DIM)
#define THREADS  (8 * ATTEND_TILE_ROWS)
// K and V of a page fit threadgroup memory together, beside the scores.
#define WHOLE_PAGE (ATTEND_HEAD_DIM <= ATTEND_TILE_DIM / 2)

struct rows_run {             // rows [first, end) of the step: one slot, neighbouring positions
    u32 first, end, position; // of the first row
    device const u32 *table;
};

struct tile_room {
    threadgroup f32 *k;                     // [head_dim, 16]
    threadgroup f32 *v;                     // [16, head_dim], or where k lies; both later hold the rows' sums
    threadgroup f32 *scores;                // the parts of those that share rows, [SHARERS][8, 16]
    threadgroup f32 *weights;               // this simdgroup's [8, 16]
    threadgroup f32 *diagonal;              // this simdgroup's [8, 8]
    u32 part;                               // which part of the dimensions this simdgroup has
    threadgroup const f32 *k_part, *v_part; // where that part begins in k and v
};

struct lane_row {             // what a lane knows of row lane / 4 of its simdgroup; four lanes agree
    u32 row, position, first; // it sees positions first to position
    f32 row_max, row_sum;
    bool alive; // in the run, and finite so far
};

// Dimensions of a part: the last may have less.
static u32 part_dims()
{
    return (ATTEND_HEAD_DIM / 8 + SHARERS - 1) / SHARERS * 8;
}
static bool has_matrix(u32 part, u32 i)
{
    return 8 * i < part_dims() &&
           (ATTEND_HEAD_DIM % (8 * SHARERS) == 0 || part * part_dims() + 8 * i < ATTEND_HEAD_DIM);
}

static struct rows_run run_find(constant struct attend_metal_args &args, constant struct step &step,
                                device const u32 *table, u32 first, u32 end)
{
    constant const u32 *positions = step_positions(&step), *slots = step_slots(&step);
    struct rows_run r = { first, first + 1, positions[first],
                          table + u64(slots[first]) * args.attend.pages.max_pages };

    while (r.end < end && slots[r.end] == slots[first] && positions[r.end] == r.position + r.end - first)
        r.end++;
    return r;
}

static u32 window_start(u32 window, u32 position)
{
    return window && position >= window ? position - window + 1 : 0;
}

// One page of one head into threadgroup memory, in the order in which it lies; tokens outside [seen.x,
// seen.y] become zero.
static void stage_k(device const uchar *k, uint2 seen, threadgroup f32 *to, u32 thread_index)
{
    u32 group = page_group(ATTEND_K_FORMAT), n = ATTEND_HEAD_DIM;

    for (u32 i = thread_index; i < n * PAGE_TOKENS; i += THREADS) {
        u32 token = i / group % PAGE_TOKENS, dim = i / group / PAGE_TOKENS * group + i % group;
        bool used = token >= seen.x && token <= seen.y;
        to[dim * PAGE_TOKENS + token] = used ? page_number(ATTEND_K_FORMAT, k, i, n, token, dim) : 0.0f;
    }
}
static void stage_v(device const uchar *v, uint2 seen, threadgroup f32 *to, u32 thread_index)
{
    u32 group = page_group(ATTEND_V_FORMAT), n = ATTEND_HEAD_DIM;

    for (u32 i = thread_index; i < n * PAGE_TOKENS; i += THREADS) {
        u32 token = i / group / n * group + i % group, dim = i / group % n;
        bool used = token >= seen.x && token <= seen.y;
        to[token * n + dim] = used ? page_number(ATTEND_V_FORMAT, v, i, n, token, dim) : 0.0f;
    }
}

// Below 2^126, so that a sum of four is finite. By the bits as they lie in memory: under fast math a compiler
// may take the result of arithmetic for finite.
static bool4 are_bounded(uint4 bits)
{
    return (bits & 0x7f800000u) < 0x7e800000u;
}

// Scores of this lane's four tokens become weights; returns what the row's sums shrink by.
static f32 weigh_scores(thread const struct tile_room &room, u32 page_position, f32 scale, u32 lane,
                        thread struct lane_row &r)
{
    float4 s = float4(0.0f);
    bool4 bounded = bool4(true), seen;
    f32 row_max = LOWEST;
    u32 bad = 0;

    UNROLL for (u32 i = 0; i < SHARERS; i++)
    {
        bounded = bounded && are_bounded(((threadgroup const uint4 *)room.scores)[32 * i + lane]);
        s += ((threadgroup const float4 *)room.scores)[32 * i + lane];
    }
    s *= scale;
    UNROLL for (u32 i = 0; i < 4; i++)
    {
        u32 position = page_position + lane % 4 * 4 + i;
        seen[i] = r.alive && position >= r.first && position <= r.position;
        bad |= u32(seen[i] && !bounded[i]);
        row_max = seen[i] ? max(row_max, s[i]) : row_max;
    }
    bad |= simd_shuffle_xor(bad, 1);
    bad |= simd_shuffle_xor(bad, 2);
    row_max = max(row_max, simd_shuffle_xor(row_max, 1));
    row_max = max(r.row_max, max(row_max, simd_shuffle_xor(row_max, 2)));
    r.alive = r.alive && !bad;
    if (!r.alive) { // its scores may hold anything
        s = float4(0.0f);
        seen = bool4(false);
        row_max = r.row_max;
    }
    f32 rescale = precise::exp(r.row_max - row_max), sum = 0.0f;
    UNROLL for (u32 i = 0; i < 4; i++)
    {
        s[i] = seen[i] ? precise::exp(s[i] - row_max) : 0.0f;
        sum += s[i];
    }
    ((threadgroup float4 *)room.weights)[lane] = s;
    sum += simd_shuffle_xor(sum, 1);
    r.row_sum = r.row_sum * rescale + sum + simd_shuffle_xor(sum, 2);
    r.row_max = row_max;
    return rescale;
}

// This simdgroup's part of the scores of one staged page.
static void page_score(thread const struct tile_room &room, thread const simdgroup_float8x8 (&q)[MATRICES])
{
    simdgroup_float8x8 scores, part;

    for (u32 j = 0; j < 2; j++) {
        scores = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        UNROLL for (u32 i = 0; i < MATRICES; i++)
        {
            if (!has_matrix(room.part, i))
                continue;
            simdgroup_load(part, room.k_part + i * 8 * PAGE_TOKENS + 8 * j, PAGE_TOKENS);
            simdgroup_multiply_accumulate(scores, q[i], part, scores);
        }
        simdgroup_store(scores, room.scores + room.part * 8 * PAGE_TOKENS + 8 * j, PAGE_TOKENS);
    }
}

// All parts are there: the page's values join this simdgroup's sums.
static void page_add(thread const struct tile_room &room, u32 page_position, f32 scale, u32 lane,
                     thread simdgroup_float8x8 (&sums)[MATRICES], thread struct lane_row &r)
{
    simdgroup_float8x8 weights, diagonal, part;
    f32 rescale = weigh_scores(room, page_position, scale, lane, r);

    for (u32 i = 0; i < 2; i++) {
        u32 at = 2 * lane + i; // in row lane / 4 of the diagonal matrix too
        room.diagonal[at] = at / 8 == at % 8 ? rescale : 0.0f;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(diagonal, room.diagonal, 8);
    UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.part, i))
        simdgroup_multiply(sums[i], diagonal, sums[i]);
    for (u32 j = 0; j < 2; j++) {
        simdgroup_load(weights, room.weights + 8 * j, PAGE_TOKENS);
        UNROLL for (u32 i = 0; i < MATRICES; i++)
        {
            if (!has_matrix(room.part, i))
                continue;
            simdgroup_load(part, room.v_part + j * 8 * ATTEND_HEAD_DIM + 8 * i, ATTEND_HEAD_DIM);
            simdgroup_multiply_accumulate(sums[i], weights, part, sums[i]);
        }
    }
}

// The sum that a row's sums are divided by: with the head's sink, which is no infinity even where it is far
// above all scores.
static f32 total_of(thread const struct lane_row &r, device const f32 *sinks, u32 head)
{
    return ATTEND_HAS_SINKS ? r.row_sum + precise::exp(min(sinks[head] - r.row_max, 80.0f)) : r.row_sum;
}

// Room of a simdgroup in the threadgroup's arrays.
static struct tile_room room_of(threadgroup f32 *shared, threadgroup f32 *scores, threadgroup f32 *weights,
                                threadgroup f32 *diagonals, u32 simd)
{
    u32 part = simd % SHARERS, v_at = WHOLE_PAGE ? ATTEND_HEAD_DIM * PAGE_TOKENS : 0;
    struct tile_room room = { shared,
                              shared + v_at,
                              scores + simd / SHARERS * SHARERS * 8 * PAGE_TOKENS,
                              weights + simd * 8 * PAGE_TOKENS,
                              diagonals + simd * 64,
                              part,
                              shared + part * part_dims() * PAGE_TOKENS,
                              shared + v_at + part * part_dims() };

    return room;
}

// Grid: attend_tile_rows, heads; 256 threads. `shared` holds as many rows of head_dim floats, or a page. By
// the count (2026-11-29-agx-attention.md) a core holds 384 threads for heads of 128 and 256, 448 for heads of
// 64, below 512: queries and sums of eight rows are kept in registers from page to page.
kernel void attend_many(constant struct attend_metal_args &args [[buffer(0)]],
                        constant struct step &step [[buffer(1)]], device const f32 *q [[buffer(2)]],
                        device const uchar *k_pages [[buffer(3)]], device const uchar *v_pages [[buffer(4)]],
                        device const u32 *table [[buffer(5)]], device f32 *out [[buffer(6)]],
                        device const f32 *sinks [[buffer(7)]], threadgroup f32 *shared [[threadgroup(0)]],
                        uint3 at [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup f32 scores[8 * 8 * PAGE_TOKENS]; // the emulator wants one array a line
    threadgroup f32 weights[8 * 8 * PAGE_TOKENS];
    threadgroup f32 diagonals[8 * 64];
    threadgroup f32 row_sum[ATTEND_TILE_ROWS]; // 0: not finite
    u32 simd = thread_index / 32, lane = thread_index % 32, head = at.y, dim = ATTEND_HEAD_DIM;
    u32 tile_rows = attend_tile_rows(dim), tile = at.x * tile_rows, end = min(tile + tile_rows, step.n_rows);
    u32 own = simd / SHARERS * 8, first = tile + own;
    u32 kv_head = head / (args.attend.n_heads / args.attend.pages.n_kv_heads);
    struct tile_room room = room_of(shared, scores, weights, diagonals, simd);
    u32 corner = own * dim + room.part * part_dims(); // of this simdgroup's rows and dimensions in the tile
    simdgroup_float8x8 mine[MATRICES], sums[MATRICES];

    if (tile >= end)
        return;
    for (u32 i = thread_index; i < tile_rows * dim; i += THREADS) {
        u32 row = tile + i / dim;
        shared[i] = row < end ? q[(u64(row) * args.attend.n_heads + head) * dim + i % dim] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.part, i))
        simdgroup_load(mine[i], shared + corner + 8 * i, dim);
    for (u32 row = tile; row < end;) {
        struct rows_run run = run_find(args, step, table, row, end);
        struct lane_row r = { first + lane / 4, 0, 0, LOWEST, 0.0f, false };
        u32 last_position = run.position + (run.end - run.first) - 1,
            start = window_start(args.attend.window, run.position);
        r.alive = r.row >= run.first && r.row < run.end;
        r.position = run.position + (r.alive ? r.row - run.first : 0);
        r.first = window_start(args.attend.window, r.position);
        UNROLL for (u32 i = 0; i < MATRICES; i++) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        for (u32 page = start / PAGE_TOKENS; page <= last_position / PAGE_TOKENS; page++) {
            u32 position = page * PAGE_TOKENS;
            u64 k_at = page_head_at(args.attend.pages, ATTEND_K_FORMAT, run.table[page], kv_head),
                v_at = page_head_at(args.attend.pages, ATTEND_V_FORMAT, run.table[page], kv_head);
            uint2 seen = uint2(start > position ? start - position : 0,
                               min(last_position - position, PAGE_TOKENS - 1));
            threadgroup_barrier(mem_flags::mem_threadgroup);
            stage_k(k_pages + k_at, seen, room.k, thread_index);
            if (WHOLE_PAGE)
                stage_v(v_pages + v_at, seen, room.v, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            bool sees = first < run.end && first + 8 > run.first &&
                        position <= run.position + (min(first + 8, run.end) - run.first) - 1;
            if (sees)
                page_score(room, mine);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (!WHOLE_PAGE) {
                stage_v(v_pages + v_at, seen, room.v, thread_index);
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            if (sees)
                page_add(room, position, args.attend.scale, lane, sums, r);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.part, i))
            simdgroup_store(sums[i], shared + corner + 8 * i, dim);
        if (lane % 4 == 0 && room.part == 0)
            row_sum[own + lane / 4] = r.alive ? total_of(r, sinks, head) : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (u32 i = thread_index; i < (run.end - run.first) * dim; i += THREADS) {
            u32 of = run.first - tile + i / dim, d = i % dim; // of: row of the tile
            f32 v = row_sum[of] != 0.0f ? shared[of * dim + d] / row_sum[of] : as_type<f32>(0x7fc00000u);
            out[(u64(tile + of) * args.attend.n_heads + head) * dim + d] = v;
        }
        row = run.end;
    }
}
