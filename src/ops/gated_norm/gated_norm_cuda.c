// gated_norm_cuda.c - the operation's launch: a warp for each group of a row, or a block where that is long.
#include "ops/cuda_table.h"
#include "ops/gated_norm/gated_norm_cuda.h"

enum { SLICE = 128, LEAST_WIDE = 512 };

// Without a norm a row's numbers know nothing of each other.
static void cut_groups(struct gated_norm_args *a, bool has_norm)
{
    u32 n = a->n_groups * a->n;

    if (!has_norm && n % SLICE == 0) {
        a->n = SLICE;
        a->n_groups = n / SLICE;
    }
}

void cuda_plan_gated_norm(struct cuda_plan *p)
{
    struct gated_norm_params params = { .in = cuda_at(p, GATED_IN),
                                        .z = cuda_at(p, GATED_Z),
                                        .scale = cuda_at(p, GATED_SCALE),
                                        .out = cuda_at(p, GATED_OUT),
                                        .args = *(const struct gated_norm_args *)p->command->args };
    struct gated_norm_args *a = &params.args;

    cut_groups(a, params.scale);
    if (a->n >= LEAST_WIDE)
        cuda_launch_add(p, "gated_norm_wide",
                        (struct cuda_shape){ { a->n_groups, p->tape.max_rows, 1 }, GATED_WIDE_THREADS, 0 },
                        &params, sizeof params);
    else
        cuda_launch_add(p, "gated_norm",
                        (struct cuda_shape){ { (a->n_groups + 3) / 4, p->tape.max_rows, 1 }, 128, 0 },
                        &params, sizeof params);
}
