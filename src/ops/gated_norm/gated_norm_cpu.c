// gated_norm_cpu.c - the definition.
#include <math.h>
#include "ops/gated_norm/gated_norm.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

static float gate_of(const struct gated_norm_group *g, uint32_t c)
{
    return (g->sigmoid ? 1 : g->gate[c]) / (1 + expf(-g->gate[c]));
}

static void gated_norm_plain(const struct gated_norm_group *g)
{
    float sum = 0, factor = 1;

    for (uint32_t c = 0; c < g->n && g->scale; c++) {
        float x = g->gate_first ? g->in[c] * gate_of(g, c) : g->in[c];
        sum += x * x;
    }
    if (g->scale)
        factor = 1 / sqrtf(sum / (float)g->n + g->eps);
    for (uint32_t c = 0; c < g->n; c++)
        g->out[c] = g->in[c] * gate_of(g, c) * factor * (g->scale ? g->scale[c] : 1);
}

static void run_row(const struct cpu_call *call, uint32_t r, void (*run)(const struct gated_norm_group *))
{
    const struct gated_norm_args *args = cpu_args(call);
    const float *in = cpu_row(call, GATED_IN, r), *z = (const float *)cpu_row(call, GATED_Z, r) + args->z_at,
                *scale = cpu_base(call, GATED_SCALE);
    float *out = cpu_row(call, GATED_OUT, r);

    for (uint32_t g = 0; g < args->n_groups; g++) {
        size_t at = (size_t)g * args->n;
        run(&(struct gated_norm_group){ .in = in + at,
                                        .gate = z + at,
                                        .scale = scale ? scale + (size_t)g * args->scale_step : NULL,
                                        .out = out + at,
                                        .n = args->n,
                                        .gate_first = args->flags & GATED_FIRST,
                                        .sigmoid = args->flags & GATED_SIGMOID,
                                        .eps = args->eps });
    }
}

static void gated_norm_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        run_row(call, r, gated_norm_plain);
}

static void gated_norm_fast(const struct cpu_call *call, struct row_range range,
                            const struct row_kernels *rows)
{
    for (uint32_t r = range.first; r < range.last; r++)
        run_row(call, r, rows->gated_norm);
}
ROW_KERNELS(gated_norm_fast)

const struct cpu_op cpu_op_gated_norm = { .name = "gated_norm",
                                          .by_rows = true,
                                          .plain = { plan_rows, gated_norm_run },
                                          .fast = { ROW_CHOICES(plan_rows, gated_norm_fast) } };
