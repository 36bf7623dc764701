// gemm_plan.c - chooses the kernels of a matrix product; see gemm_params.h.
//
// bf16 weights on Hopper, 2 rows and more: gemm_hopper with tiles in shared memory; more than 32 rows of a matmul, or than 128 of gate and
// up: gemm_cluster, where its turns are nearly whole. Else one row of activations: gemv_pipeline on Hopper and later, or gemv; both make their row
// ready themselves. 2 to 32 with quantised weights on Hopper and later, or to 64 without gemm_hopper: the rows are made ready once, then
// gemm_int8. Else 2 to 16: gemm_few. More: gemm_hopper where this build and the device have it, else gemm_many. exact, fp32 weights and odd
// widths: gemv in fp32, row by row. What counts is the most rows that the tape can get.
//
// Measured on an H200, 8B Q4_0, tokens/s of as many sequences by gemm_int8 and by others: 8 rows 3,829 and 2,227 (gemm_few), 16 rows 5,788
// and 3,482; 24 rows 5,253 and 3,493 (gemm_hopper), 32 rows 6,115 and 4,528; 40 rows of a tape for 64 5,619 and 5,417, 48 rows 6,135 and
// 6,367, 64 rows 6,326 and 8,120, with Q4_K 4,105 and 7,939. Rows of few columns go through gemm_few up to 16: SmolLM 8,201 and 10,067,
// 13,732 and 17,261. One row of 14,336 bf16 columns: gemv_pipeline 30.4 us, tiles 32.2; of 32,768: 81 and 89.
#include "gemm/cuda/gemv_pipeline.h"
#include "gemm/cuda/gemm_plan.h"
#include "gemm/cuda/vendor_parts.h"

enum {
    INT8_MAX_ROWS = 64,
    INT8_MAX_ROWS_WITH_HOPPER = 16, // where there is gemm_hopper
    INT8_MIN_COLS = 2048,           // for up to FEW_ROWS rows
    FEW_PAIRS = 16,
    MANY_SHARED = 5 * 128 * PACKED_TILE_ROWS
};

const char *gemm_format_name(u32 format)
{
    static const char *const names[] = { "f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0",   "q5_1",   "q8_0",
                                         "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4" };
    CHECK(format < sizeof names / sizeof *names);
    return names[format];
}

static bool worth_int8(const struct cuda_plan *p, u32 max_rows, u32 n_cols, u32 format)
{
    if (max_rows <= FEW_ROWS)
        return n_cols >= INT8_MIN_COLS;
    if (p->tape.gemm == GEMM_VENDOR)
        return false;
    return max_rows <= INT8_MAX_ROWS_WITH_HOPPER || (max_rows <= INT8_MAX_ROWS && !gemm_hopper_exists(p, 128, format));
}

// invariant: one kernel for any number of rows. gemm_int8 could be it: in one measurement faster for one row (8B 304 tokens/s, not
// 289) and slower for a prompt of 512 (5,431, not 6,544; SmolLM 44,810, not 101,470).
static enum gemm_kernel gemm_kernel_of(const struct cuda_plan *p, const struct gemm_plan *product, u32 m, u32 max_rows)
{
    bool invariant = p->tape.invariant;
    u32 format = product->params.w[m].format;
    u32 n_cols = product->params.n_cols, odd = n_cols % 32 != 0;

    if (!invariant && !product->exact && !odd && (max_rows > 1 || n_cols > MOST_LONG_COLS) &&
        gemm_tma_fits(p, &product->params, m))
        return KERNEL_GEMM_TMA;
    if (format == QUANT_F32 || (format <= QUANT_BF16 && (product->exact || (max_rows == 1 && !invariant) || odd)))
        return KERNEL_GEMV_PLAIN;
    if (product->exact)
        return KERNEL_GEMV_EXACT;
    if (invariant)
        return KERNEL_GEMM_FEW;
    if (max_rows == 1)
        return KERNEL_GEMV_INT8;
    if (worth_int8(p, max_rows, n_cols, format) &&
        gemm_int8_fits(p, (struct part){ format, max_rows, KERNEL_GEMM_INT8, false }, n_cols))
        return KERNEL_GEMM_INT8;
    return max_rows <= FEW_ROWS ? KERNEL_GEMM_FEW : KERNEL_GEMM_MANY;
}

