// trellis_search_cuda.c - the operation's launches: what is wanted, then the paths, with a block for each
// multiprocessor, which has all of its registers.
#include "ops/cuda_table.h"
#include "ops/trellis_search/trellis_search_cuda.h"

// Private memory, each part a multiple of 256 bytes.
static u64 take(struct cuda_plan *p, u64 bytes)
{
    u64 at = p->private_at + p->private_bytes;

    p->private_bytes += (bytes + 255) / 256 * 256;
    return at;
}

void cuda_plan_trellis_search(struct cuda_plan *p)
{
    const struct trellis_search_args *a = (const struct trellis_search_args *)p->command->args;
    const u32 n_tails = (u32)TRELLIS_STATES >> a->bits, costs_bytes = 2 * n_tails * 4,
              n_tiles = p->tape.max_rows * (a->n_out / EXL3_TILE),
              n_blocks = n_tiles < p->device.n_sms ? n_tiles : p->device.n_sms;
    const bool fits = a->bits > 1 && costs_bytes <= p->device.shared_bytes;
    struct trellis_search_params params = { .w = cuda_at(p, TRELLIS_SEARCH_W),
                                            .l = cuda_at(p, TRELLIS_SEARCH_L),
                                            .missed = cuda_at(p, TRELLIS_SEARCH_MISSED),
                                            .codes = cuda_at(p, TRELLIS_SEARCH_CODES),
                                            .n_in = a->n_in,
                                            .n_out = a->n_out,
                                            .factor = trellis_codebooks[a->codebook].factor,
                                            .more = trellis_codebooks[a->codebook].more };
    char name[32];

    params.wanted = take(p, (u64)p->tape.max_rows * EXL3_TILE * a->n_out * 4);
    params.choices = take(p, (u64)n_blocks * TRELLIS_STEPS * n_tails);
    params.costs = fits ? 0 : take(p, (u64)n_blocks * costs_bytes);
    cuda_launch_add(p, "trellis_search_wanted",
                    (struct cuda_shape){ { a->n_out / TRELLIS_WANTED_OUTPUTS, p->tape.max_rows, 1 },
                                         TRELLIS_WANTED_THREADS,
                                         0 },
                    &params, sizeof params);
    snprintf(name, sizeof name, "trellis_search_%s_%u", fits ? "shared" : "memory", a->bits);
    cuda_launch_add(
        p, name,
        (struct cuda_shape){ { n_blocks, 1, 1 }, trellis_search_threads(a->bits), fits ? costs_bytes : 0 },
        &params, sizeof params);
}
