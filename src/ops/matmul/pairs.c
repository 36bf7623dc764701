// pairs.c - chooses the kernels of a matrix product; see pairs.h.
//
// bf16 weights on Hopper, 2 rows and more: gemm_hopper with tiles in shared memory; more than 128 rows of a matmul or of gate and up:
// gemm_rows, where its turns are nearly whole. Else one row of activations: gemv_ring on Hopper and later, or gemv; both make their row
// ready themselves. 2 to 32 with quantised weights on Hopper and later, or to 64 without gemm_hopper: the rows are made ready once, then
// gemm_ring. Else 2 to 16: gemm_few. More: gemm_hopper where this build and the device have it, else gemm_many. exact, fp32 weights and odd
// widths: gemv in fp32, row by row. What counts is the most rows that the tape can get.
//
// Measured on an H200, 8B Q4_0, tokens/s of as many sequences by gemm_ring and by others: 8 rows 3,829 and 2,227 (gemm_few), 16 rows 5,788
// and 3,482; 24 rows 5,253 and 3,493 (gemm_hopper), 32 rows 6,115 and 4,528; 40 rows of a tape for 64 5,619 and 5,417, 48 rows 6,135 and
// 6,367, 64 rows 6,326 and 8,120, with Q4_K 4,105 and 7,939. Rows of few columns go through gemm_few up to 16: SmolLM 8,201 and 10,067,
// 13,732 and 17,261. One row of 14,336 bf16 columns: gemv_ring 30.4 us, tiles 32.2; of 32,768: 81 and 89.
#include "ops/matmul/pairs.h"
#include "ops/matmul/gemv_ring.h"
#include "ops/matmul/vendor_parts.h"
#include "ops/ops.h"

enum {
    FEW_ROWS = 16,
    MOST_RING_ROWS = 64,
    MOST_RING_ROWS_OF_HOPPER = 32, // where there is gemm_hopper
    LEAST_RING_COLS = 2048,        // for up to FEW_ROWS rows
    LEAST_WIDE_COLS = 2048,        // for gemm_hopper's tiles of 256 rows
    LEAST_ROWS_COLS = 1024,        // for gemm_rows
    LEAST_ALONE_COLS = 2048,       // for gemv_ring's kernels of that name
    RING_BYTES = 120 * 1024,       // of gemm_ring, before the rows are there, or two stages
    GEMV_WARPS = 16,
    FEW_PAIRS = 16,
    MANY_PAIRS = 64,
    WIDE_PAIRS = 96,
    GROUP_ROWS = 64,
    GEMV_RING_STATIC = 512, // bytes of shared memory
    RING_STAGE = 48 * 1024, // of gemv_ring, at most
    WIDE_STAGE = 80 * 1024,
    MANY_STAGES = 12,
    MANY_SHARED = 5 * 128 * READY_ROWS
};

static const char *format_name(u32 format)
{
    static const char *const names[] = { "f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0",   "q5_1",   "q8_0",
                                         "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4" };
    CHECK(format < sizeof names / sizeof *names);
    return names[format];
}

static u32 divide_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}

enum way { WAY_INT8, WAY_PLAIN, WAY_EXACT, WAY_RING, WAY_FEW, WAY_MANY, WAY_TILES };

struct part { // the pairs of one launch have one format
    u32 format, max_rows;
    enum way way;
};

static u32 gemm_stage_bytes(u32 format, u32 share_blocks)
{
    u32 cols = share_blocks * 32, n_rows = 16 / ring_tile_warps(share_blocks) * RING_TILE_ROWS;
    u32 bytes = n_rows * (ring_pitch(planes_quants_bytes(format, cols)) + ring_pitch(planes_high_bytes(format, cols)) +
                          ring_pitch(planes_scales_bytes(format, cols)) + ring_pitch(planes_deltas_bytes(format, cols)));
    return divide_up(bytes, 128) * 128;
}

// The ring of gemm_ring.cu: as few shares of the columns as leave room for two stages beside the activations. Depends on the format
// and the columns alone, since the order of the sums does. Eight sequences of an 8B, tokens/s with 3, 4 and 5 stages, 3 of them before the
// rows are there: Q4_0 4,160, 4,147, 4,105; Q4_K, which needs longer for one, 3,676, 3,721, 3,699.
static bool plan_gemm_ring(const struct cuda_plan *p, struct part part, u32 n_cols, struct pairs_ring *ring, u32 *shared)
{
    u32 format = part.format, eights = part.max_rows > 8 ? 2 : 1;
    u64 row[] = { planes_quants_bytes(format, n_cols), planes_high_bytes(format, n_cols), planes_scales_bytes(format, n_cols),
                  planes_deltas_bytes(format, n_cols) };
    u32 n_blocks = n_cols / 32;

    if (p->device.capability < 90 || format <= PLANES_BF16 || n_cols % 64 != 0 || (row[1] | row[2] | row[3]) % 4 != 0)
        return false;
    for (u32 n = divide_up(n_blocks, 128); n <= 32; n++) {
        u32 share = divide_up(divide_up(n_blocks, n), 8) * 8, stage = gemm_stage_bytes(format, share);
        u32 before = (eights - 1) * share * READY_INT8_BYTES + ring_sums_bytes(eights) + ring_scales_bytes(format);
        u32 room = p->device.shared_bytes, depth = before < room ? (room - before) / stage : 0;
        if (depth < 2)
            continue;
        u32 cols = share * 32, early = RING_BYTES / stage < 2 ? 2 : RING_BYTES / stage;
        u32 super = planes_has_super_blocks(format), most = early + super;
        u64 odd = row[1] | planes_high_bytes(format, cols) | row[2] | planes_scales_bytes(format, cols) | row[3] |
                  planes_deltas_bytes(format, cols);
        depth = depth < most ? depth : most;
        *ring = (struct pairs_ring){ .depth = depth < RING_MOST_DEPTH ? depth : RING_MOST_DEPTH,
                                     .early = early,
                                     .stage_bytes = stage,
                                     .words = super || odd % 16 != 0,
                                     .share_blocks = share,
                                     .n_shares = divide_up(n_blocks, share),
                                     .eights = eights };
        *shared = before + ring->depth * stage;
        return true;
    }
    return false;
}