static void launch_few(struct cuda_plan *p, struct gemm_params *params, struct part part)
{
    char name[32];

    snprintf(name, sizeof name, "gemm_few_%s", gemm_format_name(part.format));
    cuda_launch_add(
        p, name, (struct cuda_shape){ { divide_up(part.max_rows, FEW_ROWS), divide_up(params->n_pairs, FEW_PAIRS), 1 }, 256, 0 },
        params, sizeof *params);
}

static u64 packed_int8_bytes(u32 max_rows, u32 n_cols)
{
    return (u64)divide_up(max_rows, 8) * (n_cols / 32) * PACKED_INT8_BYTES;
}
static u64 packed_bf16_bytes(u32 max_rows, u32 packed_cols)
{
    return (u64)divide_up(max_rows, PACKED_TILE_ROWS) * PACKED_TILE_ROWS * packed_cols * 2;
}
static bool packing_is_tiled(const struct cuda_plan *p, u32 max_rows)
{
    return max_rows <= FEW_ROWS || p->tape.invariant;
}

static void launch_many(struct cuda_plan *p, struct gemm_params *params, struct part part)
{
    char name[32];
    u32 tiles = divide_up(params->n_pairs, MANY_PAIRS);

    if (gemm_hopper_launch(p, params, part))
        return;
    snprintf(name, sizeof name, "gemm_many_%s", gemm_format_name(part.format));
    cuda_launch_add(p, name, (struct cuda_shape){ { divide_up(part.max_rows, PACKED_TILE_ROWS), tiles, 1 }, 256, MANY_SHARED },
                    params, sizeof *params);
}

// Which ready forms a product's matrices want.
struct packings {
    bool bf16, int8, tiles;
};

static u32 n_matrices(const struct gemm_params *params)
{
    return params->mode >= EPILOGUE_ROPE_STORE ? 3 : params->mode == EPILOGUE_GATED ? 2 : 1;
}

static struct packings packings_of(const struct cuda_plan *p, const struct gemm_plan *product, u32 max_rows)
{
    struct packings f = { false, false, false };

    for (u32 m = 0; m < n_matrices(&product->params); m++) {
        enum gemm_kernel gemm_kernel = gemm_kernel_of(p, product, m, max_rows);
        f.bf16 |= gemm_kernel == KERNEL_GEMM_FEW || gemm_kernel == KERNEL_GEMM_MANY;
        f.int8 |= gemm_kernel == KERNEL_GEMM_INT8;
        f.tiles |= gemm_kernel == KERNEL_GEMM_TMA;
    }
    return f;
}

// Where the next rows in a ready form go: to the workspace, or to the tape's private memory where they need more.
struct packing_room {
    u64 work, work_bytes, private_at;
};
static u64 take_room(struct cuda_plan *p, struct packing_room *room, u64 bytes)
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
static u64 place_packed(struct cuda_plan *p, struct packing_room *room, u64 bytes)
{
    return p->handed_to == p->command ? p->handed : take_room(p, room, bytes);
}
// For up to eight rows, the sums of squares of each 32 columns; behind the rows where these were handed over.
static u64 squares_bytes(u32 n_cols)
{
    return (u64)n_cols / 32 * 8 * 4;
}
static u64 place_squares(struct cuda_plan *p, struct packing_room *room, u32 n_cols)
{
    return p->handed_to == p->command ? p->handed + packed_int8_bytes(8, n_cols) : take_room(p, room, squares_bytes(n_cols));
}
static void launch_rows(struct cuda_plan *p, const char *kernel, struct cuda_shape shape, const struct packing_params *packed_mma)
{
    cuda_launch_add(p, kernel, shape, packed_mma, sizeof *packed_mma);
    if (p->handed_to == p->command)
        cuda_launch_alone(p);
}

