// attend_many.metal - attend.h for many rows and heads of up to 128 dimensions: simdgroup matrices and online
// softmax (FlashAttention-2; Dao, 2023) over pages.
//
// A threadgroup takes one head and 32 rows of the step, two simdgroups eight of them: each has half of the
// dimensions, so that queries and sums fit the registers, and adds its part of the scores in threadgroup
// memory. Rows may belong to several sequences: runs of neighbouring positions of one slot are handled one
// after the other, from zeroed sums, so what one sequence holds never meets another's. One page, 16 tokens,
// is in threadgroup memory at a time, as float whatever the pages hold; tokens that nobody sees are zero
// there. K pages lie [dim][token] and V pages [token][dim]: both are the right-hand matrix as they stand.
// Eight rows' sums are shrunk by a diagonal matrix. A row whose scores are not all finite, or close to the
// largest number, takes no part and comes out as NaN, so that it spoils no other row.
#include "device/metal/msl.h"
#include "ops/attend/attend_metal.h"
#include "device/metal/page_numbers.metalh"

constant uint ATTEND_HEAD_DIM [[function_constant(0)]];
constant uint ATTEND_K_FORMAT [[function_constant(1)]];
constant uint ATTEND_V_FORMAT [[function_constant(2)]];
constant uint ATTEND_HAS_SINKS [[function_constant(3)]]; // else there are none

#define LOWEST   (-1e30f)
#define MATRICES (ATTEND_TILE_DIM / 16) // of a simdgroup: half of the head's
#define THREADS  (8 * ATTEND_TILE_ROWS)

struct rows_run {             // rows [first, end) of the step: one slot, neighbouring positions
    u32 first, end, position; // of the first row
    device const u32 *table;
};

struct tile_room {
    threadgroup f32 *k;                     // [head_dim, 16]
    threadgroup f32 *v;                     // [16, head_dim]; k and v together later hold 32 rows of sums
    threadgroup f32 *scores;                // the two simdgroups' parts, [2][8, 16]
    threadgroup f32 *weights;               // this simdgroup's [8, 16]
    threadgroup f32 *diagonal;              // this simdgroup's [8, 8]
    u32 half;                               // which half of the dimensions this simdgroup has
    threadgroup const f32 *k_half, *v_half; // where that half begins in k and v
};

struct lane_row {             // what a lane knows of row lane / 4 of its simdgroup; four lanes agree
    u32 row, position, first; // it sees positions first to position
    f32 row_max, row_sum;
    bool alive; // in the run, and finite so far
};

// Dimensions of a half: the second has eight less where their number is no multiple of 16.
static u32 half_dims()
{
    return (ATTEND_HEAD_DIM + 8) / 16 * 8;
}
static bool has_matrix(u32 half, u32 i)
{
    return 8 * i < half_dims() && (ATTEND_HEAD_DIM % 16 == 0 || half == 0 || 8 * i + 8 < half_dims());
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
static void page_stage(device const uchar *k, device const uchar *v, uint2 seen,
                       thread const struct tile_room &room, u32 thread_index)
{
    u32 k_group = page_group(ATTEND_K_FORMAT), v_group = page_group(ATTEND_V_FORMAT), n = ATTEND_HEAD_DIM;

    for (u32 i = thread_index; i < n * PAGE_TOKENS; i += THREADS) {
        u32 token = i / k_group % PAGE_TOKENS, dim = i / k_group / PAGE_TOKENS * k_group + i % k_group;
        bool used = token >= seen.x && token <= seen.y;
        room.k[dim * PAGE_TOKENS + token] = used ? page_number(ATTEND_K_FORMAT, k, i, n, token, dim) : 0.0f;
        token = i / v_group / n * v_group + i % v_group;
        dim = i / v_group % n;
        used = token >= seen.x && token <= seen.y;
        room.v[token * n + dim] = used ? page_number(ATTEND_V_FORMAT, v, i, n, token, dim) : 0.0f;
    }
}

// Below 2^127, so that a sum of two is finite. By the bits as they lie in memory: under fast math a compiler
// may take the result of arithmetic for finite.
static bool is_bounded(u32 bits)
{
    return (bits & 0x7f800000u) < 0x7f000000u;
}

// Scores of this lane's four tokens become weights; returns what the row's sums shrink by.
static f32 weigh_scores(thread const struct tile_room &room, u32 page_position, f32 scale, u32 lane,
                        thread struct lane_row &r)
{
    threadgroup const float4 *parts = (threadgroup const float4 *)room.scores;
    uint4 bits = ((threadgroup const uint4 *)parts)[lane],
          more = ((threadgroup const uint4 *)parts)[32 + lane];
    float4 s = (parts[lane] + parts[32 + lane]) * scale;
    bool4 seen;
    f32 row_max = LOWEST;
    u32 bad = 0;

    UNROLL for (u32 i = 0; i < 4; i++)
    {
        u32 position = page_position + lane % 4 * 4 + i;
        seen[i] = r.alive && position >= r.first && position <= r.position;
        bad |= u32(seen[i] && !(is_bounded(bits[i]) && is_bounded(more[i])));
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
            if (!has_matrix(room.half, i))
                continue;
            simdgroup_load(part, room.k_half + i * 8 * PAGE_TOKENS + 8 * j, PAGE_TOKENS);
            simdgroup_multiply_accumulate(scores, q[i], part, scores);
        }
        simdgroup_store(scores, room.scores + room.half * 8 * PAGE_TOKENS + 8 * j, PAGE_TOKENS);
    }
}

