// matmul_metal.c - the operation's launch; product_choice.c chooses the kernel. The vendor's product (--gemm
// vendor) is used where it can be: many rows, weights of fp32 or fp16, no bias, and a sum only onto itself.
#include "ops/matmul/matmul.h"
#include "device/fuse.h"
#include "gemm/metal/product_choice.h"
#include "ops/metal_table.h"

static const char *const kernels[N_PRODUCT_VARIANTS] = {
    [PRODUCT_VARIANT_PLAIN] = "matmul_plain",         [PRODUCT_VARIANT_PARTS] = "matmul_parts",
    [PRODUCT_VARIANT_HEAD] = "matmul_head",           [PRODUCT_VARIANT_ONE] = "matmul_one",
    [PRODUCT_VARIANT_SOME] = "matmul_some",           [PRODUCT_VARIANT_TILED] = "matmul_tiled",
    [PRODUCT_VARIANT_FEW_HALF] = "matmul_few_half",   [PRODUCT_VARIANT_FEW_FLOAT] = "matmul_few_float",
    [PRODUCT_VARIANT_MANY_HALF] = "matmul_many_half", [PRODUCT_VARIANT_MANY_FLOAT] = "matmul_many_float",
};

// The operand that attend_parts.h's parts are: behind the operation's own.
enum { MATMUL_PARTS = MATMUL_OUT + 1 };
enum { MANY_ROWS = 17 }; // the engine's largest bucket: prompts

static bool vendor_can(const struct metal_plan *p, uint32_t rows)
{
    const struct operand *add = &p->command->operands[MATMUL_ADD], *out = &p->command->operands[MATMUL_OUT];
    enum quant format = metal_weight(p, MATMUL_W)->format;

    return rows >= MANY_ROWS && !p->tape.invariant && (format == QUANT_F32 || format == QUANT_F16) &&
           !metal_has(p, MATMUL_BIAS) &&
           (!add->buffer || (add->buffer == out->buffer && add->offset == out->offset));
}

void metal_plan_matmul(struct metal_plan *p)
{
    const struct matmul_args *args = (const struct matmul_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    const struct operand *packed = fuse_packed(p->command, false);

    CHECK(!packed || packed - p->command->operands == MATMUL_PARTS);
    if (p->tape.gemm == GEMM_VENDOR && vendor_can(p, rows)) {
        metal_product_add(
            p, &(struct metal_product){ MATMUL_IN, MATMUL_W, MATMUL_OUT, rows, metal_has(p, MATMUL_ADD) });
        return;
    }
    product_launch(p, &(struct product_plan){ .kernels = kernels,
                                              .w = { metal_weight(p, MATMUL_W) },
                                              .mode = PRODUCT_PLAIN,
                                              .bias = metal_has(p, MATMUL_BIAS),
                                              .add = metal_has(p, MATMUL_ADD),
                                              .exact = args->exact,
                                              .parts = packed,
                                              .args = { .rows = args->rows } });
}
