// attend_cuda.c - chooses the kernels.
//
// attend_few: up to 64 rows where K and V have one format. attend_many: larger steps; with more than 16
// sequences in its mixed kernels, which leave the decode rows to attend_few. attend_plain: fp32 pages and odd
// heads; with sinks all heads but those of 64, since no model has others; K and V in different formats where
// rows must have the same bits in any step.
#include "ops/attend/attend_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "gemm/cuda/gemm_params.h"

enum {
    FEW_ROWS = 64,
    FEW_ALONE = 2, // a past of so many turns of a block is not split
    FEW_SPLITS_INVARIANT = 4,
    FEW_SM_THREADS = 512, // of attend_few, with 128 registers each
    SMALL_DIM = 128,      // attend_few has small blocks for heads of up to so many dims
    MIXED_FEW_DIM = 256,  // attend_many has no mixed kernel for more
    MANY_ROWS = 64,
    MANY_HELPERS = 15,
    MIXED_HELPERS = 3 // attend_few has most runs then, and blocks without one take time
};

static u32 few_shared(const struct page_shape *s)
{
    return ATTEND_FEW_SHARED(s->head_dim, s->head_dim, ATTEND_FEW_PARTS(s->head_dim),
                             ATTEND_FEW_THREADS(s->head_dim));
}

static u32 few_tiles(const struct attend_args *args)
{
    return args->pages.n_kv_heads * divide_up(args->n_heads / args->pages.n_kv_heads, ATTEND_FEW_HEADS);
}

void attend_few_split(struct cuda_plan *p, struct attend_params *params, const struct attend_few_kind *kind)
{
    const struct page_shape *s = &params->args.pages;
    u32 slots = kind->threads / 32 / kind->parts, most = divide_up(s->max_pages, slots),
        n_heads = params->args.n_heads, tiles = few_tiles(&params->args),
        n = kind->blocks * p->device.n_sms / (kind->rows * tiles);

    most = most < ATTEND_FEW_SPLITS ? most : ATTEND_FEW_SPLITS;
    n = n < most ? n : most;
    n = n > 0 ? n : 1;
    params->n_splits = p->tape.invariant ? FEW_SPLITS_INVARIANT : n;
    params->alone_pages = FEW_ALONE * slots;
    params->fewest_pages = slots;
    p->counters_bytes = (u64)kind->rows * tiles * 2 * 4;
    p->private_bytes =
        params->n_splits > 1 ? (u64)kind->rows * n_heads * params->n_splits * (kind->value + 2) * 4 : 0;
    params->arrived = p->counters_at;
    params->partial = p->private_at;
    struct cuda_shape shape = { { n < params->n_splits ? n : params->n_splits, tiles, kind->rows },
                                kind->threads,
                                ATTEND_FEW_SHARED(s->head_dim, kind->value, kind->parts, kind->threads) };
    cuda_launch_add(p, kind->kernel, shape, params, sizeof *params);
}

// The threads of a block: as many as leave room for all blocks of the launch on the device at once.
static u32 few_threads(const struct cuda_plan *p, const struct attend_params *params, u32 rows)
{
    u32 dim = params->args.pages.head_dim, threads = ATTEND_FEW_THREADS(dim),
        n_blocks = rows * few_tiles(&params->args);

    if (p->tape.invariant || params->sinks || dim > SMALL_DIM)
        return threads;
    while (threads > 32 && n_blocks > FEW_SM_THREADS / threads * p->device.n_sms)
        threads /= 2;
    return threads;
}

static void launch_few(struct cuda_plan *p, struct attend_params *params, u32 rows)
{
    const struct page_shape *s = &params->args.pages;
    static const char *const formats[] = { [KV_F16] = "f16", [KV_BF16] = "bf16", [KV_Q8_0] = "q8_0" };
    char name[32];
    u32 threads = few_threads(p, params, rows);
    struct attend_few_kind kind = { .kernel = name,
                                    .rows = rows,
                                    .value = s->head_dim,
                                    .parts = ATTEND_FEW_PARTS(s->head_dim),
                                    .threads = threads,
                                    .blocks = FEW_SM_THREADS / threads };

    if (threads < ATTEND_FEW_THREADS(s->head_dim))
        snprintf(name, sizeof name, "attend_few_%u_%s_w%u", s->head_dim, formats[s->k_format], threads / 32);
    else
        snprintf(name, sizeof name, "attend_few_%u_%s%s", s->head_dim, formats[s->k_format],
                 params->sinks ? "_sinks" : "");
    attend_few_split(p, params, &kind);
}

