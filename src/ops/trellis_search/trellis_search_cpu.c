// trellis_search_cpu.c - the definition: a tile of 16 outputs after the other.
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/trellis_search/trellis_path.h"
#include "ops/trellis_search/trellis_search.h"

enum { TILE = EXL3_TILE };

static void search_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct trellis_search_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = call->step->n_rows ? args->n_out / TILE : 0;
    plan->local_bytes = trellis_path_bytes(args->bits);
}

// Row r of the block in 16 outputs, from `first` on, with what the rows behind the block missed there.
static void wanted_row(const struct cpu_call *call, uint32_t r, uint32_t first, float wanted[TILE])
{
    const struct trellis_search_args *args = cpu_args(call);
    const uint32_t block = step_positions(call->step)[0], row = block * TILE + r;
    const float *w = cpu_base(call, TRELLIS_SEARCH_W), *l = cpu_base(call, TRELLIS_SEARCH_L),
                *missed = cpu_base(call, TRELLIS_SEARCH_MISSED);
    double sums[TRELLIS_SEARCH_SUMS][TILE] = { 0 };

    for (uint32_t i = (block + 1) * TILE; i < args->n_in; i++) {
        double factor = (double)l[(size_t)i * args->n_in + row],
               *sum = sums[(i / TILE - block - 1) % TRELLIS_SEARCH_SUMS];
        for (uint32_t o = 0; o < TILE; o++)
            sum[o] += factor * (double)missed[(size_t)i * args->n_out + first + o];
    }
    for (uint32_t o = 0; o < TILE; o++) {
        double all = (double)w[(size_t)row * args->n_out + first + o];
        for (uint32_t s = 0; s < TRELLIS_SEARCH_SUMS; s++)
            all += sums[s][o];
        wanted[o] = (float)all;
    }
}

static void search_tile(const struct cpu_call *call, uint32_t tile, struct trellis_path *path)
{
    const struct trellis_search_args *args = cpu_args(call);
    const uint32_t block = step_positions(call->step)[0];
    const float *w = cpu_base(call, TRELLIS_SEARCH_W);
    float *missed = cpu_base(call, TRELLIS_SEARCH_MISSED), wanted[TILE][TILE], decoded[TILE][TILE];
    uint16_t *codes = cpu_base(call, TRELLIS_SEARCH_CODES);

    for (uint32_t r = 0; r < TILE; r++)
        wanted_row(call, r, tile * TILE, wanted[r]);
    trellis_path_find(path, (const float(*)[TILE])wanted,
                      codes + ((size_t)block * (args->n_out / TILE) + tile) * TILE * args->bits, decoded);
    for (uint32_t r = 0; r < TILE; r++)
        for (uint32_t o = 0; o < TILE; o++) {
            size_t at = (size_t)(block * TILE + r) * args->n_out + tile * TILE + o;
            missed[at] = w[at] - decoded[r][o];
        }
}

static void run(const struct cpu_call *call, const uint32_t range[2], bool plain)
{
    const struct trellis_search_args *args = cpu_args(call);
    struct trellis_path *path = call->local;

    if (*call->fresh & 1)
        trellis_path_prepare(path, args->bits, (enum exl3_codebook)args->codebook, plain);
    *call->fresh &= ~(uint64_t)1;
    for (uint32_t tile = range[0]; tile < range[1]; tile++)
        search_tile(call, tile, path);
}

static void plain_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    run(call, (uint32_t[2]){ first, last }, true);
}

static void vector_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    run(call, (uint32_t[2]){ first, last }, false);
}

const struct cpu_op cpu_op_trellis_search = { .name = "trellis_search",
                                              .plain = { search_plan, plain_run },
                                              .fast = { { CPU_AVX2, { search_plan, vector_run } } } };
