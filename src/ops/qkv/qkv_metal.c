// qkv_metal.c - the operation's launches: one product that rotates and stores, or a product and then
// qkv_store where heads are normalised first or stored as Q8_0, whose scales belong to 32 dimensions.
#include "gemm/metal/product_choice.h"
#include "ops/metal_table.h"
#include "ops/qkv/qkv.h"
#include "ops/rope_store/rope_store_metal.h"

static const char *const kernels[N_PRODUCT_VARIANTS] = {
    [PRODUCT_VARIANT_PLAIN] = "qkv_plain",         [PRODUCT_VARIANT_ONE] = "qkv_one",
    [PRODUCT_VARIANT_SOME] = "qkv_some",           [PRODUCT_VARIANT_TILED] = "qkv_tiled",
    [PRODUCT_VARIANT_FEW_HALF] = "qkv_few_half",   [PRODUCT_VARIANT_FEW_FLOAT] = "qkv_few_float",
    [PRODUCT_VARIANT_MANY_HALF] = "qkv_many_half", [PRODUCT_VARIANT_MANY_FLOAT] = "qkv_many_float",
};

static void launch_store(struct metal_plan *p, const struct product_args *args)
{
    uint32_t n_heads = args->rope.n_heads + 2 * args->rope.pages.n_kv_heads;
    struct metal_kernel kernel = { .name = "qkv_store",
                                   .n_constants = HEADS_N_CONSTANTS,
                                   .grid = { (n_heads + HEADS_IN_GROUP - 1) / HEADS_IN_GROUP,
                                             p->tape.max_rows, 1 },
                                   .threads = 32 * HEADS_IN_GROUP };

    kernel.constants[HEADS_C_Q_NORM] = metal_has(p, QKV_Q_NORM);
    kernel.constants[HEADS_C_K_NORM] = metal_has(p, QKV_K_NORM);
    metal_launch_add(p, &kernel, args, sizeof *args);
}

void metal_plan_qkv(struct metal_plan *p)
{
    const struct qkv_args *qkv = (const struct qkv_args *)p->command->args;
    const struct page_shape *pages = &qkv->rope.pages;
    bool heads = metal_has(p, QKV_Q_NORM) || metal_has(p, QKV_K_NORM) || pages->k_format == KV_Q8_0 ||
                 pages->v_format == KV_Q8_0;
    struct product_plan product = {
        .kernels = kernels,
        .w = { metal_weight(p, QKV_WQ), metal_weight(p, QKV_WK), metal_weight(p, QKV_WV) },
        .mode = heads ? PRODUCT_THREE : PRODUCT_ROPE,
        .bias = metal_has(p, QKV_BQ) | metal_has(p, QKV_BK) << 1 | metal_has(p, QKV_BV) << 2,
        .exact = qkv->exact,
        .args = { .rows = ROWS_STEP, .work_rows = p->tape.max_rows, .eps = qkv->norm_eps, .rope = qkv->rope },
    };

    if (pages->head_dim % 2 != 0) {
        err_set(&p->error, ERR_UNSUPPORTED, "heads of %u dimensions; want an even number", pages->head_dim);
        return;
    }
    product_launch(p, &product);
    if (heads) {
        product.args.n_out[1] = product.w[1]->n_rows;
        launch_store(p, &product.args);
    }
}
