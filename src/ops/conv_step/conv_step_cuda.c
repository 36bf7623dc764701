// conv_step_cuda.c - the operation's launches: first all rows at once, which read the states, then a
// sequence's threads write them.
#include "ops/conv_step/conv_step_cuda.h"
#include "base/divide.h"
#include "device/cuda/sequences.h"
#include "ops/cuda_table.h"

enum { FEW_ROWS = 64, MANY_AT_ONCE = 16 }; // small steps have fewer blocks than the device holds

void cuda_plan_conv_step(struct cuda_plan *p)
{
    u32 rows = p->tape.max_rows;
    struct conv_step_params params = { .in = cuda_at(p, CONV_IN),
                                       .w = cuda_at(p, CONV_W),
                                       .bias = cuda_at(p, CONV_BIAS),
                                       .states = cuda_at(p, CONV_STATES),
                                       .out = cuda_at(p, CONV_OUT),
                                       .args = *(const struct conv_step_args *)p->command->args,
                                       .n_rows = rows > FEW_ROWS ? MANY_AT_ONCE : 1,
                                       .n_single = sequence_singles(rows, p->tape.max_outputs) };
    u32 channels = divide_up(params.args.n_channels, 128);
    struct cuda_shape all = { { channels, divide_up(rows, params.n_rows), 1 }, 128, 0 },
                      states = { { channels, sequence_blocks(rows, params.n_single), 1 }, 128, 0 };

    cuda_launch_add(p, "conv_step", all, &params, sizeof params);
    cuda_launch_add(p, "conv_step_states", states, &params, sizeof params);
}
