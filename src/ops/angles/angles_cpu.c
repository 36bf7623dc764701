// angles_cpu.c - the definition. A row costs as much as a layer's norm, once for all layers.
#include <math.h>
#include "ops/angles/angles.h"
#include "ops/rows.h"

static void angles_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct angles_args *args = cpu_args(call);
    const float *frequencies = cpu_base(call, 0); // [n_pairs]

    (void)phase;
    for (uint32_t row = first; row < last; row++) {
        float *out = cpu_row(call, 1, row); // [n_pairs, 2]
        for (uint32_t i = 0; i < args->n_pairs; i++) {
            float angle = (float)step_positions(call->step)[row] * frequencies[i];
            out[2 * i] = cosf(angle) * args->scale;
            out[2 * i + 1] = sinf(angle) * args->scale;
        }
    }
}

const struct cpu_op cpu_op_angles = { .name = "angles", .by_rows = true, .plain = { plan_rows, angles_run } };
