// layernorm_cpu.c - the definition.
#include <math.h>
#include "ops/layernorm/layernorm.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

static void layernorm_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct layernorm_args *args = cpu_args(call);
    plan->n_phases = 1;
    plan->n_tiles[0] = rows_of(call->step, args->rows);
}

static struct layernorm_row row_at(const struct cpu_call *call, uint32_t row)
{
    const struct layernorm_args *args = cpu_args(call);

    return (struct layernorm_row){ .in = cpu_row(call, LAYERNORM_IN, row),
                                   .scale = cpu_base(call, LAYERNORM_SCALE),
                                   .bias = cpu_base(call, LAYERNORM_BIAS),
                                   .out = cpu_row(call, LAYERNORM_OUT, row),
                                   .n_cols = args->n_cols,
                                   .eps = args->eps };
}

static void row_plain(const struct layernorm_row *r)
{
    float sum = 0, squares = 0;

    for (uint32_t c = 0; c < r->n_cols; c++)
        sum += r->in[c];
    float mean = sum / (float)r->n_cols;
    for (uint32_t c = 0; c < r->n_cols; c++)
        squares += (r->in[c] - mean) * (r->in[c] - mean);
    float factor = 1 / sqrtf(squares / (float)r->n_cols + r->eps);
    for (uint32_t c = 0; c < r->n_cols; c++)
        r->out[c] = (r->in[c] - mean) * factor * r->scale[c] + r->bias[c];
}

static void layernorm_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t row = first; row < last; row++) {
        struct layernorm_row r = row_at(call, row);
        row_plain(&r);
    }
}

static void layernorm_fast(const struct cpu_call *call, struct row_range range,
                           const struct row_kernels *rows)
{
    for (uint32_t row = range.first; row < range.last; row++) {
        struct layernorm_row r = row_at(call, row);
        rows->layernorm(&r);
    }
}
ROW_KERNELS(layernorm_fast)

const struct cpu_op cpu_op_layernorm = { .name = "layernorm",
                                         .by_rows = true,
                                         .plain = { layernorm_plan, layernorm_run },
                                         .fast = { ROW_CHOICES(layernorm_plan, layernorm_fast) } };
