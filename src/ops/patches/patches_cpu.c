// patches_cpu.c - the definition. A copy through a table: its time is small beside the product after it.
#include "ops/patches/patches.h"
#include "ops/rows.h"

static void patch_row(const struct cpu_call *call, uint32_t row)
{
    const struct patches_args *args = cpu_args(call);
    const uint32_t p = args->patch, position = step_positions(call->step)[row];
    const uint64_t y0 = position / args->n_across * p, x0 = position % args->n_across * p;
    const unsigned char *tile = (const unsigned char *)cpu_base(call, PATCHES_PIXELS) +
                                (uint64_t)step_slots(call->step)[row] * args->side * args->side * 3;
    const float *table = cpu_base(call, PATCHES_TABLE); // [3, 256]
    float *out = cpu_row(call, PATCHES_OUT, row);       // [3, p, p], zeros
    const bool beyond = position >= args->n_across * args->n_across;

    for (uint32_t i = beyond ? 0 : 3 * p * p; i < args->n_cols; i++)
        out[i] = 0;
    for (uint32_t y = 0; !beyond && y < p; y++)
        for (uint32_t x = 0; x < p; x++) {
            const unsigned char *pixel = tile + ((y0 + y) * args->side + x0 + x) * 3;
            for (uint32_t ch = 0; ch < 3; ch++)
                out[(ch * p + y) * p + x] = table[ch * 256 + pixel[ch]];
        }
}

static void patches_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t row = first; row < last; row++)
        patch_row(call, row);
}

const struct cpu_op cpu_op_patches = { .name = "patches", .plain = { plan_rows, patches_run } };
