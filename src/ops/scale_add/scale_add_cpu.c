// scale_add_cpu.c - the definition. Compilers make vectors of it, and memory bounds it.
#include "ops/rows.h"
#include "ops/scale_add/scale_add.h"

static void scale_add_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct scale_add_args *args = cpu_args(call);
    const float *scale = cpu_base(call, SCALE_ADD_SCALE); // [n_cols]

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *in = cpu_row(call, SCALE_ADD_IN, r), *add = cpu_row(call, SCALE_ADD_ADD, r);
        float *out = cpu_row(call, SCALE_ADD_OUT, r);
        for (uint32_t c = 0; c < args->n_cols; c++)
            out[c] = in[c] * scale[c] + add[c];
    }
}

const struct cpu_op cpu_op_scale_add = { .name = "scale_add", .plain = { plan_rows, scale_add_run } };