// gemm_hopper's view of matrix m: pairs lie a row or two apart, the rows of a pair too or as far as gate and up or half a head.
// A box is some groups of pairs of one matrix, and of one head where these are halves.
struct view_box {
    u32 group, n_groups; // pairs of a group: 8, or 4 for gemm_rows
};
static bool view_of(const struct pairs_params *params, u32 m, struct view_box box, struct cuda_view *view)
{
    const struct planes *w = &params->w[m];
    u64 row = (u64)params->n_cols * 2, gate = w->quants, up = params->w[1].quants;
    u32 heads = 1, n_pairs = w->n_rows / 2, head_dim = params->rope.pages.head_dim;
    bool halves = params->mode == PAIRS_ROPE && params->rope.pairs == ROPE_HALVES;
    u64 apart = halves ? row * (head_dim / 2) : row, next = halves ? row : 2 * row;

    if (params->mode == PAIRS_GATED) {
        apart = up > gate ? up - gate : gate - up;
        next = row;
        n_pairs = w->n_rows;
    } else if (params->mode >= PAIRS_ROPE && n_pairs % 32 != 0) {
        return false;
    } else if (halves) {
        heads = w->n_rows / head_dim;
        n_pairs = head_dim / 2;
        if (n_pairs % 32 != 0 || params->rope.n_dims != head_dim)
            return false;
    }
    if (w->n_rows % 16 != 0 || apart >> 40 != 0 || apart % 16 != 0)
        return false;
    *view = (struct cuda_view){ .at = params->mode == PAIRS_GATED && up < gate ? up : gate,
                                .dims = { params->n_cols, box.group, 2, n_pairs / box.group, heads },
                                .strides = { next, apart, box.group * next, row * w->n_rows / heads },
                                .box = { 64, box.group, 2, box.n_groups, 1 } };
    return true;
}

static const struct view_box groups_of_eight = { 8, 4 };

static bool plan_tiles(const struct cuda_plan *p, const struct pairs_params *params, u32 m, struct view_box box,
                       struct tiles_params *tiles)
{
    struct cuda_view view;
    bool halves = params->rope.pages.k_format == KV_F16 && params->rope.pages.v_format == KV_F16;

    if (p->device.capability < 90 || params->w[m].format != PLANES_BF16 || (params->mode == PAIRS_ROPE && !halves) ||
        (params->mode == PAIRS_GATED && params->w[1 - m].format != PLANES_BF16))
        return false;
    m = params->mode == PAIRS_GATED ? 0 : m; // both lie in one view
    tiles->swapped = params->mode == PAIRS_GATED && params->w[1].quants < params->w[0].quants;
    if (!view_of(params, m, box, &view) || !cuda_has_kernel(p, "gemm_tiles_8") || !cuda_view_encode(p, &view, &tiles->w[m]))
        return false;
    tiles->eights[m] = (u32)view.dims[3];
    return true;
}

static bool has_hopper(const struct cuda_plan *p, u32 tile_rows, u32 format)
{
    char name[32];

    snprintf(name, sizeof name, "gemm_hopper_%u_%s", tile_rows, format_name(format));
    return p->device.capability >= 90 && cuda_has_kernel(p, name);
}

static bool worth_ring(const struct cuda_plan *p, u32 max_rows, u32 n_cols, u32 format)
{
    if (max_rows <= FEW_ROWS)
        return n_cols >= LEAST_RING_COLS;
    if (p->tape.gemm == GEMM_VENDOR)
        return false;
    return max_rows <= MOST_RING_ROWS_OF_HOPPER || (max_rows <= MOST_RING_ROWS && !has_hopper(p, 128, format));
}

// invariant: one kernel for any number of rows. gemm_ring could be it: in one measurement faster for one row (8B 304 tokens/s, not
// 289) and slower for a prompt of 512 (5,431, not 6,544; SmolLM 44,810, not 101,470).
static enum way way_of(const struct cuda_plan *p, const struct pairs_plan *product, u32 m, u32 max_rows)
{
    bool invariant = p->tape.invariant;
    u32 format = product->params.w[m].format;
    struct tiles_params tiles;
    u32 n_cols = product->params.n_cols, odd = n_cols % 32 != 0;

    if (!invariant && !product->exact && !odd && (max_rows > 1 || n_cols > MOST_LONG_COLS) &&
        plan_tiles(p, &product->params, m, groups_of_eight, &tiles))
        return WAY_TILES;
    if (format == PLANES_F32 || (format <= PLANES_BF16 && (product->exact || (max_rows == 1 && !invariant) || odd)))
        return WAY_PLAIN;
    if (product->exact)
        return WAY_EXACT;
    struct pairs_ring ring;
    u32 shared;

