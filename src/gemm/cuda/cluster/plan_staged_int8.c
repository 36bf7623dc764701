// plan_staged_int8.c - launches of gemm_staged_int8 and gemm_stationary_int8: an encoder's products of many
// rows by Q8_0 weights of one scale a row.
#include "gemm/cuda/cluster/gemm_staged.h"
#include "gemm/cuda/gemm_plan.h"

// Weight rows in their order, eights of them: 128 bytes of a row in the place of 64 numbers of bf16.
static bool plan_view(const struct cuda_plan *p, const struct weight_planes *w, struct tensor_view *encoded)
{
    u64 row = w->n_cols, n_rows = w->n_rows;
    struct cuda_view view = { .at = w->quants,
                              .dims = { row / 2, 8, 1, n_rows / 8, 1 },
                              .strides = { row, 8 * row, 8 * row, n_rows * row },
                              .box = { 64, 8, 1, STAGED_INT8_WEIGHTS / 8 / ROWS_BOXES(STAGED_INT8_WEIGHTS),
                                       1 } };

    return cuda_view_encode(p, &view, encoded);
}

bool gemm_staged_int8_fits(const struct cuda_plan *p, const struct gemm_params *params, u32 m)
{
    const struct weight_planes *w = &params->w[m];
    struct tensor_view view;
    u64 places = params->out[0] | params->add | params->bias[0];
    bool activates = params->activation == ACTIVATION_SILU || params->activation == ACTIVATION_GELU_TANH;

    return w->row_scales && w->n_cols % INT8_CHUNK_COLUMNS == 0 && w->n_rows % 16 == 0 && places % 16 == 0 &&
           !params->norm && params->rows == ROWS_STEP && params->out_stride[0] == w->n_rows &&
           (params->mode == EPILOGUE_LINEAR || (params->mode == EPILOGUE_ACTIVATED && activates)) &&
           p->device.capability >= 90 && cuda_has_kernel(p, "gemm_staged_int8") && plan_view(p, w, &view);
}

// Heads have one scale for 64 columns. Normed and activated rows have one for 128, which leaves more time for
// the epilogue.
static bool reads_wide(const struct weight_planes *w, bool adds)
{
    return !adds || w->n_cols > w->n_rows;
}

const struct tape_packing *gemm_staged_int8_reads(const struct gemm_plan *product)
{
    return reads_wide(&product->params.w[0], product->adds) ? &gemm_packing_int8_wide
                                                            : &gemm_packing_int8_tiles;
}

bool gemm_staged_int8_packs(const struct gemm_params *params, const struct tape_packing *packing)
{
    u32 n_rows = params->w[0].n_rows;

    if (params->mode == EPILOGUE_ACTIVATED)
        return (packing == &gemm_packing_int8_tiles || packing == &gemm_packing_int8_wide) &&
               n_rows % INT8_CHUNK_COLUMNS == 0;
    return !params->add &&
           ((packing == &gemm_packing_bf16 && n_rows % 64 == 0) || packing == &gemm_packing_rows);
}

// Of gemm_stationary_int8: clusters that share the rows of each 256 weight rows; 0: it does not fit.
static u32 stationary_shares(const struct cuda_plan *p, const struct cluster_params *c)
{
    const struct gemm_params *pairs = &c->tiles.pairs;
    u32 wide = ROWS_CLUSTER * STAGED_INT8_WEIGHTS;

    return pairs->packed_cols <= STATIONARY_CHUNKS * INT8_CHUNK_COLUMNS && 2 * c->matrix_pairs % wide == 0
               ? p->device.n_sms / ROWS_CLUSTER / (2 * pairs->n_pairs / wide)
               : 0;
}

// Of packed results, of fp32 ones, of those by wide rows, of activated ones.
static const char *const kernels[2][4] = {
    { "gemm_staged_int8_packed", "gemm_staged_int8", "gemm_staged_int8_wide", "gemm_staged_int8_activated" },
    { "gemm_stationary_int8_packed", "gemm_stationary_int8", NULL, "gemm_stationary_int8_activated" },
};

// params: of up to three matrices of one shape, as gemm_launch_joined fills them, or of one.
void gemm_staged_int8_launch(struct cuda_plan *p, const struct cluster_params *params, u32 max_rows)
{
    struct cluster_params c = *params;
    struct gemm_params *pairs = &c.tiles.pairs;
    bool activated = pairs->mode == EPILOGUE_ACTIVATED, fp32 = pairs->add != 0,
         wide = fp32 && reads_wide(&pairs->w[0], true);
    u32 n_tiles = divide_up(2 * pairs->n_pairs, STAGED_INT8_WEIGHTS) *
                  divide_up(max_rows, ROWS_CLUSTER * PACKED_TILE_ROWS),
        most = p->device.n_sms / ROWS_CLUSTER, n_clusters = n_tiles < most ? n_tiles : most,
        bytes = STAGED_INT8_BYTES(activated, fp32);

    c.end_row = max_rows;
    if (c.matrix_pairs == 0) {
        c.matrix_pairs = pairs->n_pairs;
        c.packed_at[0] = pairs->packed_out.at;
    }
    for (u32 m = 0; m * c.matrix_pairs < pairs->n_pairs; m++)
        CHECK(plan_view(p, &pairs->w[m], &c.tiles.w[m]));
    u32 shares = wide ? 0 : stationary_shares(p, &c);
    if (shares > 0) {
        n_clusters = shares * (2 * pairs->n_pairs / (ROWS_CLUSTER * STAGED_INT8_WEIGHTS));
        bytes = STATIONARY_BYTES(activated, fp32);
    }
    cuda_launch_add(p, kernels[shares > 0][activated ? 3 : fp32 + wide],
                    (struct cuda_shape){ { n_clusters * ROWS_CLUSTER, 1, 1 }, HOPPER_THREADS(2), bytes }, &c,
                    sizeof c);
}
