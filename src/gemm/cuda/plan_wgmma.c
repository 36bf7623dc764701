// plan_wgmma.c - launches of Hopper's kernels for many rows: gemm_hopper, gemm_tma, gemm_cluster and
// gemm_staged.
// Measured: bench/results/2026-11-22-h200-kernel-choices.md.
#include "gemm/cuda/gemm_plan.h"
#include "gemm/cuda/cluster/cluster_params.h"
#include "gemm/cuda/cluster/gemm_staged.h"

enum {
    LEAST_WIDE_COLS = 2048,  // for gemm_hopper's tiles of 256 rows
    LEAST_WIDE_PAIRS = 8192, // for its tiles of four warpgroups
    LEAST_ROWS_COLS = 512,   // for gemm_cluster
    LEAST_WAVE_COLS = 1024,  // for its tiles in one wave, of which no epilogue overlaps with another tile
    LEAST_FEW_COLS = 2048,   // for its sizes with few tiles
    WIDE_PAIRS = 96,
    GROUP_ROWS = 64,
    MOST_STAGED_COLS = 1024, // for gemm_staged with fp32 results: with more columns it wants more stages
    STAGED_PAUSE_ROWS = 48,  // of gemm_staged
    REST_ROWS = 80,          // of a launch for the rows that whole waves leave
    PAUSE_ROWS = 12 // gemm_cluster loses between two tiles the time of 12 weight rows of 4,096 columns
};

// gemm_hopper's view of matrix m. Pairs lie a row or two apart; the rows of a pair too, or as far apart as
// gate and up, or half a head. A box is some groups of pairs of one matrix, and of one head where pairs are
// halves.
struct view_box {
    u32 group, n_groups; // pairs per group: 8, or 4 for gemm_cluster
};
static bool view_of(const struct gemm_params *params, u32 m, struct view_box tma_box, struct cuda_view *view)
{
    const struct weight_planes *w = &params->w[m];
    u64 row = (u64)params->n_cols * 2, gate = w->quants, up = params->w[1].quants;
    u32 heads = 1, n_pairs = w->n_rows / 2, head_dim = params->rope.pages.head_dim;
    bool halves = params->mode == EPILOGUE_ROPE_STORE && params->rope.pairs == ROPE_HALVES;
    u64 apart = halves ? row * (head_dim / 2) : row, next = halves ? row : 2 * row;

    if (params->mode == EPILOGUE_GATED) {
        apart = up > gate ? up - gate : gate - up;
        next = row;
        n_pairs = w->n_rows;
    } else if (params->mode >= EPILOGUE_ROPE_STORE && n_pairs % 32 != 0) {
        return false;
    } else if (halves) {
        heads = w->n_rows / head_dim;
        n_pairs = head_dim / 2;
        if (n_pairs % 32 != 0 || params->rope.n_dims != head_dim)
            return false;
    }
    if (w->n_rows % 16 != 0 || apart >> 40 != 0 || apart % 16 != 0)
        return false;
    *view = (struct cuda_view){ .at = params->mode == EPILOGUE_GATED && up < gate ? up : gate,
                                .dims = { params->n_cols, tma_box.group, 2, n_pairs / tma_box.group, heads },
                                .strides = { next, apart, tma_box.group * next, row * w->n_rows / heads },
                                .box = { 64, tma_box.group, 2, tma_box.n_groups, 1 } };
    return true;
}

static const struct view_box groups_of_eight = { 8, 4 };

static bool plan_tiles(const struct cuda_plan *p, const struct gemm_params *params, u32 m,
                       struct view_box tma_box, struct tiles_params *tiles)
{
    struct cuda_view view;
    bool halves = params->rope.pages.k_format == KV_F16 && params->rope.pages.v_format == KV_F16;

