// activate_cpu.c - the definition.
#include <math.h>
#include "ops/activate/activate.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

float activate_plain(enum activation a, float x)
{
    if (a == ACTIVATION_SILU)
        return x / (1 + expf(-x));
    if (a == ACTIVATION_RELU)
        return x < 0 ? 0 : x;
    if (a == ACTIVATION_GELU)
        return 0.5f * x * (1 + erff(x * 0.7071067812f));                        // sqrt(1 / 2)
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); // sqrt(2 / pi)
}

static float element(const struct activate_args *args, float x)
{
    return args->activation == ACTIVATION_CAP ? args->limit * tanhf(x / args->limit)
                                              : activate_plain((enum activation)args->activation, x);
}

// The row's part of up that is used, or NULL.
static const float *up_row(const struct cpu_call *call, uint32_t r)
{
    const struct activate_args *args = cpu_args(call);
    return args->gated ? (const float *)cpu_row(call, 1, r) + args->up_first : NULL;
}

static void activate_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan->n_phases = 1;
    plan->n_tiles[0] = rows_of(call->step, ((const struct activate_args *)cpu_args(call))->rows);
}

static void activate_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct activate_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *gate = cpu_row(call, 0, r), *up = up_row(call, r);
        float *out = cpu_row(call, 2, r);
        for (uint32_t c = 0; c < args->n_cols; c++)
            out[c] = element(args, gate[c]) * (up ? up[c] : 1);
    }
}

static void activate_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const struct activate_args *args = cpu_args(call);

    for (uint32_t r = range.first; r < range.last; r++)
        rows->activate(args, cpu_row(call, 0, r), up_row(call, r), cpu_row(call, 2, r));
}
ROW_KERNELS(activate_fast)

const struct cpu_op cpu_op_activate = { .name = "activate",
                                        .by_rows = true,
                                        .plain = { activate_plan, activate_run },
                                        .fast = { ROW_CHOICES(activate_plan, activate_fast) } };
