// trellis_search_cpu.c - the definition: a tile of 16 outputs after the other.
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/trellis_search/trellis_path.h"
#include "ops/trellis_search/trellis_search.h"

enum { TILE = EXL3_TILE };

struct search_tile { // 16 outputs of a matrix's block
    const float *w, *l;
    float *missed;
    uint16_t *code;
    uint32_t n_in, n_out, block, first; // first: of the outputs
};

static void search_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct trellis_search_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = call->step->n_rows * (args->n_out / TILE);
    plan->local_bytes = trellis_path_bytes(args->bits);
}

static struct search_tile tile_of(const struct cpu_call *call, uint32_t tile)
{
    const struct trellis_search_args *a = cpu_args(call);
    const uint32_t across = a->n_out / TILE, matrix = tile / across,
                   block = step_positions(call->step)[matrix];
    const size_t before = (size_t)matrix * a->n_in;
    uint16_t *codes = cpu_base(call, TRELLIS_SEARCH_CODES);

    return (struct search_tile){
        .w = (const float *)cpu_base(call, TRELLIS_SEARCH_W) + before * a->n_out,
        .l = (const float *)cpu_base(call, TRELLIS_SEARCH_L) + before * a->n_in,
        .missed = (float *)cpu_base(call, TRELLIS_SEARCH_MISSED) + before * a->n_out,
        .code = codes + ((before / TILE + block) * across + tile % across) * TILE * a->bits,
        .n_in = a->n_in,
        .n_out = a->n_out,
        .block = block,
        .first = tile % across * TILE,
    };
}

// Row r of the block, with what the rows behind the block missed.
static void wanted_row(const struct search_tile *t, uint32_t r, float wanted[TILE])
{
    const uint32_t row = t->block * TILE + r;
    double sums[TRELLIS_SEARCH_SUMS][TILE] = { 0 };

    for (uint32_t i = (t->block + 1) * TILE; i < t->n_in; i++) {
        double factor = (double)t->l[(size_t)i * t->n_in + row],
               *sum = sums[(i / TILE - t->block - 1) % TRELLIS_SEARCH_SUMS];
        for (uint32_t o = 0; o < TILE; o++)
            sum[o] += factor * (double)t->missed[(size_t)i * t->n_out + t->first + o];
    }
    for (uint32_t o = 0; o < TILE; o++) {
        double all = (double)t->w[(size_t)row * t->n_out + t->first + o];
        for (uint32_t s = 0; s < TRELLIS_SEARCH_SUMS; s++)
            all += sums[s][o];
        wanted[o] = (float)all;
    }
}

static void search(const struct search_tile *t, struct trellis_path *path)
{
    float wanted[TILE][TILE], decoded[TILE][TILE];

    for (uint32_t r = 0; r < TILE; r++)
        wanted_row(t, r, wanted[r]);
    trellis_path_find(path, (const float(*)[TILE])wanted, t->code, decoded);
    for (uint32_t r = 0; r < TILE; r++)
        for (uint32_t o = 0; o < TILE; o++) {
            size_t at = (size_t)(t->block * TILE + r) * t->n_out + t->first + o;
            t->missed[at] = t->w[at] - decoded[r][o];
        }
}

static void run(const struct cpu_call *call, const uint32_t range[2], bool plain)
{
    const struct trellis_search_args *args = cpu_args(call);
    struct trellis_path *path = call->local;

    if (*call->fresh & 1)
        trellis_path_prepare(path, args->bits, (enum exl3_codebook)args->codebook, plain);
    *call->fresh &= ~(uint64_t)1;
    for (uint32_t i = range[0]; i < range[1]; i++) {
        struct search_tile tile = tile_of(call, i);
        search(&tile, path);
    }
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
