// attend_metal.c - chooses the kernels: attend_many for more rows than a decode step has, attend_split and
// attend_merge for the rest.
#include "ops/attend/attend_metal.h"
#include "base/divide.h"
#include "ops/metal_table.h"

// MANY_ROWS: the engine's middle bucket ends there; up to it a threadgroup per row and KV head fills the GPU
// better than 32-row tiles. MOST_PARTS: llama.cpp's vector kernel splits a past over 32 threadgroups (nwg in
// ggml-metal-ops.cpp). LEAST_PAGES: below 256 tokens a part does less work than the merge costs.
enum { MANY_ROWS = 16, MOST_PARTS = 32, LEAST_PAGES = 16 };

static void launch_split(struct metal_plan *p, struct attend_metal_args *args, struct metal_kernel kernel)
{
    const struct page_shape *s = &args->attend.pages;
    // many rows fill the GPU as they are
    uint32_t rows = p->tape.max_rows, most_parts = rows > MANY_ROWS ? 1 : MOST_PARTS;

    args->split_pages = divide_up(s->max_pages, most_parts);
    args->split_pages = args->split_pages < LEAST_PAGES ? LEAST_PAGES : args->split_pages;
    args->n_splits = divide_up(s->max_pages, args->split_pages);
    p->private_bytes =
        (uint64_t)rows * args->attend.n_heads * args->n_splits * (s->head_dim + 2) * sizeof(float);
    kernel.name = "attend_split";
    kernel.threads = 128;
    kernel.shared = 5 * ATTEND_HEADS * s->head_dim * (uint32_t)sizeof(float);
    memcpy(kernel.grid, (uint32_t[]){ args->n_splits, s->n_kv_heads, rows }, sizeof kernel.grid);
    metal_launch_add(p, &kernel, args, sizeof *args);
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
    if (p->tape.max_rows <= MANY_ROWS || head_dim % 8 != 0 || head_dim > ATTEND_TILE_DIM) {
        launch_split(p, &args, kernel);
        return;
    }
    kernel.name = "attend_many";
    kernel.threads = 8 * ATTEND_TILE_ROWS;
    kernel.shared = ATTEND_TILE_ROWS * head_dim * (uint32_t)sizeof(float);
    memcpy(kernel.grid, (uint32_t[]){ divide_up(p->tape.max_rows, ATTEND_TILE_ROWS), args.attend.n_heads, 1 },
           sizeof kernel.grid);
    metal_launch_add(p, &kernel, &args, sizeof args);
}
