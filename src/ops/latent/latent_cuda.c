// latent_cuda.c - chooses the kernels.
//
// latent_project: one row in fp32, more on tensor cores; under --invariant on tensor cores for any number of
// rows. latent_attend: tiles of 64 queries where keys have 576 numbers and values 512, as in every
// model known; else the plain kernel. Up to 64 rows each row has tiles of its own, whose keys are split over
// the blocks that the device has room for. latent_few: up to 16 rows. latent_hopper: pages of F16 and more
// than 64 rows, but not under --invariant.
#include "ops/latent/latent_cuda.h"
#include "ops/attend/attend_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"

enum { ALONE_ROWS = 64, MOST_ROWS_AT_ONCE = 64 };

static struct latent_store_params store_params(const struct cuda_plan *p,
                                               const struct latent_store_args *args)
{
    return (struct latent_store_params){ .in = cuda_at(p, LATENT_STORE_IN),
                                         .norm = cuda_at(p, LATENT_STORE_NORM),
                                         .angles = cuda_at(p, LATENT_STORE_ANGLES),
                                         .pages = cuda_at(p, LATENT_STORE_PAGES),
                                         .table = cuda_at(p, LATENT_STORE_TABLE),
                                         .args = *args };
}

void cuda_plan_latent_store(struct cuda_plan *p)
{
    struct latent_store_params params = store_params(p, (const struct latent_store_args *)p->command->args);
    struct cuda_shape shape = { { p->tape.max_rows, 1, 1 },
                                LATENT_STORE_THREADS,
                                params.args.pages.head_dim * 4 };

    cuda_launch_add(p, "latent_store", shape, &params, sizeof params);
}

static struct latent_project_params project_params(const struct cuda_plan *p,
                                                   const struct latent_project_args *args)
{
    return (struct latent_project_params){ .in = cuda_at(p, LATENT_PROJECT_IN),
                                           .angles = cuda_at(p, LATENT_PROJECT_ANGLES),
                                           .out = cuda_at(p, LATENT_PROJECT_OUT),
                                           .w = weight_layout_of(p, LATENT_PROJECT_W),
                                           .args = *args };
}

// store: whether the launch stores keys too.
static void launch_project(struct cuda_plan *p, struct latent_project_params *params, bool store)
{
    const struct latent_project_args *a = &params->args;
    u32 rows = p->tape.max_rows;
    bool tiles = !a->exact && a->n_cols % 32 == 0 && (rows > 1 || p->tape.invariant),
         few = rows <= LATENT_PROJECT_FEW_ROWS;

    params->n_products =
        tiles ? a->n_heads * divide_up(a->n_rows, few ? LATENT_PROJECT_FEW_TILE : LATENT_PROJECT_TILE)
              : divide_up((u64)a->n_heads * a->n_rows, LATENT_PROJECT_THREADS / LATENT_PROJECT_LANES);
    u32 y = tiles ? divide_up(rows, few ? LATENT_PROJECT_FEW_ROWS : LATENT_PROJECT_MANY_ROWS)
                  : (rows < MOST_ROWS_AT_ONCE ? rows : MOST_ROWS_AT_ONCE);
    params->n_stores = store ? divide_up(rows, y * LATENT_STORE_ROWS) : 0;
    struct cuda_shape shape = { { params->n_products + (a->n_rotated ? a->n_heads : 0) + params->n_stores, y,
                                  1 },
                                tiles ? LATENT_PROJECT_MANY_THREADS : LATENT_PROJECT_THREADS,
                                store ? params->store.args.pages.head_dim * 4 : 0 };
    cuda_launch_add(p,
                    !tiles ? "latent_project"
                    : few  ? "latent_project_few"
                           : "latent_project_many",
                    shape, params, sizeof *params);
}

void latent_project_launch(struct cuda_plan *p, u64 runs)
{
    struct latent_project_params params =
        project_params(p, (const struct latent_project_args *)p->command->args);

    params.runs = runs;
    launch_project(p, &params, false);
}

void cuda_plan_latent_project(struct cuda_plan *p)
{
    latent_project_launch(p, 0);
}

// One launch of both.
void latent_qk_launch(struct cuda_plan *p, u64 runs)
{
    const struct latent_qk_args *args = (const struct latent_qk_args *)p->command->args;
    const struct command *whole = p->command;
    struct command parts[LATENT_QK_N_PARTS];

    latent_qk_parts(whole, parts);
    p->command = &parts[1];
    struct latent_project_params params = project_params(p, &args->project);
    p->command = whole; // its first operands are the store's
    params.store = store_params(p, &args->store);
    params.runs = runs;
    if (runs)
        cuda_launch_add(p, "latent_store_many",
                        (struct cuda_shape){ { divide_up(p->tape.max_rows, LATENT_STORE_MANY_ROWS), 1, 1 },
                                             LATENT_STORE_MANY_THREADS,
                                             0 },
                        &params.store, sizeof params.store);
    launch_project(p, &params, !runs);
}

void cuda_plan_latent_qk(struct cuda_plan *p)
{
    latent_qk_launch(p, 0);
}