// Several blocks share the runs of a tile that may hold many: decode rows, and short prompts after them.
static void launch_many(struct cuda_plan *p, struct attend_params *params)
{
    u32 head_dim = params->args.pages.head_dim, n_tiles = divide_up(p->tape.max_rows, MANY_ROWS),
        n = p->tape.max_outputs - 1;
    const char *mixed = params->n_decode > 0 ? "mixed_" : "", *sinks = params->sinks ? "_sinks" : "";
    char name[32];

    u32 most = params->n_decode > 0 ? MIXED_HELPERS : MANY_HELPERS;
    params->n_helpers = n < most ? n : most;
    params->n_helped = divide_up(p->tape.max_outputs, MANY_ROWS);
    u32 tile_tokens = head_dim > 128 ? 32 : 64, parts = head_dim > 256 ? 2 : 1;
    u32 tiles = 4 * tile_tokens * head_dim * 2; // two of K, two of V
    struct cuda_shape shape = { { n_tiles + params->n_helped * params->n_helpers, params->args.n_heads, 1 },
                                parts * 128,
                                tiles + (parts > 1 ? parts * MANY_ROWS * tile_tokens * 4 : 0) };

    snprintf(name, sizeof name, "attend_hopper_%s%u%s", mixed, head_dim, sinks);
    if (p->device.capability < 90 || !cuda_has_kernel(p, name))
        snprintf(name, sizeof name, "attend_many_%s%u%s", mixed, head_dim, sinks);
    cuda_launch_add(p, name, shape, params, sizeof *params);
}

// Decode rows come first in a step, at most one per output. Where there are too few helpers for one each,
// attend_few takes them. It is launched first: where a step has no other rows, attend_many's blocks need not
// even wait for it.
static void launch_mixed(struct cuda_plan *p, struct attend_params *params)
{
    const struct page_shape *s = &params->args.pages;
    bool few = s->k_format == s->v_format && s->head_dim <= MIXED_FEW_DIM;

    params->n_decode = few && p->tape.max_outputs > MANY_HELPERS + 1 ? p->tape.max_outputs : 0;
    if (params->n_decode > 0)
        launch_few(p, params, params->n_decode);
    launch_many(p, params);
}

enum attend_family { ATTEND_PLAIN, ATTEND_FEW, ATTEND_MIXED };

static enum attend_family family_of(const struct cuda_plan *p)
{
    const struct page_shape *s = &((const struct attend_args *)p->command->args)->pages;
    bool halves = s->k_format != KV_F32 && s->v_format != KV_F32,
         few = (p->tape.max_rows <= FEW_ROWS || p->tape.invariant) && s->k_format == s->v_format;

    if (!halves || (cuda_weight(p, ATTEND_SINKS) && s->head_dim != 64))
        return ATTEND_PLAIN;
    if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256 && s->head_dim != 512)
        return ATTEND_PLAIN;
    if (few_shared(s) > p->device.shared_bytes)
        return p->tape.invariant ? ATTEND_PLAIN : ATTEND_MIXED;
    return few ? ATTEND_FEW : ATTEND_MIXED;
}

bool attend_packs(const struct cuda_plan *p, const struct tape_packing *packing)
{
    enum attend_family family = family_of(p);

    return family == ATTEND_FEW || (family == ATTEND_MIXED && packing != &gemm_packing_int8);
}

void cuda_plan_attend(struct cuda_plan *p)
{
    struct attend_params params = { .q = cuda_at(p, ATTEND_Q),
                                    .k_pages = cuda_at(p, ATTEND_K_PAGES),
                                    .v_pages = cuda_at(p, ATTEND_V_PAGES),
                                    .table = cuda_at(p, ATTEND_TABLE),
                                    .out = cuda_at(p, ATTEND_OUT),
                                    .packed_out = gemm_packed_out(p, ATTEND_OUT),
                                    .sinks = cuda_at(p, ATTEND_SINKS),
                                    .args = *(const struct attend_args *)p->command->args };
    u32 rows = p->tape.max_rows, n_heads = params.args.n_heads;

    switch (family_of(p)) {
    case ATTEND_FEW:
        launch_few(p, &params, rows);
        break;
    case ATTEND_MIXED:
        launch_mixed(p, &params);
        break;
    default:
        cuda_launch_add(p, params.sinks ? "attend_plain_sinks" : "attend_plain",
                        (struct cuda_shape){ { n_heads, rows, 1 }, 128, params.args.pages.head_dim * 4 * 2 },
                        &params, sizeof params);
    }
}
