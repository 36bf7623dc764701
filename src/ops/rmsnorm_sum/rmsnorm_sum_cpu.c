// rmsnorm_sum_cpu.c - the definition, row by row. Where speed counts, the parts are recorded instead.
#include <string.h>
#include "ops/cpu_table.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rmsnorm_sum/rmsnorm_sum.h"
#include "ops/rows.h"

static void sum_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct rmsnorm_sum_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

static void sum_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct rmsnorm_sum_args *args = cpu_args(call);
    uint32_t n_cols = args->n_cols;
    float *n = call->local, *b = n + n_cols;

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *add = cpu_row(call, SUM_ADD, r), *b_scale = cpu_base(call, SUM_B_SCALE);
        float *out = cpu_row(call, SUM_OUT, r);
        rmsnorm_row_plain(cpu_row(call, SUM_A, r), cpu_base(call, SUM_A_SCALE), n, n_cols, args->eps);
        memcpy(b, cpu_row(call, SUM_B, r), n_cols * sizeof *b);
        if (b_scale)
            rmsnorm_row_plain(b, b_scale, b, n_cols, args->eps);
        for (uint32_t c = 0; c < n_cols; c++)
            n[c] += b[c];
        rmsnorm_row_plain(n, cpu_base(call, SUM_SCALE), n, n_cols, args->eps);
        for (uint32_t c = 0; c < n_cols; c++)
            out[c] = (n[c] + add[c]) * args->gain;
    }
}

const struct cpu_op cpu_op_rmsnorm_sum = {
    .name = "rmsnorm_sum", .by_rows = true, .parts_are_faster = true, .plain = { sum_plan, sum_run }
};