    if (p->device.capability < 90 || params->w[m].format != QUANT_BF16 ||
        (params->mode == EPILOGUE_ROPE_STORE && !halves) ||
        (params->mode == EPILOGUE_GATED && params->w[1 - m].format != QUANT_BF16))
        return false;
    m = params->mode == EPILOGUE_GATED ? 0 : m; // both lie in one view
    tiles->swapped = params->mode == EPILOGUE_GATED && params->w[1].quants < params->w[0].quants;
    if (!view_of(params, m, tma_box, &view) || !cuda_has_kernel(p, "gemm_tma_8") ||
        !cuda_view_encode(p, &view, &tiles->w[m]))
        return false;
    tiles->eights[m] = (u32)view.dims[3];
    return true;
}

bool gemm_tma_fits(const struct cuda_plan *p, const struct gemm_params *params, u32 m)
{
    struct tiles_params tiles;

    return plan_tiles(p, params, m, groups_of_eight, &tiles);
}

bool gemm_hopper_fits(const struct cuda_plan *p, u32 format, u32 n_cols)
{
    const char *kernel = gemm_hopper_128[format];
    return p->device.capability >= 90 && kernel && n_cols % 64 == 0 && cuda_has_kernel(p, kernel);
}

// Tiles of gemm_hopper and gemm_tma: rows of activations, and warpgroups of GROUP_ROWS weight rows.
struct hopper_tile {
    u32 rows, groups;
};

// The partial sums of gemm_hopper's split tiles: zero between launches, as counters are.
static void take_partial(struct cuda_plan *p, struct gemm_params *params, struct hopper_tile tile)
{
    u64 bytes = (u64)p->device.n_sms * tile.rows * tile.groups * GROUP_ROWS * 4;

    p->counters_bytes = bytes > p->counters_bytes ? bytes : p->counters_bytes;
    params->partial = p->counters_at;
}

static struct cuda_shape stages_shape(const struct cuda_plan *p, u32 threads, u32 stage, u32 n_stages)
{
    // and their barriers, and the scheduler
    return (struct cuda_shape){ { p->device.n_sms, 1, 1 }, threads, n_stages * (stage + 16) + 64 };
}

static struct cuda_shape hopper_shape(const struct cuda_plan *p, struct hopper_tile tile, u32 format)
{
    u32 stage = HOPPER_STAGE(tile.rows, tile.groups, layout_part_bytes(format)), fit = HOPPER_ROOM / stage;

    return stages_shape(p, HOPPER_THREADS(tile.groups), stage,
                        fit < HOPPER_MOST_STAGES ? fit : HOPPER_MOST_STAGES);
}

static struct cuda_shape tma_shape(const struct cuda_plan *p, struct hopper_tile tile)
{
    u32 stage = tile.groups * GROUP_ROWS * 128 + tile.rows * 128, fit = HOPPER_TILES_ROOM / stage;

    return stages_shape(p, tile.rows <= 64 ? HOPPER_FEW_THREADS(tile.groups) : HOPPER_THREADS(tile.groups),
                        stage, fit < HOPPER_MOST_TILE_STAGES ? fit : HOPPER_MOST_TILE_STAGES);
}

// Tile height: 256 rows; 128 for as many rows (the epilogue of one tile then waits for less), where K is
// small, or for QKV with few tiles (slow epilogue); 32 or 64 for as few rows.
static u32 hopper_rows(const struct cuda_plan *p, const struct gemm_params *params, u32 max_rows)
{
    u32 wide = divide_up(params->n_pairs, MANY_PAIRS) * divide_up(max_rows, 256);
    bool narrow = params->n_cols < LEAST_WIDE_COLS ||
                  (params->mode >= EPILOGUE_ROPE_STORE && wide < 2 * p->device.n_sms);

    return max_rows <= 32 ? 32 : max_rows <= 64 ? 64 : max_rows <= 256 || narrow ? 128 : 256;
}

// For 64 rows one warpgroup, or four where there are as many tiles of them: fewer blocks then share a tile,
// or fewer blocks read the same activations. (Measured: bench/results/2026-11-28-h200-rows.md.)
static const struct hopper_size {
    struct hopper_tile tile;
    const gemm_kernel_names *kernels;
} hopper_sizes[] = { { { 32, 2 }, &gemm_hopper_32 },
                     { { 64, 4 }, &gemm_hopper_64_wide },
                     { { 64, 1 }, &gemm_hopper_64 },
                     { { 128, 2 }, &gemm_hopper_128 },
                     { { 256, 2 }, &gemm_hopper_256 } };

