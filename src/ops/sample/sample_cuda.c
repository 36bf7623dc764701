// sample_cuda.c - the operation's launch: many blocks scan a row of logits, and the last of them decides.
#include "ops/cuda_table.h"
#include "ops/sample/sample_cuda.h"

void cuda_plan_sample(struct cuda_plan *p)
{
    struct sample_launch_params params = { .logits = cuda_at(p, SAMPLE_LOGITS),
                                           .history = cuda_at(p, SAMPLE_HISTORY),
                                           .work = cuda_at(p, SAMPLE_WORK),
                                           .results = cuda_at(p, SAMPLE_RESULTS),
                                           .parts = p->private_at,
                                           .arrived = p->counters_at,
                                           .mask_bias = p->command->n_operands > SAMPLE_MASK_BIAS
                                                            ? cuda_at(p, SAMPLE_MASK_BIAS)
                                                            : 0,
                                           .args = *(const struct sample_args *)p->command->args };

    p->private_bytes = (u64)p->tape.max_outputs * SAMPLE_PARTS * sizeof(struct sample_part);
    p->counters_bytes = (u64)p->tape.max_outputs * 4;
    cuda_launch_add(p, "sample",
                    (struct cuda_shape){ { SAMPLE_PARTS, p->tape.max_outputs, 1 }, SAMPLE_THREADS, 0 },
                    &params, sizeof params);
}