    if (invariant)
        return WAY_FEW;
    if (max_rows == 1)
        return WAY_INT8;
    if (worth_ring(p, max_rows, n_cols, format) &&
        plan_gemm_ring(p, (struct part){ format, max_rows, WAY_RING }, n_cols, &ring, &shared))
        return WAY_RING;
    return max_rows <= FEW_ROWS ? WAY_FEW : WAY_MANY;
}

// How many lanes share a pair: fewer where a row has so few blocks that most of a warp would idle, and there are pairs enough.
static u32 lanes_of(u32 n_blocks, u32 n_pairs, u32 n_sms)
{
    u32 best = 32, least = divide_up(n_blocks, 32) * 32;

    for (u32 lanes = 16; lanes >= 8 && n_pairs / (32 / lanes) >= 4 * n_sms * GEMV_WARPS; lanes /= 2) {
        u32 slots = divide_up(n_blocks, lanes) * lanes;
        if (slots < least) {
            least = slots;
            best = lanes;
        }
    }
    return best;
}

static u32 stage_bytes(u32 format, u32 n_cols, u32 n_rows)
{
    u32 bytes = ring_part_bytes(n_rows, planes_quants_bytes(format, n_cols)) +
                ring_part_bytes(n_rows, planes_high_bytes(format, n_cols)) +
                ring_part_bytes(n_rows, planes_scales_bytes(format, n_cols)) +
                ring_part_bytes(n_rows, planes_deltas_bytes(format, n_cols));
    return divide_up(bytes, 128) * 128;
}

// No two blocks of gemv_ring share a multiprocessor: there is no room, or rows are so long that registers are worth more than a launch that fills
// its ring beside the one before. Shared and alone, tokens/s: TinyLlama 2,134 and 2,391, 8B Q4_0 668 and 694, Q4_K 629 and 661; SmolLM, of 576
// columns, 2,731 and 2,528.
static bool runs_alone(const struct cuda_plan *p, u32 n_cols, u32 shared)
{
    return n_cols >= LEAST_ALONE_COLS || 2 * (shared + GEMV_RING_STATIC) > p->device.shared_bytes;
}

// Stages for so many rounds: all of a block's, or what fits. Returns the bytes of shared memory; 0: fewer than two stages fit.
static u32 plan_stages(const struct cuda_plan *p, struct pairs_params *params, u32 format, u32 rounds)
{
    struct pairs_ring *ring = &params->ring;
    u32 each = rounds * RING_THREADS >> ring->lanes_log2, n_cols = params->n_cols;
    u32 row = format <= PLANES_BF16 ? n_cols * 4 : n_cols / 32 * 44,
        before = divide_up(row + (ring->most_pairs * 8 << ring->lanes_log2 >> 5), 128) * 128;
    u32 room = p->device.shared_bytes, n_stages = divide_up(ring->most_pairs, each), depth;

    ring->rounds = rounds;
    ring->stage_bytes = stage_bytes(format, n_cols, 2 * each);
    depth = before < room ? (room - before) / ring->stage_bytes : 0;
    depth = depth < RING_MOST_DEPTH ? depth : RING_MOST_DEPTH;
    ring->depth = depth < n_stages ? depth : n_stages;
    return ring->depth > 1 || (ring->depth == 1 && n_stages == 1) ? before + ring->depth * ring->stage_bytes : 0;
}

// Lanes that share a pair: as few as keep a stage within RING_STAGE and leave a lane at most two blocks. Where rows are so short that a stage has
// room for them, and stages are many, a warp takes two pairs at a time, with more to do between two waits: Q2_K, 32,768 pairs of 5,120
// columns, 44.0 us and 33.9. Returns the bytes of shared memory, or 0.
static u32 plan_blocks(const struct cuda_plan *p, struct pairs_params *params, u32 format)
{
    struct pairs_ring *ring = &params->ring;
    u32 plain = format <= PLANES_BF16, n_cols = params->n_cols, log2 = 5, shared = 0;

    while (log2 < 9 && (stage_bytes(format, n_cols, 2 * RING_THREADS >> log2) > RING_STAGE || (!plain && 64u << log2 < n_cols)))
        log2++;
    if (!plain && 64u << log2 < n_cols)
        return 0;
    ring->lanes_log2 = log2;
    u32 doubled = 2 * RING_THREADS >> log2; // pairs of a stage of two rounds
    if (RING_IN_ROUNDS >> format & 1 && log2 > 5 && ring->most_pairs >= MANY_STAGES * doubled &&
        stage_bytes(format, n_cols, 2 * doubled) <= RING_STAGE)
        shared = plan_stages(p, params, format, 2);
    return runs_alone(p, n_cols, shared) && shared > 0 ? shared : plan_stages(p, params, format, 1);
}

