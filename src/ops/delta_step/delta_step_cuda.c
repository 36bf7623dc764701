// delta_step_cuda.c - the operation's launch: for few rows a block for each head of a possible beginning of a
// sequence's rows; else the parts'.
#include "ops/delta_step/delta_step_cuda.h"
#include "gemm/cuda/gemm_params.h"
#include "ops/cuda_table.h"

static bool suits(const struct cuda_plan *p, const struct delta_step_args *a)
{
    return p->tape.max_rows <= DELTA_ROWS && a->scan.d_k == DELTA_DIM && a->scan.d_v == DELTA_DIM &&
           a->conv.kernel_size == DELTA_TAPS;
}

bool delta_step_packs(const struct cuda_plan *p)
{
    return suits(p, (const struct delta_step_args *)p->command->args);
}

void cuda_plan_delta_step(struct cuda_plan *p)
{
    const struct delta_step_args *a = (const struct delta_step_args *)p->command->args;
    struct delta_step_params params = { .scan = { .dt = cuda_at(p, DELTA_DT),
                                                  .beta = cuda_at(p, DELTA_BETA),
                                                  .a = cuda_at(p, DELTA_A),
                                                  .dt_bias = cuda_at(p, DELTA_DT_BIAS),
                                                  .states = cuda_at(p, DELTA_STATES),
                                                  .out = cuda_at(p, DELTA_OUT),
                                                  .args = a->scan },
                                        .in = cuda_at(p, DELTA_IN),
                                        .w = cuda_at(p, DELTA_W),
                                        .z = cuda_at(p, DELTA_Z),
                                        .scale = cuda_at(p, DELTA_SCALE),
                                        .arrived = p->counters_at,
                                        .packed_out = gemm_packed_out(p, DELTA_OUT),
                                        .conv = a->conv,
                                        .z_cols = a->z_cols,
                                        .z_at = a->z_at,
                                        .scale_step = a->scale_step,
                                        .eps = a->eps };

    if (!suits(p, a)) {
        cuda_plan_parts(p);
        return;
    }
    p->counters_bytes = (u64)p->tape.max_rows * a->scan.n_k_heads * sizeof(u32);
    cuda_launch_add(p, "delta_step",
                    (struct cuda_shape){ { a->scan.n_heads, p->tape.max_rows, 1 }, DELTA_THREADS, 0 },
                    &params, sizeof params);
}
