// gate_up_cpu.c - the definition: its parts, row by row.
#include "ops/gate_up/gate_up.h"
#include "ops/gate_up/gate_up_fast.h"
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"

static void gate_up_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct gate_up_args *args = cpu_args(call);
    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

static void gate_up_row(const struct cpu_call *call, uint32_t r)
{
    const struct gate_up_args *args = cpu_args(call);
    const struct weight *gate = cpu_weight(call, GATE_UP_GATE), *up = cpu_weight(call, GATE_UP_UP);
    float *n = call->local, *decoded = n + args->n_cols; // [n_cols] each
    float *out = cpu_row(call, GATE_UP_OUT, r);          // [n_out]

    rmsnorm_row_plain(cpu_row(call, GATE_UP_IN, r), cpu_base(call, GATE_UP_NORM), n, args->n_cols, args->eps);
    for (uint32_t i = 0; i < args->n_out; i++) {
        matmul_decode_row(gate, i, decoded);
        float g = matmul_dot_plain(n, decoded, args->n_cols);
        matmul_decode_row(up, i, decoded);
        out[i] = activation_plain((enum activation)args->activation, g) * matmul_dot_plain(n, decoded, args->n_cols);
    }
}

static void gate_up_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        gate_up_row(call, r);
}

PRODUCT_KERNELS(gate_up_fast)

const struct cpu_op cpu_op_gate_up = {
    .name = "gate_up", .by_rows = true, .plain = { gate_up_plan, gate_up_run }, .fast = { PRODUCT_CHOICES(gate_up_fast) }
};