static const struct hopper_size *hopper_size_of(const struct cuda_plan *p, const struct gemm_params *params,
                                                u32 max_rows)
{
    u32 rows = hopper_rows(p, params, max_rows);
    bool wide = params->n_pairs >= LEAST_WIDE_PAIRS;

    for (u32 i = 0; i < sizeof hopper_sizes / sizeof *hopper_sizes; i++)
        if (hopper_sizes[i].tile.rows == rows && (wide || hopper_sizes[i].tile.groups < 4))
            return &hopper_sizes[i];
    CHECK(!"hopper_rows gives a size of the table");
    return NULL;
}

void gemm_hopper_launch(struct cuda_plan *p, const struct gemm_params *params, struct gemm_part part)
{
    struct gemm_params own = *params;
    const struct hopper_size *size = hopper_size_of(p, params, part.max_rows);

    take_partial(p, &own, size->tile);
    cuda_launch_add(p, (*size->kernels)[part.format], hopper_shape(p, size->tile, part.format), &own,
                    sizeof own);
}

// Whether the tiles make one or two waves that leave few SMs idle.
static bool fills_waves(const struct cuda_plan *p, u32 n_tiles)
{
    u32 waves = divide_up(n_tiles, p->device.n_sms), slots = waves * p->device.n_sms;
    return waves <= 2 && (slots - n_tiles) * 100 <= p->device.n_sms * 15;
}

// The tile of gemm_tma. Height: all rows, up to 128; then 256, but 128 for products with few such tiles.
// Three warpgroups where that makes whole waves. One where there are 64 rows and so few tiles of two that
// three blocks would share each.
static struct hopper_tile tile_of(const struct cuda_plan *p, const struct gemm_params *params, u32 max_rows)
{
    struct hopper_tile t = { .rows = 8, .groups = 2 };
    u32 n_row_tiles = divide_up(max_rows, 128), narrow = divide_up(params->n_pairs, MANY_PAIRS) * n_row_tiles;

    while (t.rows < max_rows && t.rows < (2 * narrow <= 3 * p->device.n_sms ? 128 : 256))
        t.rows *= 2;
    if (t.rows >= 128 && !fills_waves(p, narrow) &&
        fills_waves(p, divide_up(params->n_pairs, WIDE_PAIRS) * n_row_tiles))
        return (struct hopper_tile){ .rows = 128, .groups = 3 };
    if (t.rows == 64 && 2 * narrow <= p->device.n_sms)
        t.groups = 1;
    return t;
}

static void plan_views(const struct cuda_plan *p, const struct gemm_params *params, struct view_box tma_box,
                       struct tiles_params *tiles)
{
    for (u32 m = 0; m < 3; m++)
        if (params->w[m].quants && !(params->mode == EPILOGUE_GATED && m > 0))
            plan_tiles(p, params, m, tma_box, tiles);
}

// Tiles of gemm_cluster: rows of activations and weight rows per block.
struct rows_tile {
    u32 rows, weights; // weights 0: none
    bool split;        // the cluster's blocks split the columns of one tile; else they have neighbouring rows
    const char *kernel;
    u32 n_clusters;    // in the grid
    bool staged, fp32; // gemm_staged, and the form of its results
    u32 first_row;     // of the launch
    u32 end_row;       // the rows from here on are another launch's; 0: none
};

static u32 rows_tiles(const struct gemm_params *params, u32 max_rows, struct rows_tile tile)
{
    return divide_up(2 * params->n_pairs, tile.weights) *
           divide_up(max_rows, tile.split ? tile.rows : ROWS_CLUSTER * tile.rows);
}

