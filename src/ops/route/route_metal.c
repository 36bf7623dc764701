// route_metal.c - the operation's launches: logits, then a threadgroup a row that chooses.
#include "ops/route/route_metal.h"
#include "base/divide.h"
#include "ops/metal_table.h"

void metal_plan_route(struct metal_plan *p)
{
    const struct route_args *args = (const struct route_args *)p->command->args;
    uint32_t rows = p->tape.max_rows;
    struct metal_kernel kernel = {
        .name = "route_logits",
        .constants = { metal_weight(p, ROUTE_ROUTER)->format, args->n_cols % 8 == 0, metal_has(p, ROUTE_BIAS),
                       metal_has(p, ROUTE_SELECT_BIAS), metal_has(p, ROUTE_SHARED_GATE),
                       metal_has(p, ROUTE_EXPERT_SCALE) },
        .n_constants = 6,
        .grid = { divide_up(args->n_experts, ROUTE_EXPERTS), divide_up(rows, ROUTE_ROWS), 1 },
        .threads = 128
    };

    metal_launch_add(p, &kernel, args, sizeof *args);
    kernel.name = "route_choose";
    kernel.threads = ROUTE_THREADS;
    memcpy(kernel.grid, (uint32_t[]){ rows, 1, 1 }, sizeof kernel.grid);
    metal_launch_add(p, &kernel, args, sizeof *args);
}
