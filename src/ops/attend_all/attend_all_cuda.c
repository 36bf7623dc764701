// attend_all_cuda.c - chooses the kernel: for heads of 64 attend_all_hopper where there is one, for these and
// heads of 72 attend_all_tile; else, with fewer K and V heads, a reach, or exact sums, attend_all_plain.
#include "base/divide.h"
#include "ops/attend_all/attend_all_cuda.h"
#include "ops/cuda_table.h"
#include "device/fuse.h"

bool attend_all_packs(const struct cuda_plan *p)
{
    const struct attend_all_args *args = (const struct attend_all_args *)p->command->args;

    return (args->head_dim == 64 || args->head_dim == 72) && args->n_kv_heads == args->n_heads &&
           args->reach == 0 && args->scale > 0 && !p->tape.exact;
}

// Those of q, k and v that come as fp32 go through the tape's private memory.
static void find_halves(struct cuda_plan *p, struct attend_all_params *params)
{
    u64 bytes =
        gemm_packing_rows.bytes(p->tape.max_rows, params->args.n_heads * params->args.head_dim, false);

    for (u32 i = 0; i < 3; i++) {
        const struct operand *packed = fuse_packed_input(p->command, i);
        if (packed) {
            params->halves[i] = (u64)(uintptr_t)packed->buffer->native + packed->offset;
            params->in[i] = 0;
            continue;
        }
        params->halves[i] = p->private_at + p->private_bytes;
        p->private_bytes += (bytes + 255) / 256 * 256;
    }
    if (p->private_bytes > 0)
        cuda_launch_add(p, "attend_all_halves",
                        (struct cuda_shape){ { p->tape.max_rows, 3, 1 }, ALL_PLAIN_THREADS, 0 }, params,
                        sizeof *params);
}

static void launch_tile(struct cuda_plan *p, struct attend_all_params *params)
{
    u32 head_dim = params->args.head_dim;
    bool hopper = head_dim == 64 && p->device.capability >= 90 && cuda_has_kernel(p, "attend_all_hopper_64");
    const char *kernel = hopper           ? "attend_all_hopper_64"
                         : head_dim == 64 ? "attend_all_tile_64"
                                          : "attend_all_tile_72";
    struct cuda_shape shape = { { divide_up(p->tape.max_rows, ALL_TILE_ROWS), params->args.n_heads, 1 },
                                ALL_TILE_THREADS,
                                hopper ? ALL_HOPPER_BYTES
                                       : ALL_STAGES * 2 * ALL_TILE_KEYS * ALL_TILE_PITCH(head_dim) };

    params->packed_out = gemm_packed_out(p);
    find_halves(p, params);
    cuda_launch_add(p, kernel, shape, params, sizeof *params);
}

void cuda_plan_attend_all(struct cuda_plan *p)
{
    struct attend_all_params params = { .in = { cuda_at(p, ATTEND_ALL_Q), cuda_at(p, ATTEND_ALL_K),
                                                cuda_at(p, ATTEND_ALL_V) },
                                        .out = cuda_at(p, ATTEND_ALL_OUT),
                                        .args = *(const struct attend_all_args *)p->command->args };

    if (attend_all_packs(p))
        launch_tile(p, &params);
    else
        cuda_launch_add(
            p, "attend_all_plain",
            (struct cuda_shape){ { p->tape.max_rows, params.args.n_heads, 1 }, ALL_PLAIN_THREADS, 0 },
            &params, sizeof params);
}
