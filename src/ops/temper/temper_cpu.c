// temper_cpu.c - the definition. A row costs as much as a copy of it.
#include <math.h>
#include "ops/rows.h"
#include "ops/temper/temper.h"

static void temper_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct temper_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t row = first; row < last; row++) {
        const float *in = cpu_row(call, 0, row);
        float *out = cpu_row(call, 1, row);
        uint32_t periods = step_positions(call->step)[row] / args->period;
        float factor = 1 + args->beta * logf(1 + (float)periods);
        for (uint32_t c = 0; c < args->n_cols; c++)
            out[c] = in[c] * factor;
    }
}

const struct cpu_op cpu_op_temper = { .name = "temper", .by_rows = true, .plain = { plan_rows, temper_run } };