static void launch_packing(struct cuda_plan *p, const struct gemm_plan *product, struct gemm_params *params, u32 max_rows)
{
    struct packings forms = packings_of(p, product, max_rows);
    u32 tiled = packing_is_tiled(p, max_rows), rows = tiled ? divide_up(max_rows, 8) * 8 : max_rows;
    struct packing_room room = { product->work, product->work_bytes, p->private_at };
    struct packing_params packed_mma = { .in = params->in,
                                         .norm = params->norm,
                                         .n_cols = params->n_cols,
                                         .packed_cols = params->packed_cols,
                                         .rows = params->rows,
                                         .tiled = tiled,
                                         .eps = params->eps };

    if (forms.bf16) {
        packed_mma.out = params->packed_mma =
            place_packed(p, &room, tiled ? (u64)rows * params->packed_cols * 2 : packed_bf16_bytes(rows, params->packed_cols));
        launch_rows(p, "pack_mma", (struct cuda_shape){ { rows, 1, 1 }, 256, 0 }, &packed_mma);
    }
    if (forms.int8) {
        bool in_parts = max_rows <= 8;
        u32 shares = divide_up(params->n_cols, in_parts ? PACK_SPLIT_COLUMNS : 8 * PACK_INT8_THREADS);
        packed_mma.out = params->packed_int8 = place_packed(p, &room, packed_int8_bytes(max_rows, params->n_cols));
        if (in_parts && params->norm)
            packed_mma.squares = params->squares = place_squares(p, &room, params->n_cols);
        else if (params->norm)
            shares = 1;
        launch_rows(p, in_parts ? "pack_int8_split" : "pack_int8",
                    (struct cuda_shape){ { max_rows, shares, 1 }, in_parts ? PACK_SPLIT_THREADS : PACK_INT8_THREADS, 0 },
                    &packed_mma);
    }
    if (forms.tiles) {
        u32 shares = params->norm ? 1 : divide_up(params->n_cols, 8 * PACK_BF16_THREADS);
        u32 most = divide_up(4 * p->device.n_sms, shares);
        packed_mma.out = params->packed_bf16 = place_packed(p, &room, packed_bf16_bytes(max_rows, params->packed_cols));
        launch_rows(p, "pack_bf16", (struct cuda_shape){ { max_rows < most ? max_rows : most, shares, 1 }, PACK_BF16_THREADS, 0 },
                    &packed_mma);
    }
    params->partial = room.private_at;
}

static void launch_part(struct cuda_plan *p, struct gemm_params *params, struct part part)
{
    if (part.gemm_kernel == KERNEL_GEMM_TMA)
        gemm_tma_launch(p, params, part);
    else if (part.gemm_kernel == KERNEL_GEMM_INT8)
        gemm_int8_launch(p, params, part);
    else if (part.gemm_kernel == KERNEL_GEMM_FEW)
        launch_few(p, params, part);
    else if (part.gemm_kernel == KERNEL_GEMM_MANY)
        launch_many(p, params, part);
    else
        gemv_launch(p, params, part);
}

// q, k and v follow each other in the list of pairs; neighbours in one format share a launch.
static void launch_three(struct cuda_plan *p, const struct gemm_plan *product, struct gemm_params *params, u32 max_rows)
{
    params->first_pair = 0;
    for (u32 m = 0; m < 3;) {
        struct part part = { params->w[m].format, max_rows, gemm_kernel_of(p, product, m, max_rows), product->final };
        params->n_pairs = 0;
        for (; m < 3 && params->w[m].format == part.format && gemm_kernel_of(p, product, m, max_rows) == part.gemm_kernel; m++)
            params->n_pairs += params->w[m].n_rows / 2;
        launch_part(p, params, part);
        params->first_pair += params->n_pairs;
    }
}

