// listed_choice.h - which kernel multiplies rows at listed places (listed.metalh): for experts_up,
// experts_down and latent_project.
#pragma once
#include "gemm/metal/product_choice.h"

enum listed_variant {
    LISTED_ONE,
    LISTED_FEW,
    LISTED_MANY_HALF,
    LISTED_MANY_FLOAT,
    LISTED_PLAIN,
    N_LISTED_VARIANTS
};

struct listed_shape {
    uint32_t pairs, tile_rows; // of a tile
    uint32_t threads;
};
extern const struct listed_shape listed_shapes[N_LISTED_VARIANTS];

struct listed_product {
    const struct weight *w[4]; // NULL: absent
    bool odd;                  // widths or places that are no multiples of 8
    bool exact;
};
// A matrix that is too large becomes the plan's error.
enum listed_variant listed_choose(struct metal_plan *p, const struct listed_product *product);
// The arguments of a product by one of the n_matrices that w[0], and w[1] if there is one, hold.
struct product_args listed_args(const struct weight *const w[2], uint32_t n_matrices);
void listed_constants(const struct weight *const w[2], enum product_mode mode, struct metal_kernel *kernel);
