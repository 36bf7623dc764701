// pairs.c - chooses the kernels of a matrix product; see pairs.h.
//
// bf16 weights on Hopper, 2 rows and more: gemm_hopper with tiles in shared memory; more than 32 rows of a matmul, or than 128 of gate and
// up: gemm_rows, where its turns are nearly whole. Else one row of activations: gemv_ring on Hopper and later, or gemv; both make their row
// ready themselves. 2 to 16 with quantised weights on Hopper and later, or to 64 without gemm_hopper: the rows are made ready once, then
// gemm_ring, or gemm_few where rows have few columns. More: gemm_hopper where this build and the device have it, else gemm_many. exact,
// fp32 weights and odd widths: gemv in fp32, row by row. What counts is the most rows that the tape can get.
// Measured: bench/results/2026-11-22-h200-many-sequences.md.
#include "gemm/cuda/gemv_ring.h"
#include "gemm/cuda/pairs_plan.h"
#include "gemm/cuda/vendor_parts.h"

enum {
    MOST_RING_ROWS = 64,
    MOST_RING_ROWS_OF_HOPPER = 16, // where there is gemm_hopper
    LEAST_RING_COLS = 2048,        // for up to FEW_ROWS rows
    FEW_PAIRS = 16,
    MANY_SHARED = 5 * 128 * READY_ROWS
};

const char *pairs_format_name(u32 format)
{
    static const char *const names[] = { "f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0",   "q5_1",   "q8_0",
                                         "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4" };
    CHECK(format < sizeof names / sizeof *names);
    return names[format];
}

static bool worth_ring(const struct cuda_plan *p, u32 max_rows, u32 n_cols, u32 format)
{
    if (max_rows <= FEW_ROWS)
        return n_cols >= LEAST_RING_COLS;
    if (p->tape.gemm == GEMM_VENDOR)
        return false;
    return max_rows <= MOST_RING_ROWS_OF_HOPPER || (max_rows <= MOST_RING_ROWS && !pairs_has_hopper(p, 128, format));
}

// invariant: one kernel for any number of rows. gemm_ring could be it: in one measurement faster for one row (8B 304 tokens/s, not
// 289) and slower for a prompt of 512 (5,431, not 6,544; SmolLM 44,810, not 101,470).
static enum way way_of(const struct cuda_plan *p, const struct pairs_plan *product, u32 m, u32 max_rows)
{
    bool invariant = p->tape.invariant;
    u32 format = product->params.w[m].format;
    u32 n_cols = product->params.n_cols, odd = n_cols % 32 != 0;

    if (!invariant && !product->exact && !odd && (max_rows > 1 || n_cols > MOST_LONG_COLS) &&
        pairs_fit_tiles(p, &product->params, m))
        return WAY_TILES;
    if (format == PLANES_F32 || (format <= PLANES_BF16 && (product->exact || (max_rows == 1 && !invariant) || odd)))
        return WAY_PLAIN;
    if (product->exact)
        return WAY_EXACT;
    if (invariant)
        return WAY_FEW;
    if (max_rows == 1)
        return WAY_INT8;
    if (worth_ring(p, max_rows, n_cols, format) && pairs_fit_ring(p, (struct part){ format, max_rows, WAY_RING, false }, n_cols))
        return WAY_RING;
    return max_rows <= FEW_ROWS ? WAY_FEW : WAY_MANY;
}

static void launch_few(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    char name[32];

    snprintf(name, sizeof name, "gemm_few_%s", pairs_format_name(part.format));
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

static void launch_many(struct cuda_plan *p, struct pairs_params *params, struct part part)
{
    char name[32];
    u32 tiles = divide_up(params->n_pairs, MANY_PAIRS);

    if (pairs_launch_hopper(p, params, part))
        return;
    snprintf(name, sizeof name, "gemm_many_%s", pairs_format_name(part.format));
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
        pairs_launch_tiles(p, params, part);
    else if (part.way == WAY_RING)
        pairs_launch_ring(p, params, part);
    else if (part.way == WAY_FEW)
        launch_few(p, params, part);
    else if (part.way == WAY_MANY)
        launch_many(p, params, part);
    else
        pairs_launch_gemv(p, params, part);
}

// q, k and v follow each other in the list of pairs; neighbours in one format share a launch.
static void launch_three(struct cuda_plan *p, const struct pairs_plan *product, struct pairs_params *params, u32 max_rows)
{
    params->first_pair = 0;
    for (u32 m = 0; m < 3;) {
        struct part part = { params->w[m].format, max_rows, way_of(p, product, m, max_rows), product->final };
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
        launch_part(p, &params, (struct part){ params.w[0].format, max_rows, way_of(p, product, 0, max_rows), product->final });
}

// What the next command multiplies, if it is one product.
static bool next_product(struct cuda_plan *p, struct pairs_plan *product)
{
    const struct command *command = p->command;

    p->command = p->next;
    bool is_product = p->command && p->table->product(p, product);
    p->command = command;
    return is_product;
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
