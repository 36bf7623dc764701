// scatter_cpu.c - the definition: a copy.
#include <string.h>
#include "ops/rows.h"
#include "ops/scatter/scatter.h"

static void scatter_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct scatter_args *args = cpu_args(call);
    const uint32_t *places = cpu_base(call, SCATTER_PLACES);
    float *pool = cpu_base(call, SCATTER_POOL); // [n_rows, n_cols]

    (void)phase;
    for (uint32_t o = first; o < last; o++)
        if (places[o] < args->n_rows)
            memcpy(pool + (size_t)places[o] * args->n_cols, cpu_row(call, SCATTER_IN, o),
                   args->n_cols * sizeof(float));
}

const struct cpu_op cpu_op_scatter = { .name = "scatter", .plain = { plan_outputs, scatter_run } };
