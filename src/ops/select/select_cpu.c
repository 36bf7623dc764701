// select_cpu.c - the definition.
#include <string.h>
#include "ops/rows.h"
#include "ops/select/select.h"

static void select_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct select_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t i = first; i < last; i++)
        memcpy(cpu_row(call, 1, i), cpu_row(call, 0, step_outputs(call->step)[i]),
               args->n_cols * sizeof(float));
}

const struct cpu_op cpu_op_select = { .name = "select",
                                      .by_rows = true,
                                      .plain = { plan_outputs, select_run } };
