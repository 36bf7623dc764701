// image_pass.h - the one loop of a resize: a line of bytes as the weighted sum of lines, as a plain loop and
// with vectors. The same integers, so the same bytes.
#pragma once
#include "image/image_weights.h"

// Output line i of n_bytes, from the lines of in, which are n_bytes each.
typedef void image_pass(const struct image_weights *w, uint32_t i, const uint8_t *in, size_t n_bytes,
                        uint8_t *out);

// The best one for a CPU with these CPU_* bits; 0: the plain loop.
image_pass *image_pass_choose(uint32_t features);