static bool wants_vendor(const struct cuda_plan *p, const struct gemm_plan *product, u32 max_rows)
{
    bool wants = p->tape.gemm == GEMM_VENDOR && max_rows > FEW_ROWS;

    for (u32 m = 0; m < n_matrices(&product->params); m++)
        wants = wants && gemm_kernel_of(p, product, m, max_rows) >= KERNEL_GEMM_MANY;
    return wants;
}

// A scale of Q8_0 belongs to more dims than a pair has; kernels for many rows know fp16 alone.
bool gemm_stores_pages(const struct cuda_plan *p, const struct page_shape *pages)
{
    bool halves = pages->k_format == KV_F16 && pages->v_format == KV_F16,
         blocks = pages->k_format == KV_Q8_0 || pages->v_format == KV_Q8_0;
    return halves || (!blocks && (p->tape.max_rows <= FEW_ROWS || p->tape.invariant));
}

void gemm_launch(struct cuda_plan *p, const struct gemm_plan *product)
{
    struct gemm_params params = product->params;
    u32 max_rows = params.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;

    params.packed_cols = divide_up(params.n_cols, 128) * 128;
    params.n_pairs = params.mode == EPILOGUE_GATED ? params.w[0].n_rows : divide_up(params.w[0].n_rows, 2);
    if (params.mode >= EPILOGUE_ROPE_STORE)
        params.n_pairs += params.w[1].n_rows / 2 + params.w[2].n_rows / 2;
    if (wants_vendor(p, product, max_rows)) {
        gemm_vendor_launch(p, &params, n_matrices(&params), max_rows);
        return;
    }
    launch_packing(p, product, &params, max_rows);
    if (params.mode >= EPILOGUE_ROPE_STORE)
        launch_three(p, product, &params, max_rows);
    else
        launch_part(p, &params,
                    (struct part){ params.w[0].format, max_rows, gemm_kernel_of(p, product, 0, max_rows), product->final });
}

// What the next command multiplies, if it is one product.
static bool next_product(struct cuda_plan *p, struct gemm_plan *product)
{
    const struct command *command = p->command;

    p->command = p->next;
    bool is_product = p->command && p->table->product(p, product);
    p->command = command;
    return is_product;
}

struct packed_out gemm_hand_over(struct cuda_plan *p, u64 out, u32 known)
{
    struct packed_out none = { 0 };
    struct gemm_plan product;
    u32 max_rows = p->tape.max_rows;

    if (!next_product(p, &product) || product.params.in != out || product.params.rows != ROWS_STEP)
        return none;
    const struct gemm_params *params = &product.params;
    struct packings forms = packings_of(p, &product, max_rows);
    u32 n_cols = params->n_cols, n_forms = forms.bf16 + forms.int8 + forms.tiles;
    bool tiles = forms.tiles && known & KNOWS_TILES && n_cols % 128 == 0 && !wants_vendor(p, &product, max_rows),
         pipeline = forms.int8 && known & KNOWS_RING;
    if (n_forms != 1 || !(tiles || pipeline) || (params->norm && (!(known & KNOWS_NORM) || max_rows > 8)))
        return none;
    u64 bytes = tiles ? packed_bf16_bytes(max_rows, n_cols) : packed_int8_bytes(max_rows, n_cols);
    p->handed_bytes = bytes + (params->norm ? squares_bytes(n_cols) : 0);
    p->handed_to = p->next;
    p->handed = p->handed_at;
    return (struct packed_out){ .at = p->handed,
                                .norm = params->norm,
                                .squares = params->norm ? p->handed + bytes : 0,
                                .form = tiles ? PACKING_BF16 : PACKING_INT8,
                                .n_cols = n_cols };
}
