// rope_store_cuda.c - the operation's launch: a warp for each head of q, k and v, or, of few rows, a block.
#include "ops/rope_store/rope_store_cuda.h"
#include "ops/cuda_table.h"

enum { FEW_ROWS = 16 };

void rope_store_launch(struct cuda_plan *p, const struct rope_store_params *params)
{
    u32 n_heads = params->args.n_heads + 2 * params->args.pages.n_kv_heads;
    bool few = p->tape.max_rows <= FEW_ROWS && !p->tape.invariant &&
               params->args.pages.head_dim <= 4 * ROPE_FEW_THREADS;
    struct cuda_shape shape = { { few ? n_heads : (n_heads + 3) / 4, p->tape.max_rows, 1 },
                                few ? ROPE_FEW_THREADS : 128,
                                0 };

    cuda_launch_add(p, few ? "rope_store_few" : "rope_store", shape, params, sizeof *params);
}

void cuda_plan_rope_store(struct cuda_plan *p)
{
    struct rope_store_params params = { .q = cuda_at(p, ROPE_Q),
                                        .k = cuda_at(p, ROPE_K),
                                        .v = cuda_at(p, ROPE_V),
                                        .q_norm = cuda_at(p, ROPE_Q_NORM),
                                        .k_norm = cuda_at(p, ROPE_K_NORM),
                                        .angles = cuda_at(p, ROPE_ANGLES),
                                        .k_pages = cuda_at(p, ROPE_K_PAGES),
                                        .v_pages = cuda_at(p, ROPE_V_PAGES),
                                        .table = cuda_at(p, ROPE_TABLE),
                                        .args = *(const struct rope_store_args *)p->command->args };
    rope_store_launch(p, &params);
}
