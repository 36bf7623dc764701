// gate_up_metal.c - the operation's launch; product_choice.c chooses the kernel.
#include "ops/gate_up/gate_up.h"
#include "gemm/metal/product_choice.h"
#include "ops/metal_table.h"

void metal_plan_gate_up(struct metal_plan *p)
{
    const struct gate_up_args *args = (const struct gate_up_args *)p->command->args;

    product_launch(p, &(struct product_plan){ .op = "gate_up",
                                              .w = { metal_weight(p, GATE_UP_GATE), metal_weight(p, GATE_UP_UP) },
                                              .mode = PRODUCT_GATED,
                                              .exact = args->exact,
                                              .args = { .rows = ROWS_STEP, .activation = args->activation, .eps = args->eps } });
}