// Q2_K, where two blocks a lane would leave many lanes without: as few lanes as keep a stage within WIDE_STAGE. Streamed, 5,120 columns 3,455 GB/s
// of the file's bytes and 4,331, 14,336 columns 3,890 and 4,304; 4,096, which leave none, 4,345 and 3,850.
static u32 plan_wide(const struct cuda_plan *p, struct pairs_params *params, u32 format)
{
    u32 n_blocks = params->n_cols / 32, lanes = 32, log2 = 5;

    while (2 * lanes < n_blocks)
        lanes *= 2;
    if (format != PLANES_Q2_K || params->n_cols < LEAST_ALONE_COLS || n_blocks * 10 >= 2 * lanes * 9)
        return 0;
    while (log2 < 9 && stage_bytes(format, params->n_cols, 2 * RING_THREADS >> log2) > WIDE_STAGE)
        log2++;
    params->ring.lanes_log2 = log2;
    u32 each = RING_THREADS >> log2;
    return params->ring.most_pairs >= MANY_STAGES * each ? plan_stages(p, params, format, 1) : 0;
}

// A stage is a part of a pair.
static u32 plan_long(const struct cuda_plan *p, struct pairs_params *params)
{
    struct pairs_ring *ring = &params->ring;
    u32 sums = divide_up(ring->most_pairs * 2 * 4 * RING_THREADS / 32, 128) * 128, room = p->device.shared_bytes;

    ring->stage_bytes = divide_up(2 * long_part_eights(params->n_cols) * 16, 128) * 128;
    ring->depth = sums < room ? (room - sums) / ring->stage_bytes : 0;
    ring->depth = ring->depth < RING_MOST_DEPTH ? ring->depth : RING_MOST_DEPTH;
    return ring->depth > 1 ? sums + ring->depth * ring->stage_bytes : 0;
}

// The ring of gemv_ring.cu; returns which of its kernels, or NULL. Stages that are asked for early stand in the way of the row: tokens/s with 2, 3
// or all of them are 614, 628, 618 for 8B Q4_0, 577, -, 559 for Q4_K, and 1,996, 1,949, 1,946 for TinyLlama.
static const char *plan_ring(const struct cuda_plan *p, struct pairs_params *params, struct part part, struct cuda_shape *shape)
{
    u32 plain = part.format <= PLANES_BF16, n_cols = params->n_cols, shared;
    u32 grid = params->n_pairs < p->device.n_sms ? params->n_pairs : p->device.n_sms;
    u64 odd = planes_high_bytes(part.format, n_cols) | planes_scales_bytes(part.format, n_cols) |
              planes_deltas_bytes(part.format, n_cols);
    const char *kind = "wide_";

    if (p->device.capability < 90 || part.max_rows > 1 || p->tape.invariant || n_cols % (plain ? 8 : 32) != 0 || odd % 4 != 0)
        return NULL;
    params->ring = (struct pairs_ring){
        .early = n_cols >= 4096 && !planes_has_super_blocks(part.format) ? 3 : 2,
        .most_pairs = divide_up(params->n_pairs, grid),
        .block_pairs = params->n_pairs / grid,
        .more = params->n_pairs % grid,
        .apart = params->mode == PAIRS_GATED || (params->mode == PAIRS_ROPE && params->rope.pairs == ROPE_HALVES),
        .words = odd % 16 != 0,
    };
    shared = plan_wide(p, params, part.format);
    if (shared == 0) {
        shared = plan_blocks(p, params, part.format);
        kind = runs_alone(p, n_cols, shared) ? "alone_" : "";
    }
    if (shared == 0 && plain && n_cols <= MOST_LONG_COLS) {
        shared = plan_long(p, params);
        kind = "long_";
    }
    *shape = (struct cuda_shape){ { grid, 1, 1 }, GEMV_RING_THREADS, shared };
    return shared > 0 ? kind : NULL;
}

static void launch_gemv(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    char name[32];
    u32 n_blocks = divide_up(params->n_cols, 32),
        warps = params->n_pairs > GEMV_WARPS * p->device.n_sms ? 2 * GEMV_WARPS : GEMV_WARPS;
    u32 grid = params->n_pairs < p->device.n_sms ? params->n_pairs : p->device.n_sms;
    enum way way = part.way;
    struct cuda_shape shape = { { grid, part.max_rows, 1 }, warps * 32, n_blocks * (way == WAY_INT8 ? 44 : 36 * 4) }, ring_shape;
    bool rings = way == WAY_INT8 || (way == WAY_PLAIN && part.format != PLANES_F32);
    const char *ring = rings ? plan_ring(p, params, part, &ring_shape) : NULL;

    if (ring) {
        snprintf(name, sizeof name, "gemv_ring_%s%s", ring, format_name(part.format));
        cuda_launch_add(p, name, ring_shape, params, sizeof *params);
        return;
    }
    params->lanes = way == WAY_INT8 ? lanes_of(n_blocks, params->n_pairs, p->device.n_sms) : 32;
    snprintf(name, sizeof name, "gemv_%s%s",
             way == WAY_INT8    ? "int8_"
             : way == WAY_PLAIN ? "plain"
                                : "exact",
             way == WAY_INT8 ? format_name(part.format) : "");
    cuda_launch_add(p, name, shape, params, sizeof *params);
}

static void launch_few(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    char name[32];

    snprintf(name, sizeof name, "gemm_few_%s", format_name(part.format));
    cuda_launch_add(
        p, name, (struct cuda_shape){ { divide_up(part.max_rows, FEW_ROWS), divide_up(params->n_pairs, FEW_PAIRS), 1 }, 256, 0 },
        params, sizeof *params);
}

