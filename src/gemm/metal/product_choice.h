// product_choice.h - which kernel multiplies: the variants of the Metal device, for matmul, gate_up and qkv.
#pragma once
#include "device/metal/metal.h"
#include "gemm/metal/product_metal.h"

enum product_variant {
    PRODUCT_VARIANT_PLAIN,
    PRODUCT_VARIANT_PARTS,
    PRODUCT_VARIANT_HEAD,
    PRODUCT_VARIANT_ONE,
    PRODUCT_VARIANT_SOME,
    PRODUCT_VARIANT_TILED,
    PRODUCT_VARIANT_FEW_HALF,
    PRODUCT_VARIANT_FEW_FLOAT,
    PRODUCT_VARIANT_MANY_HALF,
    PRODUCT_VARIANT_MANY_FLOAT,
    N_PRODUCT_VARIANTS
};

struct product_plan {
    const char *const *kernels; // [N_PRODUCT_VARIANTS], names
    const struct weight *w[3];  // NULL: absent
    enum product_mode mode;
    uint32_t bias; // bit i: matrix i has one
    bool add, exact;
    bool parts;               // the one row lies in parts; product_takes_parts said so
    struct product_args args; // n_cols, n_out and row_bytes are filled in here
};
// A product of one row that can read it in parts, with w: the row fits into threadgroup memory.
bool product_takes_parts(const struct weight *w);
// False, and the plan's error: the matrix is too large for the kernels' places.
bool product_weight_fits(struct metal_plan *p, const struct weight *w);
// Adds the product's one launch.
void product_launch(struct metal_plan *p, const struct product_plan *product);
