// rmsnorm_cpu.c - the definition.
#include <math.h>
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

void rmsnorm_row_plain(const float *in, const float *scale, float *out, uint32_t n_cols, float eps)
{
    float sum = 0;

    for (uint32_t c = 0; c < n_cols; c++)
        sum += in[c] * in[c];
    float factor = 1 / sqrtf(sum / (float)n_cols + eps);
    for (uint32_t c = 0; c < n_cols; c++)
        out[c] = in[c] * factor * scale[c];
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
        rmsnorm_row_plain(cpu_row(call, 0, row), cpu_base(call, 1), cpu_row(call, 2, row), args->n_cols,
                          args->eps);
}

static void rmsnorm_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const struct rmsnorm_args *args = cpu_args(call);

    for (uint32_t row = range.first; row < range.last; row++)
        rows->rmsnorm(cpu_row(call, 0, row), cpu_base(call, 1), cpu_row(call, 2, row), args->n_cols,
                      args->eps);
}
ROW_KERNELS(rmsnorm_fast)

const struct cpu_op cpu_op_rmsnorm = { .name = "rmsnorm",
                                       .by_rows = true,
                                       .plain = { rmsnorm_plan, rmsnorm_run },
                                       .fast = { ROW_CHOICES(rmsnorm_plan, rmsnorm_fast) } };
