// qkv_cpu.c - the definition: its parts, row by row.
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
#include "ops/qkv/qkv.h"
#include "ops/qkv/qkv_fast.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"

static void qkv_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct qkv_args *args = cpu_args(call);
    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

struct plain_product {
    uint32_t w, bias; // operands
    float *out;
};

static void product_plain(const struct cpu_call *call, const struct plain_product *p, const float *in, float *decoded)
{
    const struct weight *w = cpu_weight(call, p->w);
    const float *bias = cpu_base(call, p->bias);

    for (uint32_t n = 0; n < w->n_rows; n++) {
        matmul_decode_row(w, n, decoded);
        p->out[n] = matmul_dot_plain(in, decoded, w->n_cols);
        if (bias)
            p->out[n] += bias[n];
    }
}

static void qkv_row(const struct cpu_call *call, uint32_t r)
{
    const struct qkv_args *args = cpu_args(call);
    float *n = call->local, *decoded = n + args->n_cols; // [n_cols] each
    float *k = cpu_row(call, QKV_WORK, r);               // [n_kv]
    float *v = k + args->rope.pages.n_kv_heads * args->rope.pages.head_dim;
    const struct plain_product products[] = { { QKV_WQ, QKV_BQ, cpu_row(call, QKV_Q, r) },
                                              { QKV_WK, QKV_BK, k },
                                              { QKV_WV, QKV_BV, v } };

    rmsnorm_row_plain(cpu_row(call, QKV_IN, r), cpu_base(call, QKV_NORM), n, args->n_cols, args->norm_eps);
    for (uint32_t i = 0; i < 3; i++)
        product_plain(call, &products[i], n, decoded);
    rope_store_row_plain(&args->rope, &(struct rope_row){
                                          .q = products[0].out,
                                          .k = k,
                                          .v = v,
                                          .q_norm = cpu_base(call, QKV_Q_NORM),
                                          .k_norm = cpu_base(call, QKV_K_NORM),
                                          .angles = cpu_row(call, QKV_ANGLES, r),
                                          .k_pages = cpu_base(call, QKV_K_PAGES),
                                          .v_pages = cpu_base(call, QKV_V_PAGES),
                                          .table = (const uint32_t *)cpu_base(call, QKV_TABLE) +
                                                   (uint64_t)step_slots(call->step)[r] * args->rope.pages.max_pages,
                                          .position = step_positions(call->step)[r],
                                      });
}

static void qkv_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        qkv_row(call, r);
}

PRODUCT_KERNELS(qkv_fast)

const struct cpu_op cpu_op_qkv = {
    .name = "qkv", .by_rows = true, .plain = { qkv_plan, qkv_run }, .fast = { PRODUCT_CHOICES(qkv_fast) }
};
