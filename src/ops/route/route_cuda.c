// route_cuda.c - the operation's launches: norm, logits, choice. The blocks that compute a single row's
// logits normalise it themselves, but where rows have the same bits in any batch: the norm's sum has another
// order there.
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "ops/rmsnorm/rmsnorm_cuda.h"
#include "ops/route/route_cuda.h"

static void launch_norm(struct cuda_plan *p, const struct route_args *args)
{
    struct rmsnorm_params params = { .in = cuda_at(p, ROUTE_IN),
                                     .scale = cuda_at(p, ROUTE_NORM),
                                     .out = cuda_at(p, ROUTE_NORMED),
                                     .args = { .n_cols = args->n_cols,
                                               .n_groups = 1,
                                               .eps = args->eps,
                                               .rows = ROWS_STEP,
                                               .gain = args->gain } };
    cuda_launch_add(p, "rmsnorm", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 1024, 0 }, &params,
                    sizeof params);
}

// Uses the tensor cores, except for tapes whose rows have the same bits in any batch.
static bool suits_many(const struct cuda_plan *p, const struct route_params *params)
{
    return p->tape.max_rows >= ROUTE_LEAST_MANY && !p->tape.invariant && params->router.format == QUANT_F32 &&
           params->args.n_cols % 32 == 0;
}

// Eight rows by eight experts a block; a single row takes another kernel, with another order of sums.
static bool suits_tiles(const struct cuda_plan *p, const struct route_params *params)
{
    bool plain = params->router.format == QUANT_F32 || params->router.format == QUANT_F16 ||
                 params->router.format == QUANT_BF16;

    return p->tape.max_rows > 1 && !p->tape.invariant && plain && params->args.n_cols % 4 == 0;
}

static void launch_few(struct cuda_plan *p, const struct route_params *params)
{
    struct cuda_shape shape = { { divide_up(params->args.n_experts, ROUTE_THREADS / 32),
                                  divide_up(p->tape.max_rows, ROUTE_TILE_ROWS), 1 },
                                ROUTE_THREADS,
                                params->in ? params->args.n_cols * (u32)sizeof(f32) : 0 };
    cuda_launch_add(p, "route_logits", shape, params, sizeof *params);
}

void cuda_plan_route(struct cuda_plan *p)
{
    const struct route_args *args = (const struct route_args *)p->command->args;
    bool alone = p->tape.max_rows == 1 && !p->tape.invariant && args->n_cols <= ROUTE_MOST_SHARED;
    struct route_params params = { .in = alone ? cuda_at(p, ROUTE_IN) : 0,
                                   .norm = cuda_at(p, ROUTE_NORM),
                                   .router = weight_layout_of(p, ROUTE_ROUTER),
                                   .normed = cuda_at(p, ROUTE_NORMED),
                                   .bias = cuda_at(p, ROUTE_BIAS),
                                   .select_bias = cuda_at(p, ROUTE_SELECT_BIAS),
                                   .shared_gate = cuda_at(p, ROUTE_SHARED_GATE),
                                   .expert_scale = cuda_at(p, ROUTE_EXPERT_SCALE),
                                   .logits = cuda_at(p, ROUTE_WORK),
                                   .ids = cuda_at(p, ROUTE_IDS),
                                   .weights = cuda_at(p, ROUTE_WEIGHTS),
                                   .args = *args };
    u32 choosers = ROUTE_CHOOSE_THREADS / 32, rows = p->tape.max_rows;
    struct cuda_shape choice = { { divide_up(rows, choosers), 1, 1 }, ROUTE_CHOOSE_THREADS, 0 };

    if (!alone)
        launch_norm(p, args);
    if (suits_many(p, &params))
        cuda_launch_add(
            p, "route_logits_many",
            (struct cuda_shape){ { divide_up(rows, ROUTE_MANY_ROWS), divide_up(args->n_experts, 64), 1 },
                                 ROUTE_THREADS,
                                 ROUTE_MANY_SHARED },
            &params, sizeof params);
    else if (suits_tiles(p, &params))
        cuda_launch_add(p, "route_logits_tile",
                        (struct cuda_shape){ { divide_up(args->n_experts, ROUTE_TILE_ROWS),
                                               divide_up(rows, ROUTE_TILE_ROWS), 1 },
                                             ROUTE_THREADS,
                                             0 },
                        &params, sizeof params);
    else
        launch_few(p, &params);
    cuda_launch_add(p, "route_choose", choice, &params, sizeof params);
}
