// activate_cpu.c - the definition.
#include <math.h>
#include "ops/activate/activate.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

float activate_plain(enum activation a, float x)
{
    if (a == ACTIVATION_SILU)
        return x / (1 + expf(-x));
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); // sqrt(2 / pi)
}

static void activate_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct activate_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *gate = cpu_row(call, 0, r), *up = args->gated ? cpu_row(call, 1, r) : NULL;
        float *out = cpu_row(call, 2, r);
        for (uint32_t c = 0; c < args->n_cols; c++)
            out[c] = activate_plain((enum activation)args->activation, gate[c]) * (up ? up[c] : 1);
    }
}

static void activate_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    const struct activate_args *args = cpu_args(call);

    for (uint32_t r = range.first; r < range.last; r++)
        rows->activate(args, cpu_row(call, 0, r), args->gated ? cpu_row(call, 1, r) : NULL,
                       cpu_row(call, 2, r));
}
ROW_KERNELS(activate_fast)

const struct cpu_op cpu_op_activate = { .name = "activate",
                                        .by_rows = true,
                                        .plain = { plan_rows, activate_run },
                                        .fast = { ROW_CHOICES(plan_rows, activate_fast) } };
