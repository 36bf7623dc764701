// gate_up_metal.c - the operation's launch; product_choice.c chooses the kernel.
#include "ops/gate_up/gate_up.h"
#include "gemm/metal/product_choice.h"
#include "ops/metal_table.h"

static const char *const kernels[N_PRODUCT_VARIANTS] = {
    [PRODUCT_VARIANT_PLAIN] = "gate_up_plain",         [PRODUCT_VARIANT_ONE] = "gate_up_one",
    [PRODUCT_VARIANT_SOME] = "gate_up_some",           [PRODUCT_VARIANT_TILED] = "gate_up_tiled",
    [PRODUCT_VARIANT_FEW_HALF] = "gate_up_few_half",   [PRODUCT_VARIANT_FEW_FLOAT] = "gate_up_few_float",
    [PRODUCT_VARIANT_MANY_HALF] = "gate_up_many_half", [PRODUCT_VARIANT_MANY_FLOAT] = "gate_up_many_float",
};

void metal_plan_gate_up(struct metal_plan *p)
{
    const struct gate_up_args *args = (const struct gate_up_args *)p->command->args;

    product_launch(p, &(struct product_plan){
                          .kernels = kernels,
                          .w = { metal_weight(p, GATE_UP_GATE), metal_weight(p, GATE_UP_UP) },
                          .mode = PRODUCT_GATED,
                          .exact = args->exact,
                          .args = { .rows = ROWS_STEP, .activation = args->activation, .eps = args->eps } });
}
