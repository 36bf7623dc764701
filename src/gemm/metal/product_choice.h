// product_choice.h - which kernel multiplies: the ladder of the Metal device, for matmul, gate_up and qkv.
#pragma once
#include "device/metal/metal.h"
#include "gemm/metal/product_metal.h"

struct product_plan {
    const char *op;            // the kernels' names begin with it
    const struct weight *w[3]; // NULL: absent
    enum product_mode mode;
    uint32_t bias; // bit i: matrix i has one
    bool add, exact;
    struct product_args args; // n_cols, n_out and row_bytes are filled in here
};
// Adds the product's one launch.
void product_launch(struct metal_plan *p, const struct product_plan *product);