static u64 ready_int8_bytes(u32 max_rows, u32 n_cols)
{
    return (u64)divide_up(max_rows, 8) * (n_cols / 32) * READY_INT8_BYTES;
}
static u64 ready_bf16_bytes(u32 max_rows, u32 ready_cols)
{
    return (u64)divide_up(max_rows, READY_ROWS) * READY_ROWS * ready_cols * 2;
}
static bool ready_is_tiled(const struct cuda_plan *p, u32 max_rows)
{
    return max_rows <= FEW_ROWS || p->tape.invariant;
}

// Rows that gemm_ring makes ready end by twos of tiles: of a stage each where no share is added.
static void hand_over_ring(struct cuda_plan *p, struct pairs_params *params, u32 max_rows)
{
    bool twos = params->ring.n_shares > 1 || ring_tile_warps(params->ring.share_blocks) == RING_THREADS / 32;

    if (p->command->op == OP_matmul && params->rows == ROWS_STEP && max_rows <= 8 && params->w[0].n_rows % 32 == 0 && twos)
        params->next = pairs_hand_over(p, params->out[0], KNOWS_RING | KNOWS_NORM);
}

// Up to eight rows have kernels that know how they end: instructions that a launch runs through once are not free.
static const char *ring_end(const struct pairs_params *params, u32 max_rows)
{
    if (params->next.at)
        return "next_";
    if (max_rows > 8)
        return "";
    return params->mode == PAIRS_GATED ? "gated_" : params->mode == PAIRS_ROPE ? "rope_" : "";
}

// Sums of shares go to the tape's private memory, behind what the rows take there.
static void launch_ring(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    u32 n_tiles = divide_up(params->n_pairs, RING_TILE_PAIRS), n_passes = divide_up(part.max_rows, RING_PASS_ROWS), shared = 0;
    char name[32];

    CHECK(plan_gemm_ring(p, part, params->n_cols, &params->ring, &shared));
    hand_over_ring(p, params, part.max_rows);
    u32 n_shares = params->ring.n_shares, groups = p->device.n_sms / n_shares,
        most_groups = params->next.at ? n_tiles / 2 : n_tiles;
    u64 n_units = (u64)params->ring.eights * n_tiles * n_passes, partial = params->partial;
    groups = groups == 0 ? 1 : groups < most_groups ? groups : most_groups;
    if (n_shares > 1) {
        u64 bytes = partial - p->private_at + n_units * n_shares * 32 * 16;
        p->private_bytes = bytes > p->private_bytes ? bytes : p->private_bytes;
        p->counters_bytes = (u64)groups * n_passes * 4 > p->counters_bytes ? (u64)groups * n_passes * 4 : p->counters_bytes;
        params->arrived = p->counters_at;
    }
    snprintf(name, sizeof name, "gemm_ring_%s%s", ring_end(params, part.max_rows), format_name(part.format));
    cuda_launch_add(p, name, (struct cuda_shape){ { groups * n_shares, n_passes, 1 }, GEMM_RING_THREADS, shared }, params,
                    sizeof *params);
}

// gemm_hopper's tiles: rows of activations, and warpgroups of GROUP_ROWS rows of weights.
struct hopper_tile {
    u32 rows, groups;
    bool weights; // go through shared memory
};

// Where gemm_hopper's blocks leave their sums of shared tiles: zero between launches, as counters are.
static void take_partial(struct cuda_plan *p, struct pairs_params *params, struct hopper_tile tile)
{
    u64 bytes = (u64)p->device.n_sms * tile.rows * tile.groups * GROUP_ROWS * 4;

    p->counters_bytes = bytes > p->counters_bytes ? bytes : p->counters_bytes;
    params->partial = p->counters_at;
}

static struct cuda_shape hopper_shape(const struct cuda_plan *p, struct hopper_tile tile)
{
    bool few = tile.weights && tile.rows <= 64;
    u32 stage = (tile.weights ? tile.groups * GROUP_ROWS * 128 : 0) + tile.rows * 128,
        fit = (tile.weights ? HOPPER_TILES_ROOM : HOPPER_ROOM) / stage,
        most = tile.weights ? HOPPER_MOST_TILE_STAGES : HOPPER_MOST_STAGES, n_stages = fit < most ? fit : most;

    return (struct cuda_shape){ { p->device.n_sms, 1, 1 },
                                few ? HOPPER_FEW_THREADS(tile.groups) : HOPPER_THREADS(tile.groups),
                                n_stages * (stage + 16) + 64 }; // and their barriers, and the walk
}

// Of rows of activations in a tile: 256, but where columns are few and tiles not shared, and for q, k and v in few tiles, since these end
// slowly. tokens/s of a prompt of 2,048 with 256 everywhere, by this choice, and with 128 for every product of few tiles: TinyLlama 148,500,
// 155,100, 145,500; SmolLM 290,500, 326,500, 326,000.
static u32 hopper_rows(const struct cuda_plan *p, const struct pairs_params *params, u32 max_rows)
{
    u32 wide = divide_up(params->n_pairs, MANY_PAIRS) * divide_up(max_rows, 256);
    bool narrow = params->n_cols < LEAST_WIDE_COLS || (params->mode >= PAIRS_ROPE && wide < 2 * p->device.n_sms);

    return max_rows <= 128 || narrow ? 128 : 256;
}

static void hand_over_gated(struct cuda_plan *p, struct pairs_params *params)
{
    if (params->mode == PAIRS_GATED)
        params->next = pairs_hand_over(p, params->out[0], KNOWS_TILES);
}

