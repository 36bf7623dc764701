// sample_cuda.c - the operation's launches: many blocks scan the logits, then one block a row decides.
#include "ops/cuda_table.h"
#include "ops/sample/sample_cuda.h"

void cuda_plan_sample(struct cuda_plan *p)
{
    struct sample_launch_params params = { .logits = cuda_at(p, SAMPLE_LOGITS),
                                           .log = cuda_at(p, SAMPLE_LOG),
                                           .work = cuda_at(p, SAMPLE_WORK),
                                           .results = cuda_at(p, SAMPLE_RESULTS),
                                           .parts = p->private_at,
                                           .limits = p->command->n_operands > SAMPLE_LIMITS ? cuda_at(p, SAMPLE_LIMITS) : 0,
                                           .args = *(const struct sample_args *)p->command->args };

    p->private_bytes = (u64)p->tape.max_outputs * SAMPLE_PARTS * sizeof(struct sample_part);
    cuda_launch_add(p, "sample_scan", (struct cuda_shape){ { SAMPLE_PARTS, p->tape.max_outputs, 1 }, 256, 0 }, &params,
                    sizeof params);
    cuda_launch_add(p, "sample_draw", (struct cuda_shape){ { p->tape.max_outputs, 1, 1 }, 1024, 0 }, &params, sizeof params);
}