static struct cuda_shape rows_shape(struct rows_tile tile)
{
    u32 stage = (tile.rows + tile.weights) * 128, n_stages = HOPPER_TILES_ROOM / stage;
    if (tile.staged)
        return (struct cuda_shape){ { tile.n_clusters * ROWS_CLUSTER, 1, 1 },
                                    HOPPER_THREADS(2),
                                    STAGED_BYTES(tile.weights, tile.fp32) };
    return (struct cuda_shape){ { tile.n_clusters * ROWS_CLUSTER, 1, 1 },
                                ROWS_THREADS(tile.rows, tile.split),
                                n_stages * (stage + 16) + 64 };
}

static u32 rows_waves(const struct cuda_plan *p, const struct gemm_params *params, u32 max_rows,
                      struct rows_tile tile)
{
    return divide_up(rows_tiles(params, max_rows, tile), p->device.n_sms / ROWS_CLUSTER);
}

// For few tiles: the first of these sizes that gives most clusters one tile. For 64 rows half of a cluster's
// tile is padding, which costs nothing where gemm_tma would split each tile over all blocks. For 65 to 128
// rows and many weight rows: several waves of low tiles, if they are whole. (Measured:
// bench/results/2026-11-22-h200-kernel-choices.md.)
static struct rows_tile few_tiles_of(const struct cuda_plan *p, const struct gemm_params *params,
                                     u32 max_rows)
{
    static const struct rows_tile tiles[] = {
        { 128, 64, true, "gemm_cluster_split_128x64", 0, false, false, 0, 0 },
        { 128, 96, true, "gemm_cluster_split_128x96", 0, false, false, 0, 0 },
        { 128, 128, true, "gemm_cluster_split_128x128", 0, false, false, 0, 0 },
        { 128, 96, false, "gemm_cluster_128x96", 0, false, false, 0, 0 },
        { 64, 64, true, "gemm_cluster_split_64x64", 0, false, false, 0, 0 },
        { 64, 96, true, "gemm_cluster_split_64x96", 0, false, false, 0, 0 },
        { 64, 168, false, "gemm_cluster_64x168", 0, false, false, 0, 0 },
        { 64, 192, false, "gemm_cluster_64x192", 0, false, false, 0, 0 },
    };
    u32 n_clusters = p->device.n_sms / ROWS_CLUSTER;

    for (u32 i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        struct rows_tile tile = tiles[i];
        u32 n = rows_tiles(params, max_rows, tile),
            slots = rows_waves(p, params, max_rows, tile) * n_clusters;
        bool one = n <= n_clusters && n * 3 >= n_clusters * 2 && (max_rows > 64 || tile.rows == 64),
             whole = tile.rows == 64 && !tile.split && max_rows > 64 && max_rows <= PACKED_TILE_ROWS &&
                     n * 20 >= slots * 19;
        tile.n_clusters = n < n_clusters ? n : n_clusters;
        if (one || whole)
            return tile;
    }
    return (struct rows_tile){ 0 };
}

