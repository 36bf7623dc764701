// image_pass.h - the two passes of a resize over one row, as a plain loop and with vectors: the same integers, so the same bytes.
#pragma once
#include "image/image_weights.h"

struct image_pass {
    const char *name;
    // One row of pixels to n_out pixels. wide: room for 4 * (n_in + 1) bytes, not needed by the plain loop.
    void (*across)(const struct image_weights *w, const uint8_t *in, uint32_t n_in, uint8_t *out, uint8_t *wide);
    // Output row y of n_bytes from the rows of in, which are n_bytes each.
    void (*down)(const struct image_weights *w, uint32_t y, const uint8_t *in, size_t n_bytes, uint8_t *out);
};

// The best one for a processor with these CPU_* bits; 0: the plain loop.
const struct image_pass *image_pass_choose(uint32_t features);