static bool launch_hopper(struct cuda_plan *p, const struct pairs_params *params, struct part part)
{
    struct pairs_params own = *params;
    char name[32];
    struct hopper_tile tile = { .rows = hopper_rows(p, params, part.max_rows), .groups = 2 };

    if (!has_hopper(p, tile.rows, part.format))
        return false;
    snprintf(name, sizeof name, "gemm_hopper_%u_%s", tile.rows, format_name(part.format));
    take_partial(p, &own, tile);
    hand_over_gated(p, &own);
    cuda_launch_add(p, name, hopper_shape(p, tile), &own, sizeof own);
    return true;
}

// Do so many tiles make one or two turns that leave few multiprocessors idle?
static bool fills(const struct cuda_plan *p, u32 n_tiles)
{
    u32 turns = divide_up(n_tiles, p->device.n_sms), slots = turns * p->device.n_sms;
    return turns <= 2 && (slots - n_tiles) * 100 <= p->device.n_sms * 15;
}

// Of rows of activations in a tile: all, to 128; then 256, but for products that make few such tiles. Three warpgroups where that makes
// whole turns; one where there are 64 rows and so few tiles of two that blocks would share them by threes.
static struct hopper_tile tile_of(const struct cuda_plan *p, const struct pairs_params *params, u32 max_rows)
{
    struct hopper_tile t = { .rows = 8, .groups = 2, .weights = true };
    u32 n_row_tiles = divide_up(max_rows, 128), narrow = divide_up(params->n_pairs, MANY_PAIRS) * n_row_tiles;

    while (t.rows < max_rows && t.rows < (2 * narrow <= 3 * p->device.n_sms ? 128 : 256))
        t.rows *= 2;
    if (t.rows >= 128 && !fills(p, narrow) && fills(p, divide_up(params->n_pairs, WIDE_PAIRS) * n_row_tiles))
        return (struct hopper_tile){ .rows = 128, .groups = 3, .weights = true };
    if (t.rows == 64 && 2 * narrow <= p->device.n_sms)
        t.groups = 1;
    return t;
}

static void plan_views(const struct cuda_plan *p, const struct pairs_params *params, struct view_box box,
                       struct tiles_params *tiles)
{
    for (u32 m = 0; m < 3; m++)
        if (params->w[m].quants && !(params->mode == PAIRS_GATED && m > 0))
            plan_tiles(p, params, m, box, tiles);
}

static u32 rows_turns(const struct cuda_plan *p, const struct pairs_params *params, u32 max_rows, u32 weights)
{
    u32 n_tiles = divide_up(2 * params->n_pairs, weights) * divide_up(max_rows, ROWS_CLUSTER * READY_ROWS);
    return divide_up(n_tiles, p->device.n_sms / ROWS_CLUSTER);
}

// Weight rows of gemm_rows' tiles: those whose turns end first, with what passes between two tiles in weight rows of 4,096 columns. 0 where
// gemm_hopper's tiles are better: two fifths of the turns would be idle, or outputs do not lie so that a thread can store four at a
// time. us of a product of 256 rows, by gemm_hopper and by gemm_rows: 4,096 x 14,336 (half idle) 50.1 and 70.4, 6,144 x 4,096 (a quarter)
// 36.8 and 25.2.
static u32 rows_weights(const struct cuda_plan *p, const struct pairs_params *params, u32 max_rows)
{
    static const struct {
        u32 weights, pause;
    } tiles[] = { { 128, 12 }, { 168, 12 }, { 176, 12 }, { 192, 14 } }; // gated: no test of 192 has run
    u64 places = params->out[0] | params->add | params->bias[0];
    u64 work = (u64)2 * params->n_pairs * divide_up(max_rows, READY_ROWS);
    u32 best = ~0u, weights = 0;

    if (max_rows <= READY_ROWS || params->n_cols < LEAST_ROWS_COLS || params->mode > PAIRS_GATED ||
        params->out_stride[0] % 4 != 0 || places % 16 != 0 || !cuda_has_kernel(p, "gemm_rows_128"))
        return 0;
    for (u32 i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        u32 turns = rows_turns(p, params, max_rows, tiles[i].weights), time = turns * (tiles[i].weights + tiles[i].pause);
        if (time >= best || (params->mode == PAIRS_GATED && tiles[i].weights == 192))
            continue;
        best = time;
        weights = 5 * work >= (u64)3 * turns * tiles[i].weights * p->device.n_sms ? tiles[i].weights : 0;
    }
    return weights;
}

static void launch_rows_tiles(struct cuda_plan *p, const struct pairs_params *params, u32 weights)
{
    struct tiles_params tiles = { .pairs = *params };
    u32 stage = (READY_ROWS + weights) * 128, n_stages = HOPPER_TILES_ROOM / stage;
    u32 grid = p->device.n_sms / ROWS_CLUSTER * ROWS_CLUSTER;
    char name[32];

    plan_views(p, params, (struct view_box){ 4, weights / 8 / ROWS_BOXES(weights) }, &tiles);
    hand_over_gated(p, &tiles.pairs);
    snprintf(name, sizeof name, "gemm_rows_%s%u", params->mode == PAIRS_GATED ? "gated_" : "", weights);
    cuda_launch_add(p, name, (struct cuda_shape){ { grid, 1, 1 }, HOPPER_THREADS(2), n_stages * (stage + 16) + 64 }, &tiles,
                    sizeof tiles);
}

