// rows.h - small helpers that the plain loops share.
#pragma once
#include "device/cpu/cpu.h"

// One tile per row of the step, or per output row.
static inline void plan_rows(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan->n_phases = 1;
    plan->n_tiles[0] = call->step->n_rows;
}
static inline void plan_outputs(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan->n_phases = 1;
    plan->n_tiles[0] = call->step->n_outputs;
}
// Rows of an operation whose tensors may be of either kind: args hold an enum tensor_rows.
static inline uint32_t rows_of(const struct step *s, uint32_t rows)
{
    return rows == ROWS_STEP ? s->n_rows : s->n_outputs;
}
