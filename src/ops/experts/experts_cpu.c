// experts_cpu.c - the definition of both operations, row by row.
#include <math.h>
#include "ops/activate/activate.h"
#include "ops/experts/experts.h"
#include "ops/matmul/matmul.h"
#include "ops/rows.h"

static float gated(const struct experts_args *args, float gate, float up)
{
    if (args->limit <= 0)
        return activation_plain((enum activation)args->activation, gate) * up;
    gate = gate > args->limit ? args->limit : gate; // a NaN stays
    up = up > args->limit ? args->limit : up < -args->limit ? -args->limit : up;
    return (up + 1) * gate / (1 + expf(-EXPERTS_ALPHA * gate));
}

static float output(const float *in, const struct weight *w, uint64_t row, float *decoded)
{
    matmul_decode_row(w, (uint32_t)row, decoded);
    return matmul_dot_plain(in, decoded, w->n_cols);
}

static void up_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct experts_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->n_cols * sizeof(float);
}

static void up_slot(const struct cpu_call *call, const float *in, uint32_t expert, float *out)
{
    const struct experts_args *args = cpu_args(call);
    const float *gate_bias = cpu_base(call, EXPERTS_UP_GATE_BIAS), *up_bias = cpu_base(call, EXPERTS_UP_UP_BIAS);

    for (uint32_t i = 0; i < args->n_ffn; i++) {
        uint64_t at = (uint64_t)expert * args->n_ffn + i;
        float gate = output(in, cpu_weight(call, EXPERTS_UP_GATE), at, call->local);
        float up = output(in, cpu_weight(call, EXPERTS_UP_UP), at, call->local);
        out[i] = gated(args, gate + (gate_bias ? gate_bias[at] : 0), up + (up_bias ? up_bias[at] : 0));
    }
}

static void up_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct experts_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *in = cpu_row(call, EXPERTS_UP_IN, r), *ids = cpu_row(call, EXPERTS_UP_IDS, r);
        float *out = cpu_row(call, EXPERTS_UP_OUT, r), *shared = out + (size_t)args->n_slots * args->n_ffn;
        for (uint32_t j = 0; j < args->n_slots; j++)
            up_slot(call, in, (uint32_t)ids[j], out + (size_t)j * args->n_ffn);
        for (uint32_t i = 0; i < args->n_shared; i++)
            shared[i] = gated(args, output(in, cpu_weight(call, EXPERTS_UP_SHARED_GATE), i, call->local),
                              output(in, cpu_weight(call, EXPERTS_UP_SHARED_UP), i, call->local));
    }
}

static void down_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct experts_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = (args->n_ffn > args->n_shared ? args->n_ffn : args->n_shared) * sizeof(float);
}

// One number of a row: the slots in their order, then the shared expert.
static float down_column(const struct cpu_call *call, uint32_t r, uint32_t column)
{
    const struct experts_args *args = cpu_args(call);
    const float *in = cpu_row(call, EXPERTS_DOWN_IN, r), *ids = cpu_row(call, EXPERTS_DOWN_IDS, r);
    const float *weights = cpu_row(call, EXPERTS_DOWN_WEIGHTS, r), *bias = cpu_base(call, EXPERTS_DOWN_BIAS);
    float sum = 0;

    for (uint32_t j = 0; j < args->n_slots; j++) {
        uint64_t at = (uint64_t)ids[j] * args->n_cols + column;
        float y = output(in + (size_t)j * args->n_ffn, cpu_weight(call, EXPERTS_DOWN_DOWN), at, call->local);
        sum += weights[j] * (y + (bias ? bias[at] : 0));
    }
    if (args->n_shared)
        sum += weights[args->n_slots] *
               output(in + (size_t)args->n_slots * args->n_ffn, cpu_weight(call, EXPERTS_DOWN_SHARED), column, call->local);
    return sum;
}

static void down_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct experts_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *add = cpu_row(call, EXPERTS_DOWN_ADD, r);
        float *out = cpu_row(call, EXPERTS_DOWN_OUT, r);
        for (uint32_t i = 0; i < args->n_cols; i++)
            out[i] = add[i] + down_column(call, r, i);
    }
}

const struct cpu_op cpu_op_experts_up = { .name = "experts_up", .by_rows = true, .plain = { up_plan, up_run } };
const struct cpu_op cpu_op_experts_down = { .name = "experts_down", .by_rows = true, .plain = { down_plan, down_run } };
