// plan_vendor.c - a product by the vendor's library: activations and weights as bf16 in the tape's private
// memory, the library's product for each matrix, and our own epilogue. A matrix that is bf16 already is used
// where it lies.
#include "gemm/cuda/vendor_parts.h"
#include "base/divide.h"

enum { THREADS = 256 };

static u64 aligned(u64 bytes)
{
    return (bytes + 255) / 256 * 256;
}
static void launch_rows(struct cuda_plan *p, const struct gemm_params *params, u64 to, u32 max_rows)
{
    struct packing_params rows = { .in = params->in,
                                   .norm = params->norm,
                                   .out = to,
                                   .n_cols = params->n_cols,
                                   .rows = params->rows,
                                   .eps = params->eps };
    cuda_launch_add(p, "vendor_rows", (struct cuda_shape){ { max_rows, 1, 1 }, THREADS, 0 }, &rows,
                    sizeof rows);
}

static u64 launch_weights(struct cuda_plan *p, const struct weight_planes *w, u64 to)
{
    struct vendor_weights_params weights = { .w = *w, .out = to };

    if (w->format == QUANT_BF16)
        return w->quants;
    cuda_launch_add(
        p, "vendor_weights",
        (struct cuda_shape){ { divide_up((u64)w->n_rows * (w->n_cols / 32), THREADS), 1, 1 }, THREADS, 0 },
        &weights, sizeof weights);
    return to;
}

void gemm_vendor_launch(struct cuda_plan *p, const struct gemm_params *params, u32 n_matrices, u32 max_rows)
{
    struct vendor_finish_params finish = { .pairs = *params };
    u64 rows = p->private_at, weights = rows + aligned((u64)max_rows * params->n_cols * 2), most = 0,
        n_rows = 0;

    for (u32 m = 0; m < n_matrices; m++) {
        u64 bytes = aligned((u64)params->w[m].n_rows * params->n_cols * 2);
        most = bytes > most ? bytes : most;
        n_rows += params->w[m].n_rows;
    }
    u64 sums = weights + most;
    p->private_bytes = sums - p->private_at + n_rows * max_rows * 4;
    launch_rows(p, params, rows, max_rows);
    for (u32 m = 0; m < n_matrices; m++) {
        struct vendor_product product = { .out = sums,
                                          .x = rows,
                                          .w = launch_weights(p, &params->w[m], weights),
                                          .n_rows = max_rows,
                                          .n_out = params->w[m].n_rows,
                                          .n_cols = params->n_cols };
        cuda_product_add(p, &product);
        finish.sums[m] = sums;
        sums += (u64)params->w[m].n_rows * max_rows * 4;
    }
    cuda_launch_add(p, "vendor_finish",
                    (struct cuda_shape){ { divide_up(params->n_pairs, THREADS), max_rows, 1 }, THREADS, 0 },
                    &finish, sizeof finish);
}
