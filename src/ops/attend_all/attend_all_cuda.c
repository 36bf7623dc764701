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

bool attend_all_packs_int8(const struct cuda_plan *p)
{
    return ((const struct attend_all_args *)p->command->args)->head_dim == INT8_SCALE_COLUMNS;
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

// False: the device has no TMA.
static bool find_views(struct cuda_plan *p, struct attend_all_views *views)
{
    u32 n_heads = views->rows.args.n_heads;

    for (u32 i = 0; i < 3; i++) {
        const struct cuda_view view = { .at = views->rows.halves[i],
                                        .dims = { 64, 1, 1, n_heads, p->tape.max_rows },
                                        .strides = { 128, 128, 128, n_heads * 128ull },
                                        .box = { 64, 1, 1, 1, 64 } };
        if (!cuda_view_encode(p, &view, &views->sides[i]))
            return false;
    }
    return true;
}

static void launch_tile(struct cuda_plan *p, const struct attend_all_params *params)
{
    struct attend_all_views views = { .rows = *params };
    u32 head_dim = params->args.head_dim, n_tiles = divide_up(p->tape.max_rows, ALL_TILE_ROWS),
        n_blocks = divide_up(p->tape.max_rows, 64) * params->args.n_heads;
    struct cuda_shape tile = { { n_tiles, params->args.n_heads, 1 },
                               ALL_TILE_THREADS,
                               ALL_STAGES * 2 * ALL_TILE_KEYS * ALL_TILE_PITCH(head_dim) };
    struct cuda_shape hopper = { { n_blocks < p->device.n_sms ? n_blocks : p->device.n_sms, 1, 1 },
                                 ALL_HOPPER_THREADS,
                                 ALL_HOPPER_BYTES };

    views.rows.packed_out = gemm_packed_out(p, ATTEND_ALL_OUT);
    find_halves(p, &views.rows);
    if (head_dim == 64 && p->device.capability >= 90 && cuda_has_kernel(p, "attend_all_hopper_64") &&
        find_views(p, &views))
        cuda_launch_add(p, "attend_all_hopper_64", hopper, &views, sizeof views);
    else
        cuda_launch_add(p, head_dim == 64 ? "attend_all_tile_64" : "attend_all_tile_72", tile, &views.rows,
                        sizeof views.rows);
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