// Both parts are there: the page's values join this simdgroup's sums.
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
    UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.half, i))
        simdgroup_multiply(sums[i], diagonal, sums[i]);
    for (u32 j = 0; j < 2; j++) {
        simdgroup_load(weights, room.weights + 8 * j, PAGE_TOKENS);
        UNROLL for (u32 i = 0; i < MATRICES; i++)
        {
            if (!has_matrix(room.half, i))
                continue;
            simdgroup_load(part, room.v_half + j * 8 * ATTEND_HEAD_DIM + 8 * i, ATTEND_HEAD_DIM);
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

// Grid: 32 rows, heads; 256 threads. `shared` holds 32 head_dim floats. By the count
// (2026-11-22-agx-kernel-counts.md) a core holds 384 threads for heads of 128 and 448 for heads of 64, below
// 512: queries and sums of eight rows are kept in registers from page to page.
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
    u32 simd = thread_index / 32, lane = thread_index % 32, head = at.y, tile = at.x * ATTEND_TILE_ROWS;
    u32 end = min(tile + ATTEND_TILE_ROWS, step.n_rows), dim = ATTEND_HEAD_DIM;
    u32 own = simd / 2 * 8, first = tile + own, group = args.attend.n_heads / args.attend.pages.n_kv_heads;
    struct tile_room room = { shared,
                              shared + dim * PAGE_TOKENS,
                              scores + simd / 2 * 16 * PAGE_TOKENS,
                              weights + simd * 8 * PAGE_TOKENS,
                              diagonals + simd * 64,
                              simd % 2,
                              shared + simd % 2 * half_dims() * PAGE_TOKENS,
                              shared + dim * PAGE_TOKENS + simd % 2 * half_dims() };
    u32 corner = own * dim + room.half * half_dims(); // of this simdgroup's rows and dimensions in the tile
    simdgroup_float8x8 mine[MATRICES], sums[MATRICES];

    if (tile >= end)
        return;
    for (u32 i = thread_index; i < ATTEND_TILE_ROWS * dim; i += THREADS) {
        u32 row = tile + i / dim;
        shared[i] = row < end ? q[(u64(row) * args.attend.n_heads + head) * dim + i % dim] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.half, i))
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
            uint2 seen = uint2(start > position ? start - position : 0,
                               min(last_position - position, PAGE_TOKENS - 1));
            threadgroup_barrier(mem_flags::mem_threadgroup);
            page_stage(
                k_pages + page_head_at(args.attend.pages, ATTEND_K_FORMAT, run.table[page], head / group),
                v_pages + page_head_at(args.attend.pages, ATTEND_V_FORMAT, run.table[page], head / group),
                seen, room, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            bool sees = first < run.end && first + 8 > run.first &&
                        position <= run.position + (min(first + 8, run.end) - run.first) - 1;
            if (sees)
                page_score(room, mine);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (sees)
                page_add(room, position, args.attend.scale, lane, sums, r);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        UNROLL for (u32 i = 0; i < MATRICES; i++) if (has_matrix(room.half, i))
            simdgroup_store(sums[i], shared + corner + 8 * i, dim);
        if (lane % 4 == 0 && room.half == 0)
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