static void launch_tiles(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    struct tiles_params tiles = { .pairs = *params };
    struct hopper_tile tile = tile_of(p, params, part.max_rows);
    u32 weights = rows_weights(p, params, part.max_rows);
    char name[32];

    if (weights > 0) {
        launch_rows_tiles(p, params, weights);
        return;
    }
    plan_views(p, params, groups_of_eight, &tiles);
    snprintf(name, sizeof name, "gemm_tiles_%u%s", tile.rows, tile.groups == 3 ? "_wide" : tile.groups == 1 ? "_half" : "");
    take_partial(p, &tiles.pairs, tile);
    hand_over_gated(p, &tiles.pairs);
    cuda_launch_add(p, name, hopper_shape(p, tile), &tiles, sizeof tiles);
}

static void launch_many(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    char name[32];
    u32 tiles = divide_up(params->n_pairs, MANY_PAIRS);

    if (launch_hopper(p, params, part))
        return;
    snprintf(name, sizeof name, "gemm_many_%s", format_name(part.format));
    cuda_launch_add(p, name, (struct cuda_shape){ { divide_up(part.max_rows, READY_ROWS), tiles, 1 }, 256, MANY_SHARED }, params,
                    sizeof *params);
}

// Which ready forms a product's matrices want.
struct ready_forms {
    bool bf16, int8, tiles;
};

static u32 n_matrices(const struct pairs_params *params)
{
    return params->mode >= PAIRS_ROPE ? 3 : params->mode == PAIRS_GATED ? 2 : 1;
}

static struct ready_forms ready_forms_of(const struct cuda_plan *p, const struct pairs_plan *product, u32 max_rows)
{
    struct ready_forms f = { false, false, false };

    for (u32 m = 0; m < n_matrices(&product->params); m++) {
        enum way way = way_of(p, product, m, max_rows);
        f.bf16 |= way == WAY_FEW || way == WAY_MANY;
        f.int8 |= way == WAY_RING;
        f.tiles |= way == WAY_TILES;
    }
    return f;
}

// Where the next rows in a ready form go: to the workspace, or to the tape's private memory where they need more.
struct ready_room {
    u64 work, work_bytes, private_at;
};
static u64 take_room(struct cuda_plan *p, struct ready_room *room, u64 bytes)
{
    u64 at = room->work;

    bytes = (bytes + 255) / 256 * 256;
    if (bytes <= room->work_bytes) {
        room->work += bytes;
        room->work_bytes -= bytes;
        return at;
    }
    at = room->private_at;
    room->private_at += bytes;
    p->private_bytes = room->private_at - p->private_at;
    return at;
}

// The command before may have made the rows ready: they lie where it put them, and the launch is for play that begins here.
static u64 place_ready(struct cuda_plan *p, struct ready_room *room, u64 bytes)
{
    return p->handed_to == p->command ? p->handed : take_room(p, room, bytes);
}
// For up to eight rows, the sums of squares of each 32 columns; behind the rows where these were handed over.
static u64 squares_bytes(u32 n_cols)
{
    return (u64)n_cols / 32 * 8 * 4;
}
static u64 place_squares(struct cuda_plan *p, struct ready_room *room, u32 n_cols)
{
    return p->handed_to == p->command ? p->handed + ready_int8_bytes(8, n_cols) : take_room(p, room, squares_bytes(n_cols));
}
static void launch_rows(struct cuda_plan *p, const char *kernel, struct cuda_shape shape, const struct ready_params *ready)
{
    cuda_launch_add(p, kernel, shape, ready, sizeof *ready);
    if (p->handed_to == p->command)
        cuda_launch_alone(p);
}

static void launch_ready(struct cuda_plan *p, const struct pairs_plan *product, struct pairs_params *params, u32 max_rows)
{
    struct ready_forms forms = ready_forms_of(p, product, max_rows);
    u32 tiled = ready_is_tiled(p, max_rows), rows = tiled ? divide_up(max_rows, 8) * 8 : max_rows;
    struct ready_room room = { product->work, product->work_bytes, p->private_at };
    struct ready_params ready = { .in = params->in,
                                  .norm = params->norm,
                                  .n_cols = params->n_cols,
                                  .ready_cols = params->ready_cols,
                                  .rows = params->rows,
                                  .tiled = tiled,
                                  .eps = params->eps };

    if (forms.bf16) {
        ready.out = params->ready =
            place_ready(p, &room, tiled ? (u64)rows * params->ready_cols * 2 : ready_bf16_bytes(rows, params->ready_cols));
        launch_rows(p, "ready_rows", (struct cuda_shape){ { rows, 1, 1 }, 256, 0 }, &ready);
    }
    if (forms.int8) {
        bool in_parts = max_rows <= 8;
        u32 shares = divide_up(params->n_cols, in_parts ? READY_PART_COLUMNS : 8 * READY_INT8_THREADS);
        ready.out = params->ready_int8 = place_ready(p, &room, ready_int8_bytes(max_rows, params->n_cols));
        if (in_parts && params->norm)
            ready.squares = params->squares = place_squares(p, &room, params->n_cols);
        else if (params->norm)
            shares = 1;
        launch_rows(p, in_parts ? "ready_int8_part" : "ready_int8",
                    (struct cuda_shape){ { max_rows, shares, 1 }, in_parts ? READY_PART_THREADS : READY_INT8_THREADS, 0 },
                    &ready);
    }
    if (forms.tiles) {
        u32 shares = params->norm ? 1 : divide_up(params->n_cols, 8 * READY_BF16_THREADS);
        u32 most = divide_up(4 * p->device.n_sms, shares);
        ready.out = params->ready_bf16 = place_ready(p, &room, ready_bf16_bytes(max_rows, params->ready_cols));
        launch_rows(p, "ready_bf16",
                    (struct cuda_shape){ { max_rows < most ? max_rows : most, shares, 1 }, READY_BF16_THREADS, 0 }, &ready);
    }
    params->partial = room.private_at;
}

