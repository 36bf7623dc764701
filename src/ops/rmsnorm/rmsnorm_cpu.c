// rmsnorm_cpu.c - the definition.
#include <math.h>
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

static float norm_factor(const float *in, uint32_t n_cols, float eps)
{
    float sum = 0;

    for (uint32_t c = 0; c < n_cols; c++)
        sum += in[c] * in[c];
    return 1 / sqrtf(sum / (float)n_cols + eps);
}

void rmsnorm_row_plain(const float *in, const float *scale, float *out, uint32_t n_cols, float eps)
{
    float factor = norm_factor(in, n_cols, eps);

    for (uint32_t c = 0; c < n_cols; c++)
        out[c] = in[c] * factor * scale[c];
}

static void norm_plain(const struct norm_row *row)
{
    float factor = norm_factor(row->in, row->n_cols, row->eps);

    for (uint32_t c = 0; c < row->n_cols; c++) {
        float x = row->in[c] * factor * (row->scale ? row->scale[c] : 1);
        row->out[c] = (row->add ? x + row->add[c] : x) * row->gain;
    }
}

// Group g of a row.
static struct norm_row row_of(const struct cpu_call *call, uint32_t row, uint32_t g)
{
    const struct rmsnorm_args *args = cpu_args(call);
    size_t at = (size_t)g * args->n_cols;

    return (struct norm_row){ .in = (const float *)cpu_row(call, RMSNORM_IN, row) + at,
                              .scale = cpu_base(call, RMSNORM_SCALE),
                              .add = cpu_has(call, RMSNORM_ADD)
                                         ? (const float *)cpu_row(call, RMSNORM_ADD, row) + at
                                         : NULL,
                              .out = (float *)cpu_row(call, RMSNORM_OUT, row) + at,
                              .n_cols = args->n_cols,
                              .eps = args->eps,
                              .gain = args->gain };
}

static void rmsnorm_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct rmsnorm_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = rows_of(call->step, args->rows);
}

static void rmsnorm_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct rmsnorm_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t row = first; row < last; row++)
        for (uint32_t g = 0; g < args->n_groups; g++) {
            struct norm_row n = row_of(call, row, g);
            norm_plain(&n);
        }
}

static void rmsnorm_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const struct rmsnorm_args *args = cpu_args(call);
    bool more = cpu_has(call, RMSNORM_ADD) || !cpu_base(call, RMSNORM_SCALE) || args->gain != 1;

    for (uint32_t row = range.first; row < range.last; row++)
        for (uint32_t g = 0; g < args->n_groups; g++) {
            struct norm_row n = row_of(call, row, g);
            if (more)
                rows->norm_add(&n);
            else
                rows->rmsnorm(n.in, n.scale, n.out, n.n_cols, n.eps);
        }
}
ROW_KERNELS(rmsnorm_fast)

const struct cpu_op cpu_op_rmsnorm = { .name = "rmsnorm",
                                       .by_rows = true,
                                       .plain = { rmsnorm_plan, rmsnorm_run },
                                       .fast = { ROW_CHOICES(rmsnorm_plan, rmsnorm_fast) } };
