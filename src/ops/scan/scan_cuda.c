// scan_cuda.c - the operation's launches: by rows, a block for 32 columns of a head's state and a possible
// beginning of a sequence's rows; by blocks of rows, where a step may hold a prompt and nobody wants the same
// bits whatever shares its steps.
#include "base/divide.h"
#include "device/cuda/sequences.h"
#include "ops/cuda_table.h"
#include "ops/scan/scan_cuda.h"

enum { LEAST_ROWS = 32 };

static bool goes_by_blocks(const struct cuda_plan *p, const struct scan_args *a)
{
    u32 whole = a->in_cols | a->q_at | a->k_at | a->v_at | a->d_v; // copies of 16 bytes

    return p->tape.max_rows >= LEAST_ROWS && !p->tape.invariant && p->device.capability >= 80 &&
           p->device.shared_bytes >= SCAN_BLOCKS_SHARED && a->d_k % 16 == 0 && a->d_k <= SCAN_BLOCK_DIM &&
           whole % 4 == 0;
}

static void launch_blocks(struct cuda_plan *p, struct scan_params *params, u32 n_slices)
{
    u32 rows = p->tape.max_rows, n_heads = params->args.n_heads, n = n_heads * n_slices,
        turns = p->device.n_sms > n ? p->device.n_sms / n : 1;
    u64 n_factors = (u64)rows * n_heads;

    p->private_bytes = n_factors * (sizeof(struct scan_factors) + 2 * SCAN_BLOCK * sizeof(f32));
    params->factors = p->private_at;
    params->solved = p->private_at + n_factors * sizeof(struct scan_factors);
    cuda_launch_add(p, "scan_prepare",
                    (struct cuda_shape){ { n_heads, divide_up(rows, 32), 1 }, 256, SCAN_PREPARE_SHARED },
                    params, sizeof *params);
    cuda_launch_add(p, "scan_blocks", (struct cuda_shape){ { n, turns, 1 }, 256, SCAN_BLOCKS_SHARED }, params,
                    sizeof *params);
}

void cuda_plan_scan(struct cuda_plan *p)
{
    struct scan_params params = { .in = cuda_at(p, SCAN_IN),
                                  .dt = cuda_at(p, SCAN_DT),
                                  .beta = cuda_at(p, SCAN_BETA),
                                  .a = cuda_at(p, SCAN_A),
                                  .dt_bias = cuda_at(p, SCAN_DT_BIAS),
                                  .d = cuda_at(p, SCAN_D),
                                  .states = cuda_at(p, SCAN_STATES),
                                  .out = cuda_at(p, SCAN_OUT),
                                  .args = *(const struct scan_args *)p->command->args,
                                  .n_single = sequence_singles(p->tape.max_rows, p->tape.max_outputs) };
    u32 n_slices = divide_up(params.args.d_v, SCAN_COLUMNS);
    struct cuda_shape shape = {
        { params.args.n_heads * n_slices, sequence_blocks(p->tape.max_rows, params.n_single), 1 }, 128, 0
    };

    params.by_rows = !goes_by_blocks(p, &params.args);
    cuda_launch_add(p, params.args.d_k <= 128 ? "scan_rows" : "scan_rows_wide", shape, &params,
                    sizeof params);
    if (!params.by_rows)
        launch_blocks(p, &params, n_slices);
}
