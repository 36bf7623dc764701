// sample_cuda.c - the operation's launch: several blocks scan a row of logits, and the last of them decides.
#include "ops/cuda_table.h"
#include "ops/sample/sample_cuda.h"

// Two waves of blocks, of which an SM takes two: more would each begin and end for few logits.
static u32 parts_of(const struct cuda_plan *p)
{
    u32 n = 4 * p->device.n_sms / p->tape.max_outputs;
    return n < 2 ? 2 : n < SAMPLE_PARTS ? n : SAMPLE_PARTS;
}

void cuda_plan_sample(struct cuda_plan *p)
{
    u64 parts_bytes = (u64)p->tape.max_outputs * SAMPLE_PARTS * 8;
    struct sample_launch_params params = { .logits = cuda_at(p, SAMPLE_LOGITS),
                                           .history = cuda_at(p, SAMPLE_HISTORY),
                                           .work = cuda_at(p, SAMPLE_WORK),
                                           .results = cuda_at(p, SAMPLE_RESULTS),
                                           .parts = p->counters_at,
                                           .kept = p->counters_at + parts_bytes,
                                           .mask_bias = p->command->n_operands > SAMPLE_MASK_BIAS
                                                            ? cuda_at(p, SAMPLE_MASK_BIAS)
                                                            : 0,
                                           .args = *(const struct sample_args *)p->command->args };

    p->counters_bytes = parts_bytes + p->tape.max_outputs * 4ull;
    cuda_launch_add(p, "sample",
                    (struct cuda_shape){ { parts_of(p), p->tape.max_outputs, 1 }, SAMPLE_THREADS, 0 },
                    &params, sizeof params);
}
