// latent_metal.c - the operations' launches. A past is split where a step has few rows, unless rows must have
// the same bits in any number: then it is one part.
#include "ops/latent/latent_metal.h"
#include "base/divide.h"
#include "gemm/metal/listed_choice.h"
#include "ops/metal_table.h"

// MANY_ROWS and MOST_PARTS as in attend_metal.c. LEAST_PAGES: eight heads of 576 numbers are more work for a
// page than attend's four of 128.
enum { MANY_ROWS = 16, MOST_PARTS = 32, LEAST_PAGES = 8 };

static bool key_fits(struct metal_plan *p, const struct page_shape *s, uint32_t latent_dims)
{
    return (s->head_dim <= LATENT_MAX_KEY && latent_dims <= LATENT_MAX_DIMS) ||
           err_set(&p->error, ERR_UNSUPPORTED,
                   "latents of %u in keys of %u numbers; Metal kernels take at most %u in %u", latent_dims,
                   s->head_dim, LATENT_MAX_DIMS, LATENT_MAX_KEY);
}

void metal_plan_latent_store(struct metal_plan *p)
{
    const struct latent_store_args *args = (const struct latent_store_args *)p->command->args;

    if (!key_fits(p, &args->pages, args->latent_dims))
        return;
    metal_launch_add(p,
                     &(struct metal_kernel){ .name = "latent_store",
                                             .grid = { p->tape.max_rows, 1, 1 },
                                             .threads = LATENT_THREADS,
                                             .shared = args->pages.head_dim * (uint32_t)sizeof(float) },
                     args, sizeof *args);
}

static bool places_fit(struct metal_plan *p, const struct latent_project_args *a)
{
    uint64_t cols = a->n_rows > a->n_cols ? a->n_rows : a->n_cols;

    return (cols + a->n_rotated) * a->n_heads * p->tape.max_rows <= UINT32_MAX ||
           err_set(&p->error, ERR_UNSUPPORTED,
                   "%u rows of %u heads of %u numbers; their places want more than 32 bits", p->tape.max_rows,
                   a->n_heads, (uint32_t)cols);
}

void metal_plan_latent_project(struct metal_plan *p)
{
    static const char *const kernels[N_LISTED_VARIANTS] = { "latent_project_one", "latent_project_few",
                                                            "latent_project_many_half",
                                                            "latent_project_many_float",
                                                            "latent_project_plain" };
    struct latent_project_metal_args args = { .project =
                                                  *(const struct latent_project_args *)p->command->args };
    const struct latent_project_args *a = &args.project;
    const struct weight *const w[2] = { metal_weight(p, LATENT_PROJECT_W) };
    enum listed_variant variant = listed_choose(
        p, &(struct listed_product){
               .w = { w[0] }, .odd = a->n_cols % 8 != 0 || a->n_rotated % 4 != 0, .exact = a->exact });
    const struct listed_shape *shape = &listed_shapes[variant];
    struct metal_kernel kernel = { .name = kernels[variant], .threads = shape->threads };

    if (!places_fit(p, a))
        return;
    args.product = listed_args(w, a->n_heads);
    args.tile_rows = shape->tile_rows;
    listed_constants(w, PRODUCT_PLAIN, &kernel);
    kernel.grid[0] = divide_up(product_pairs(PRODUCT_PLAIN, a->n_rows), shape->pairs);
    kernel.grid[1] = a->n_heads * divide_up(p->tape.max_rows, shape->tile_rows);
    kernel.grid[2] = 1;
    metal_launch_add(p, &kernel, &args, sizeof args);
    if (a->n_rotated > 0)
        metal_launch_add(p,
                         &(struct metal_kernel){ .name = "latent_rotate",
                                                 .grid = { p->tape.max_rows, 1, 1 },
                                                 .threads = LATENT_THREADS,
                                                 .beside = true },
                         &args, sizeof args);
}

static void launch_merge(struct metal_plan *p, const struct latent_attend_metal_args *args,
                         struct metal_kernel kernel)
{
    kernel.name = "latent_merge";
    kernel.shared = 0;
    memcpy(kernel.grid, (uint32_t[]){ args->attend.n_heads, p->tape.max_rows, 1 }, sizeof kernel.grid);
    metal_launch_add(p, &kernel, args, sizeof *args);
}

void metal_plan_latent_attend(struct metal_plan *p)
{
    struct latent_attend_metal_args args = { *(const struct attend_args *)p->command->args, 0, 0 };
    const struct page_shape *s = &args.attend.pages;
    uint32_t rows = p->tape.max_rows, latent_dims = args.attend.latent_dims,
             most_parts = rows > MANY_ROWS || p->tape.invariant ? 1 : MOST_PARTS;
    struct metal_kernel kernel = { .name = "latent_attend",
                                   .constants = { s->head_dim, latent_dims, s->k_format },
                                   .n_constants = LATENT_N_CONSTANTS,
                                   .threads = LATENT_THREADS,
                                   .shared = LATENT_HEADS * s->head_dim * (uint32_t)sizeof(float) };

    if (!key_fits(p, s, latent_dims))
        return;
    args.split_pages = divide_up(s->max_pages, most_parts);
    args.split_pages = args.split_pages < LEAST_PAGES ? LEAST_PAGES : args.split_pages;
    args.n_splits = divide_up(s->max_pages, args.split_pages);
    memcpy(kernel.grid, (uint32_t[]){ args.n_splits, divide_up(args.attend.n_heads, LATENT_HEADS), rows },
           sizeof kernel.grid);
    if (args.n_splits > 1)
        p->private_bytes =
            (uint64_t)rows * args.attend.n_heads * args.n_splits * (latent_dims + 2) * sizeof(float);
    metal_launch_add(p, &kernel, &args, sizeof args);
    if (args.n_splits > 1)
        launch_merge(p, &args, kernel);
}
