// matmul_metal.c - the operation's launch; product_choice.c chooses the kernel.
#include "ops/matmul/matmul.h"
#include "ops/matmul/product_choice.h"
#include "ops/metal_table.h"

void metal_plan_matmul(struct metal_plan *p)
{
    const struct matmul_args *args = (const struct matmul_args *)p->command->args;

    product_launch(p, &(struct product_plan){ .op = "matmul",
                                              .w = { metal_weight(p, MATMUL_W) },
                                              .mode = PRODUCT_PLAIN,
                                              .bias = metal_has(p, MATMUL_BIAS),
                                              .add = metal_has(p, MATMUL_ADD),
                                              .exact = args->exact,
                                              .args = { .rows = args->rows } });
}
