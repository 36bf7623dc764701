// shuffle_cpu.c - the definition: a copy.
#include <string.h>
#include "ops/rows.h"
#include "ops/shuffle/shuffle.h"

static void shuffle_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct shuffle_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t o = first; o < last; o++) {
        float *out = cpu_row(call, SHUFFLE_OUT, o);
        for (uint32_t i = 0; i < args->side * args->side; i++) {
            uint32_t row = step_outputs(call->step)[o] + i / args->side * args->n_across + i % args->side;
            memcpy(out + (size_t)i * args->n_cols, cpu_row(call, SHUFFLE_IN, row),
                   args->n_cols * sizeof(float));
        }
    }
}

const struct cpu_op cpu_op_shuffle = { .name = "shuffle", .plain = { plan_outputs, shuffle_run } };