static void launch_plain(struct cuda_plan *p, const struct latent_attend_params *params)
{
    const struct attend_args *a = &params->args;
    u32 shared = (a->pages.head_dim + a->latent_dims + LATENT_PLAIN_KEYS) * 4;

    cuda_launch_add(p, "latent_attend_plain",
                    (struct cuda_shape){ { a->n_heads, p->tape.max_rows, 1 }, LATENT_MERGE_THREADS, shared },
                    params, sizeof *params);
}

static bool in_tiles(const struct cuda_plan *p, const struct attend_args *a)
{
    return a->pages.head_dim == LATENT_KEY && a->latent_dims == LATENT_VALUE && a->pages.k_format != KV_F32 &&
           !p->tape.exact && p->device.shared_bytes >= LATENT_SHARED_BYTES;
}

bool latent_attend_hopper(const struct cuda_plan *p)
{
    const struct attend_args *a = (const struct attend_args *)p->command->args;

    return in_tiles(p, a) && p->tape.max_rows > ALONE_ROWS && !p->tape.invariant &&
           a->pages.k_format == KV_F16 && p->device.capability >= 90 && cuda_has_kernel(p, "latent_hopper");
}

static void launch_tiles(struct cuda_plan *p, struct latent_attend_params *params)
{
    static const char *const kernels[] = {
        [KV_F16] = "latent_attend_f16", [KV_BF16] = "latent_attend_bf16", [KV_Q8_0] = "latent_attend_q8_0"
    };
    const struct attend_args *a = &params->args;
    u32 rows = p->tape.max_rows, alone = rows <= ALONE_ROWS || a->n_heads > LATENT_TILE / 2;

    params->tile_heads = a->n_heads < LATENT_TILE ? a->n_heads : LATENT_TILE;
    params->tile_rows = alone ? 1 : LATENT_TILE / a->n_heads;
    u32 head_tiles = divide_up(a->n_heads, params->tile_heads),
        row_tiles = divide_up(rows, params->tile_rows);
    u32 n = p->device.n_sms / (head_tiles * row_tiles),
        most = a->pages.max_pages < LATENT_MOST_SPLITS ? a->pages.max_pages : LATENT_MOST_SPLITS;
    params->n_splits = !alone || p->tape.invariant || n < 1 ? 1 : n < most ? n : most;
    if (params->n_splits > 1)
        p->private_bytes = (u64)rows * a->n_heads * params->n_splits * (LATENT_VALUE + 2) * 4;
    params->partial = p->private_at;
    bool hopper = params->n_splits == 1 && latent_attend_hopper(p);
    cuda_launch_add(p, hopper ? "latent_hopper" : kernels[a->pages.k_format],
                    (struct cuda_shape){ { params->n_splits, head_tiles, row_tiles },
                                         hopper ? LATENT_HOPPER_THREADS : LATENT_ATTEND_THREADS,
                                         hopper ? LATENT_HOPPER_BYTES : LATENT_SHARED_BYTES },
                    params, sizeof *params);
    if (params->n_splits > 1)
        cuda_launch_add(p, "latent_merge",
                        (struct cuda_shape){ { a->n_heads * (LATENT_VALUE / LATENT_MERGE_THREADS), rows, 1 },
                                             LATENT_MERGE_THREADS,
                                             0 },
                        params, sizeof *params);
}

static void launch_few(struct cuda_plan *p, const struct latent_attend_params *params)
{
    static const char *const kernels[] = {
        [KV_F16] = "latent_few_f16", [KV_BF16] = "latent_few_bf16", [KV_Q8_0] = "latent_few_q8_0"
    };
    struct attend_params few = { .q = params->q,
                                 .k_pages = params->pages,
                                 .table = params->table,
                                 .out = params->out,
                                 .args = params->args };
    const struct attend_few_kind kind = { .kernel = kernels[params->args.pages.k_format],
                                          .rows = p->tape.max_rows,
                                          .value = LATENT_VALUE,
                                          .parts = LATENT_FEW_PARTS,
                                          .threads = LATENT_FEW_THREADS,
                                          .blocks = 1 };

    attend_few_split(p, &few, &kind);
}

void latent_attend_launch(struct cuda_plan *p, u64 runs)
{
    struct latent_attend_params params = { .q = cuda_at(p, LATENT_ATTEND_Q),
                                           .pages = cuda_at(p, LATENT_ATTEND_PAGES),
                                           .table = cuda_at(p, LATENT_ATTEND_TABLE),
                                           .out = cuda_at(p, LATENT_ATTEND_OUT),
                                           .args = *(const struct attend_args *)p->command->args,
                                           .runs = runs };
    bool tiles = in_tiles(p, &params.args);

    if (tiles && p->tape.max_rows <= LATENT_FEW_ROWS && !p->tape.invariant)
        launch_few(p, &params);
    else if (tiles)
        launch_tiles(p, &params);
    else
        launch_plain(p, &params);
}

void cuda_plan_latent_attend(struct cuda_plan *p)
{
    latent_attend_launch(p, 0);
}