static void launch_part(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    if (part.way == WAY_TILES)
        launch_tiles(p, params, part);
    else if (part.way == WAY_RING)
        launch_ring(p, params, part);
    else if (part.way == WAY_FEW)
        launch_few(p, params, part);
    else if (part.way == WAY_MANY)
        launch_many(p, params, part);
    else
        launch_gemv(p, params, part);
}

// q, k and v follow each other in the list of pairs; neighbours in one format share a launch.
static void launch_three(struct cuda_plan *p, const struct pairs_plan *product, struct pairs_params *params, u32 max_rows)
{
    params->first_pair = 0;
    for (u32 m = 0; m < 3;) {
        struct part part = { params->w[m].format, max_rows, way_of(p, product, m, max_rows) };
        params->n_pairs = 0;
        for (; m < 3 && params->w[m].format == part.format && way_of(p, product, m, max_rows) == part.way; m++)
            params->n_pairs += params->w[m].n_rows / 2;
        launch_part(p, params, part);
        params->first_pair += params->n_pairs;
    }
}

static bool wants_vendor(const struct cuda_plan *p, const struct pairs_plan *product, u32 max_rows)
{
    bool wants = p->tape.gemm == GEMM_VENDOR && max_rows > FEW_ROWS;

    for (u32 m = 0; m < n_matrices(&product->params); m++)
        wants = wants && way_of(p, product, m, max_rows) >= WAY_MANY;
    return wants;
}

// A scale of Q8_0 belongs to more dims than a pair has; kernels for many rows know fp16 alone.
bool pairs_store(const struct cuda_plan *p, const struct page_shape *pages)
{
    bool halves = pages->k_format == KV_F16 && pages->v_format == KV_F16,
         blocks = pages->k_format == KV_Q8_0 || pages->v_format == KV_Q8_0;
    return halves || (!blocks && (p->tape.max_rows <= FEW_ROWS || p->tape.invariant));
}

void pairs_launch(struct cuda_plan *p, const struct pairs_plan *product)
{
    struct pairs_params params = product->params;
    u32 max_rows = params.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;

    params.ready_cols = divide_up(params.n_cols, 128) * 128;
    params.n_pairs = params.mode == PAIRS_GATED ? params.w[0].n_rows : divide_up(params.w[0].n_rows, 2);
    if (params.mode >= PAIRS_ROPE)
        params.n_pairs += params.w[1].n_rows / 2 + params.w[2].n_rows / 2;
    if (wants_vendor(p, product, max_rows)) {
        pairs_vendor_launch(p, &params, n_matrices(&params), max_rows);
        return;
    }
    launch_ready(p, product, &params, max_rows);
    if (params.mode >= PAIRS_ROPE)
        launch_three(p, product, &params, max_rows);
    else
        launch_part(p, &params, (struct part){ params.w[0].format, max_rows, way_of(p, product, 0, max_rows) });
}

// What the next command multiplies, if it is one product.
static bool next_product(struct cuda_plan *p, struct pairs_plan *product)
{
    const struct command *command = p->command;
    enum op op = p->next ? p->next->op : OP_sample;

    p->command = p->next;
    if (op == OP_matmul)
        *product = matmul_pairs(p);
    else if (op == OP_qkv)
        *product = qkv_pairs(p);
    else if (op == OP_gate_up)
        *product = gate_up_pairs(p);
    p->command = command;
    return op == OP_matmul || op == OP_qkv || (op == OP_gate_up && product->params.w[0].format == product->params.w[1].format);
}

struct ready_next pairs_hand_over(struct cuda_plan *p, u64 out, u32 known)
{
    struct ready_next none = { 0 };
    struct pairs_plan product;
    u32 max_rows = p->tape.max_rows;

    if (!next_product(p, &product) || product.params.in != out || product.params.rows != ROWS_STEP)
        return none;
    const struct pairs_params *params = &product.params;
    struct ready_forms forms = ready_forms_of(p, &product, max_rows);
    u32 n_cols = params->n_cols, n_forms = forms.bf16 + forms.int8 + forms.tiles;
    bool tiles = forms.tiles && known & KNOWS_TILES && n_cols % 128 == 0 && !wants_vendor(p, &product, max_rows),
         ring = forms.int8 && known & KNOWS_RING;
    if (n_forms != 1 || !(tiles || ring) || (params->norm && (!(known & KNOWS_NORM) || max_rows > 8)))
        return none;
    u64 bytes = tiles ? ready_bf16_bytes(max_rows, n_cols) : ready_int8_bytes(max_rows, n_cols);
    p->handed_bytes = bytes + (params->norm ? squares_bytes(n_cols) : 0);
    p->handed_to = p->next;
    p->handed = p->handed_at;
    return (struct ready_next){ .at = p->handed,
                                .norm = params->norm,
                                .squares = params->norm ? p->handed + bytes : 0,
                                .form = tiles ? READY_FOR_TILES : READY_FOR_RING,
                                .n_cols = n_cols };
}