// The kernels of gemm_cluster with tiles of PACKED_TILE_ROWS rows. The ones for packed results work in waves
// alone.
enum cluster_kind { CLUSTER_PLAIN, CLUSTER_GATED, CLUSTER_PACKED, CLUSTER_ACTIVATED, N_CLUSTER_KINDS };
#define CLUSTER_SIZE(N)                                                       \
    {                                                                         \
        N,                                                                    \
        {                                                                     \
            { "gemm_cluster_" #N, "gemm_cluster_waves_" #N },                 \
                { "gemm_cluster_gated_" #N, "gemm_cluster_gated_waves_" #N }, \
                { "gemm_cluster_packed_" #N, "gemm_cluster_packed_" #N },     \
            {                                                                 \
                "gemm_cluster_activated_" #N, "gemm_cluster_activated_" #N    \
            }                                                                 \
        }                                                                     \
    }
static const struct {
    u32 weights;
    const char *kernels[N_CLUSTER_KINDS][2]; // [kind][several waves]
} cluster_sizes[] = { CLUSTER_SIZE(192), CLUSTER_SIZE(176), CLUSTER_SIZE(168), CLUSTER_SIZE(128) };
enum { N_CLUSTER_SIZES = sizeof cluster_sizes / sizeof *cluster_sizes };

static enum cluster_kind cluster_kind_of(const struct gemm_params *params)
{
    return params->mode == EPILOGUE_GATED       ? CLUSTER_GATED
           : params->mode == EPILOGUE_ACTIVATED ? CLUSTER_ACTIVATED
           : params->packed_out.at              ? CLUSTER_PACKED
                                                : CLUSTER_PLAIN;
}

// gemm_staged's kernel for this tile, or NULL: fp32 results, or packed ones alone.
static const char *staged_kernel_of(const struct cuda_plan *p, const struct gemm_params *params, u32 weights,
                                    u32 waves)
{
    enum cluster_kind kind = cluster_kind_of(params);
    bool wide = weights == 192, fits = (wide || weights == 128) && params->w[0].n_rows % 16 == 0 &&
                                       cuda_has_kernel(p, "gemm_staged_128");

    if (fits && kind == CLUSTER_PLAIN)
        return !wide && waves > 1 && params->n_cols <= MOST_STAGED_COLS ? "gemm_staged_128" : NULL;
    if (!fits || params->out[0] || kind == CLUSTER_GATED)
        return NULL;
    if (kind == CLUSTER_ACTIVATED)
        return wide ? "gemm_staged_activated_192" : "gemm_staged_activated_128";
    return wide ? "gemm_staged_packed_192" : "gemm_staged_packed_128";
}

// The rows that whole waves of such tiles take, where a kernel for few tiles takes the others: the last wave
// would leave most clusters idle. 0: none.
static u32 whole_waves_end(const struct cuda_plan *p, const struct gemm_params *params, u32 max_rows,
                           struct rows_tile tile)
{
    u32 n_columns = divide_up(2 * params->n_pairs, tile.weights), rows = ROWS_CLUSTER * tile.rows,
        n_whole = divide_up(max_rows, rows) * n_columns / tile.n_clusters * tile.n_clusters,
        end = n_whole / n_columns * rows;

    return cluster_kind_of(params) == CLUSTER_PLAIN && end > 0 && end < max_rows &&
                   few_tiles_of(p, params, max_rows - end).weights > 0
               ? end
               : 0;
}

// The size whose waves end first, of gemm_staged's kernels or of gemm_cluster's; a rest apart must save a
// twelfth of the time. None where two fifths of the SMs would idle: gemm_tma is better then.
static struct rows_tile best_tile_of(const struct cuda_plan *p, const struct gemm_params *params,
                                     u32 max_rows, bool is_staged)
{
    u64 work = (u64)2 * params->n_pairs * divide_up(max_rows, PACKED_TILE_ROWS);
    struct rows_tile best = { 0 };
    u32 least = ~0u / 16, pause = is_staged ? STAGED_PAUSE_ROWS : PAUSE_ROWS;

    for (u32 i = 0; i < 2 * N_CLUSTER_SIZES; i++) { // of all rows, then of those in whole waves
        struct rows_tile tile = { .rows = PACKED_TILE_ROWS,
                                  .weights = cluster_sizes[i % N_CLUSTER_SIZES].weights,
                                  .n_clusters = p->device.n_sms / ROWS_CLUSTER,
                                  .staged = is_staged,
                                  .fp32 = cluster_kind_of(params) == CLUSTER_PLAIN };
        tile.end_row = i < N_CLUSTER_SIZES ? 0 : whole_waves_end(p, params, max_rows, tile);
        u32 waves = rows_waves(p, params, tile.end_row ? tile.end_row : max_rows, tile),
            time = waves * (tile.weights + pause) + (tile.end_row ? REST_ROWS : 0);
        tile.kernel = is_staged
                          ? staged_kernel_of(p, params, tile.weights, waves)
                          : cluster_sizes[i % N_CLUSTER_SIZES].kernels[cluster_kind_of(params)][waves > 1];
        if (!tile.kernel || time * (tile.end_row ? 12 : 11) >= least * 11)
            continue;
        least = time;
        bool pays = (tile.end_row || 5 * work >= (u64)3 * waves * tile.weights * p->device.n_sms) &&
                    (is_staged || waves > 1 || params->n_cols >= LEAST_WAVE_COLS);
        best = pays ? tile : (struct rows_tile){ 0 };
    }
    return best;
}

static struct rows_tile many_tiles_of(const struct cuda_plan *p, const struct gemm_params *params,
                                      u32 max_rows)
{
    struct rows_tile staged = best_tile_of(p, params, max_rows, true);

    return staged.weights ? staged : best_tile_of(p, params, max_rows, false);
}

// gemm_cluster needs outputs whose layout lets a thread store four at a time. It activates packed results
// alone.
static bool fits_rows(const struct cuda_plan *p, const struct gemm_params *params, u32 max_rows)
{
    u64 places = params->out[0] | params->add | params->bias[0];
    bool has_epilogue =
        params->mode <= EPILOGUE_GATED || (params->mode == EPILOGUE_ACTIVATED && params->packed_out.at);

    return max_rows > 32 && params->n_cols >= LEAST_ROWS_COLS && has_epilogue &&
           params->out_stride[0] % 4 == 0 && places % 16 == 0 && cuda_has_kernel(p, "gemm_cluster_128");
}

static struct rows_tile cluster_tile_of(const struct cuda_plan *p, const struct gemm_params *params,
                                        u32 max_rows)
{
    struct rows_tile tile = { 0 };

    if (!fits_rows(p, params, max_rows))
        return tile;
    if (cluster_kind_of(params) == CLUSTER_PLAIN && params->n_cols >= LEAST_FEW_COLS)
        tile = few_tiles_of(p, params, max_rows);
    return tile.weights == 0 && max_rows > PACKED_TILE_ROWS ? many_tiles_of(p, params, max_rows) : tile;
}

// gemm_staged's view: weight rows in their order, eights of them. It exists where view_of's does.
static void plan_rows_view(const struct cuda_plan *p, const struct gemm_params *params, u32 weights,
                           struct tensor_view *encoded)
{
    u64 row = (u64)params->n_cols * 2, n_rows = params->w[0].n_rows;
    struct cuda_view view = { .at = params->w[0].quants,
                              .dims = { params->n_cols, 8, 1, n_rows / 8, 1 },
                              .strides = { row, 8 * row, 8 * row, n_rows * row },
                              .box = { 64, 8, 1, weights / 8 / ROWS_BOXES(weights), 1 } };

    CHECK(cuda_view_encode(p, &view, encoded));
}

static void launch_cluster(struct cuda_plan *p, const struct tiles_params *tiles, struct rows_tile tile,
                           u32 max_rows)
{
    struct view_box pairs = { 4, tile.weights / 8 / ROWS_BOXES(tile.weights) };
    struct cluster_params params = { .tiles = *tiles,
                                     .packed_at = { tiles->pairs.packed_out.at },
                                     .matrix_pairs = tiles->pairs.n_pairs,
                                     .first_row = tile.first_row,
                                     .end_row = tile.end_row ? tile.end_row : max_rows };

    if (tile.staged)
        plan_rows_view(p, &tiles->pairs, tile.weights, &params.tiles.w[0]);
    else
        plan_views(p, &tiles->pairs, pairs, &params.tiles);
    cuda_launch_add(p, tile.kernel, rows_shape(tile), &params, sizeof params);
    if (tile.end_row > 0) {
        struct rows_tile rest = few_tiles_of(p, &tiles->pairs, max_rows - tile.end_row);
        rest.first_row = tile.end_row;
        launch_cluster(p, tiles, rest, max_rows);
    }
}

static const char *tma_kernel(struct hopper_tile tile)
{
    static const struct {
        u32 rows, groups;
        const char *kernel;
    } kernels[] = { { 8, 2, "gemm_tma_8" },          { 16, 2, "gemm_tma_16" },
                    { 32, 2, "gemm_tma_32" },        { 64, 2, "gemm_tma_64" },
                    { 64, 1, "gemm_tma_64_half" },   { 128, 2, "gemm_tma_128" },
                    { 128, 3, "gemm_tma_128_wide" }, { 256, 2, "gemm_tma_256" } };

    for (u32 i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].rows == tile.rows && kernels[i].groups == tile.groups)
            return kernels[i].kernel;
    CHECK(!"tile_of gives a size of the table");
    return NULL;
}

void gemm_tma_launch(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part)
{
    struct tiles_params tiles = { .pairs = *params };
    struct hopper_tile tile = tile_of(p, params, part.max_rows);

    struct rows_tile rows = cluster_tile_of(p, &tiles.pairs, part.max_rows);
    if (rows.weights > 0) {
        launch_cluster(p, &tiles, rows, part.max_rows);
        return;
    }
    plan_views(p, params, groups_of_eight, &tiles);
    take_partial(p, &tiles.pairs, tile);
    cuda_launch_add(p, tma_kernel(tile), tma_shape(p, tile), &tiles, sizeof tiles);
}

// As one list of pairs, in tiles of gemm_staged that each are of one matrix.
static struct rows_tile joined_tile_of(const struct cuda_plan *p, const struct gemm_plan *products, u32 n,
                                       u32 max_rows)
{
    struct gemm_params all = products[0].params;
    struct rows_tile none = { 0 };

    for (u32 m = 0; m < n; m++)
        if (gemm_kernel_of(p, &products[m], 0) != KERNEL_GEMM_TMA || products[m].params.out[0] ||
            !products[m].params.packed_out.at || products[m].params.w[0].n_rows != all.w[0].n_rows)
            return none;
    all.n_pairs = n * (all.w[0].n_rows / 2);
    all.packed_cols = divide_up(all.n_cols, 128) * 128;
    if (max_rows <= PACKED_TILE_ROWS || gemm_wants_vendor(p, products) || !fits_rows(p, &all, max_rows))
        return none;
    struct rows_tile tile = best_tile_of(p, &all, max_rows, true);
    return tile.weights > 0 && all.w[0].n_rows % tile.weights == 0 ? tile : none;
}

static bool joins_int8(const struct cuda_plan *p, const struct gemm_plan *products, u32 n)
{
    bool joins = !gemm_wants_vendor(p, products) && products[0].params.w[0].n_rows % STAGED_INT8_WEIGHTS == 0;

    for (u32 m = 0; m < n; m++)
        joins = joins && gemm_kernel_of(p, &products[m], 0) == KERNEL_GEMM_STAGED_INT8 &&
                products[m].params.packed_out.at &&
                products[m].params.packed_out.form == products[0].params.packed_out.form &&
                products[m].params.w[0].n_rows == products[0].params.w[0].n_rows;
    return joins;
}

bool gemm_launch_joined(struct cuda_plan *p, const struct gemm_plan *products, u32 n)
{
    u32 max_rows = gemm_max_rows(p, &products[0].params);
    struct rows_tile tile = joined_tile_of(p, products, n, max_rows);
    struct cluster_params params = { .tiles.pairs = products[0].params, .end_row = max_rows };
    struct gemm_params *all = &params.tiles.pairs;

    bool is_int8 = joins_int8(p, products, n);
    if (tile.weights == 0 && !is_int8)
        return false;
    params.matrix_pairs = all->w[0].n_rows / 2;
    all->n_pairs = n * params.matrix_pairs;
    all->packed_cols = divide_up(all->n_cols, 128) * 128;
    gemm_packing_launch(p, products, all);
    for (u32 m = 0; m < n; m++) {
        if (!is_int8)
            plan_rows_view(p, &products[m].params, tile.weights, &params.tiles.w[m]);
        all->w[m] = products[m].params.w[0];
        all->out[m] = products[m].params.out[0];
        all->out_stride[m] = products[m].params.out_stride[0];
        params.packed_at[m] = products[m].params.packed_out.at;
        all->bias[m] = products[m].params.bias[0];
    }
    if (is_int8)
        gemm_staged_int8_launch(p, &params, max_rows);
    else
        cuda_launch_add(p, tile.kernel, rows_shape(tile), &params, sizeof params);
    return true;
}
