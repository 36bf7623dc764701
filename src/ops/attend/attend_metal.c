// attend_metal.c - chooses the kernels: attend_many for more rows than a decode step has, attend_split for
// the rest; and attend_merge behind it where its parts are not what the product behind reads (device/fuse.h).
#include "ops/attend/attend_metal.h"
#include "base/divide.h"
#include "ops/attend/attend_parts.h"
#include "ops/metal_table.h"

// MANY_ROWS: the engine's middle bucket ends there; up to it a threadgroup per row and KV head fills the GPU
// better than tiles of 32 rows. FULL_GRID: simdgroups of a row, 16 for each core of an M1 Max. PARTS_SUMS: of
// a row at most, where every threadgroup of the product behind reads them; 256 KiB.
enum { MANY_ROWS = 16, FULL_GRID = 512, PARTS_SUMS = 65536 };

// Threadgroups that a part of a row takes.
static uint32_t n_shares(const struct attend_args *a)
{
    return a->pages.n_kv_heads * attend_shares(a->n_heads / a->pages.n_kv_heads, a->pages.head_dim);
}

// Parts of a row's past at most. They depend on the number of rows only where the tape may.
static uint32_t n_splits(const struct attend_args *a, const struct tape_limits *limits)
{
    uint32_t simds = attend_simds(a->pages.head_dim), most = divide_up(FULL_GRID, simds * n_shares(a)),
             useful = divide_up(a->pages.max_pages, ATTEND_PAGES * simds);

    if (limits->max_rows > MANY_ROWS && !limits->invariant)
        return 1; // many rows fill the GPU as they are
    most = most < ATTEND_MOST_PARTS ? most : ATTEND_MOST_PARTS;
    return useful < most ? useful : most;
}

static bool takes_many(const struct attend_args *a, const struct tape_limits *limits)
{
    uint32_t head_dim = a->pages.head_dim;

    return limits->max_rows > MANY_ROWS && head_dim % 8 == 0 && head_dim <= ATTEND_TILE_DIM &&
           !limits->invariant;
}

bool attend_has_parts(const struct command *c, const struct tape_limits *limits)
{
    const struct attend_args *a = (const struct attend_args *)c->args;
    uint32_t n = n_splits(a, limits);

    return !takes_many(a, limits) && n > 1 && n * a->n_heads * a->pages.head_dim <= PARTS_SUMS &&
           attend_span(a->pages.head_dim) == ATTEND_SPAN;
}

static void launch_split(struct metal_plan *p, struct attend_metal_args *args, struct metal_kernel kernel)
{
    const struct page_shape *s = &args->attend.pages;
    const struct operand *packed = fuse_packed(p->command, true);
    uint32_t rows = p->tape.max_rows, head_dim = s->head_dim, simds = attend_simds(head_dim);

    args->n_splits = n_splits(&args->attend, &p->tape);
    CHECK(!packed || packed - p->command->operands == ATTEND_PARTS);
    kernel.name = packed ? "attend_parts" : args->n_splits > 1 ? "attend_split" : "attend_whole";
    kernel.threads = 32 * simds;
    kernel.shared = (simds + 1) * attend_heads(head_dim) * head_dim * (uint32_t)sizeof(float);
    memcpy(kernel.grid, (uint32_t[]){ args->n_splits, n_shares(&args->attend), rows }, sizeof kernel.grid);
    metal_launch_add(p, &kernel, args, sizeof *args);
    if (packed || args->n_splits == 1)
        return;
    p->private_bytes =
        (uint64_t)rows * sizeof(float) *
        attend_parts_words(args->n_splits, args->attend.n_heads * head_dim, attend_span(head_dim));
    kernel.name = "attend_merge";
    kernel.threads = 64;
    kernel.shared = 0;
    memcpy(kernel.grid, (uint32_t[]){ args->attend.n_heads, rows, 1 }, sizeof kernel.grid);
    metal_launch_add(p, &kernel, args, sizeof *args);
}

void metal_plan_attend(struct metal_plan *p)
{
    struct attend_metal_args args = { *(const struct attend_args *)p->command->args, 0, 0 };
    const struct page_shape *s = &args.attend.pages;
    uint32_t head_dim = s->head_dim;
    struct metal_kernel kernel = { .constants = { head_dim, s->k_format, s->v_format,
                                                  metal_has(p, ATTEND_SINKS) },
                                   .n_constants = ATTEND_N_CONSTANTS };

    if (head_dim > ATTEND_MAX_DIM) {
        err_set(&p->error, ERR_UNSUPPORTED, "heads of %u dimensions; Metal kernels take at most %u", head_dim,
                ATTEND_MAX_DIM);
        return;
    }
    if (!takes_many(&args.attend, &p->tape)) {
        launch_split(p, &args, kernel);
        return;
    }
    kernel.name = "attend_many";
    kernel.threads = 8 * ATTEND_TILE_ROWS;
    kernel.shared = attend_tile_rows(head_dim) * head_dim * (uint32_t)sizeof(float);
    memcpy(kernel.grid,
           (uint32_t[]){ divide_up(p->tape.max_rows, attend_tile_rows(head_dim)), args.attend.n_heads, 1 },
           sizeof kernel.grid);
    metal_launch_add(p, &kernel, &args, sizeof args);
}
