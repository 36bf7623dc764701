// qkv_cuda.c - the operation's launches: one product that rotates and stores, or a product and then
// rope_store where heads are normalised first or the product cannot store into such pages.
#include "ops/cuda_table.h"
#include "gemm/cuda/gemm_params.h"
#include "ops/qkv/qkv.h"
#include "ops/rope_store/rope_store_cuda.h"

static void launch_rope_store(struct cuda_plan *p, const struct gemm_params *from)
{
    struct rope_store_params params = { .q = from->out[0],
                                        .k = from->out[1],
                                        .v = from->out[2],
                                        .q_norm = cuda_at(p, QKV_Q_NORM),
                                        .k_norm = cuda_at(p, QKV_K_NORM),
                                        .angles = from->angles,
                                        .k_pages = from->k_pages,
                                        .v_pages = from->v_pages,
                                        .table = from->table,
                                        .args = from->rope };
    rope_store_launch(p, &params);
}

struct gemm_plan qkv_gemm(const struct cuda_plan *p)
{
    const struct qkv_args *args = (const struct qkv_args *)p->command->args;
    u32 head_dim = args->rope.pages.head_dim, n_kv = args->rope.pages.n_kv_heads * head_dim,
        n_q = args->rope.n_heads * head_dim;
    bool parts = cuda_at(p, QKV_Q_NORM) || cuda_at(p, QKV_K_NORM) || !gemm_stores_pages(p, &args->rope.pages);
    u64 work = cuda_at(p, QKV_WORK), kv_bytes = (u64)p->tape.max_rows * n_kv * 4,
        taken = (2 * kv_bytes + 255) / 256 * 256;
    return (struct gemm_plan){
        .params = { .w = { weight_layout_of(p, QKV_WQ), weight_layout_of(p, QKV_WK),
                           weight_layout_of(p, QKV_WV) },
                    .bias = { cuda_at(p, QKV_BQ), cuda_at(p, QKV_BK), cuda_at(p, QKV_BV) },
                    .out = { cuda_at(p, QKV_Q), work, work + kv_bytes },
                    .in = cuda_at(p, QKV_IN),
                    .norm = cuda_at(p, QKV_NORM),
                    .angles = cuda_at(p, QKV_ANGLES),
                    .k_pages = cuda_at(p, QKV_K_PAGES),
                    .v_pages = cuda_at(p, QKV_V_PAGES),
                    .table = cuda_at(p, QKV_TABLE),
                    .out_stride = { n_q, n_kv, n_kv },
                    .n_cols = args->n_cols,
                    .mode = parts ? EPILOGUE_QKV : EPILOGUE_ROPE_STORE,
                    .rows = ROWS_STEP,
                    .eps = args->norm_eps,
                    .rope = args->rope },
        .work = work + taken,
        .work_bytes = p->command->operands[QKV_WORK].bytes - taken,
        .exact = args->exact,
    };
}

static void launch_qkv(struct cuda_plan *p, const struct gemm_plan *product,
                       const struct gemm_adapters *adapters)
{
    u32 head_dim = product->params.rope.pages.head_dim;

    if (head_dim % 2 != 0)
        err_set(&p->error, ERR_UNSUPPORTED, "heads of %u dimensions; want an even number", head_dim);
    gemm_launch_adapted(p, product, adapters);
    if (product->params.mode == EPILOGUE_QKV)
        launch_rope_store(p, &product->params);
}

void cuda_plan_qkv(struct cuda_plan *p)
{
    struct gemm_plan product = qkv_gemm(p);
    launch_qkv(p, &product, &(struct gemm_adapters){ 0 });
}

void cuda_plan_qkv_adapted(struct cuda_plan *p)
{
    const struct qkv_adapted_args *args = (const struct qkv_adapted_args *)p->command->args;
    struct gemm_plan product = qkv_gemm(p); // the arguments begin with qkv's
    struct gemm_adapters adapters = lora_adapters(p, QKV_ADAPTERS, &args->adapters);

    launch_qkv(p, &product, &adapters);
}
