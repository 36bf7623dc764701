// matmul_normed_cpu.c - the definition, row by row. Where speed counts, the parts are recorded instead.
#include "ops/cpu_table.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"

static void normed_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct matmul_normed_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

// n and decoded: [n_cols].
static void multiply_row(const struct weight *w, const float *n, float *decoded, float *out)
{
    for (uint32_t i = 0; i < w->n_rows; i++)
        out[i] = matmul_row_plain(n, w, i, decoded);
}

static void normed_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct matmul_normed_args *args = cpu_args(call);
    float *n = call->local, *decoded = n + args->n_cols;

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        rmsnorm_row_plain(cpu_row(call, NORMED_IN, r), cpu_base(call, NORMED_NORM), n, args->n_cols,
                          args->eps);
        multiply_row(cpu_weight(call, NORMED_W), n, decoded, cpu_row(call, NORMED_OUT, r));
        if (args->n_more)
            multiply_row(cpu_weight(call, NORMED_V), n, decoded, cpu_row(call, NORMED_MORE, r));
        if (args->n_last)
            multiply_row(cpu_weight(call, NORMED_U), n, decoded, cpu_row(call, NORMED_LAST, r));
    }
}

const struct cpu_op cpu_op_matmul_normed = {
    .name = "matmul_normed", .by_rows = true, .parts_are_faster = true, .plain = { normed_plan, normed_run }
};
