// attend_all_cuda.c - chooses the kernel: for heads of 64 attend_all_hopper where there is one, for these and
// heads of 72 attend_all_tile, else, and where sums must be exact, attend_all_plain.
#include "base/divide.h"
#include "ops/attend_all/attend_all_cuda.h"
#include "ops/cuda_table.h"

static void launch_tile(struct cuda_plan *p, struct attend_all_params *params)
{
    u32 head_dim = params->args.head_dim, rows = p->tape.max_rows;
    const char *kernel = head_dim == 72 ? "attend_all_tile_72"
                         : p->device.capability >= 90 && cuda_has_kernel(p, "attend_all_hopper_64")
                             ? "attend_all_hopper_64"
                             : "attend_all_tile_64";
    struct cuda_shape shape = { { divide_up(rows, ALL_TILE_ROWS), params->args.n_heads, 1 },
                                ALL_TILE_THREADS,
                                ALL_STAGES * 2 * ALL_TILE_KEYS * ALL_TILE_PITCH(head_dim) };

    params->stride = (u64)rows * params->args.n_heads * head_dim;
    params->halves = p->private_at;
    p->private_bytes = 3 * params->stride * 2;
    cuda_launch_add(p, "attend_all_halves", (struct cuda_shape){ { rows, 3, 1 }, ALL_PLAIN_THREADS, 0 },
                    params, sizeof *params);
    cuda_launch_add(p, kernel, shape, params, sizeof *params);
}

void cuda_plan_attend_all(struct cuda_plan *p)
{
    struct attend_all_params params = { .in = { cuda_at(p, ATTEND_ALL_Q), cuda_at(p, ATTEND_ALL_K),
                                                cuda_at(p, ATTEND_ALL_V) },
                                        .out = cuda_at(p, ATTEND_ALL_OUT),
                                        .args = *(const struct attend_all_args *)p->command->args };
    u32 head_dim = params.args.head_dim;

    if ((head_dim == 64 || head_dim == 72) && params.args.scale > 0 && !p->tape.exact)
        launch_tile(p, &params);
    else
        cuda_launch_add(
            p, "attend_all_plain",
            (struct cuda_shape){ { p->tape.max_rows, params.args.n_heads, 1 }, ALL_PLAIN_THREADS, 0 },
            &params, sizeof params);
}
