// image_weights.h - one axis of a resize: the input pixels of each output pixel and their weights, in
// Pillow's integers.
#pragma once
#include "image/image.h"

enum { IMAGE_WEIGHT_BITS = 22 }; // 8 bits of value, 2 for a filter's overshoot: sums stay within 32

struct image_weights {
    uint32_t n_out;
    uint32_t stride;  // taps from one output pixel's to the next one's
    uint32_t *first;  // [n_out] the first input pixel
    uint32_t *n_taps; // [n_out]
    int32_t *taps;    // [n_out, stride], 1 << IMAGE_WEIGHT_BITS together; nothing behind n_taps
    uint32_t n_fours; // of taps, per output pixel
    int8_t *digits;   // [n_out, n_fours, 3 digits, 4 taps] of the taps to the base 256, the lowest first
};

struct image_axis {
    uint32_t n_in, n_out; // 1 to PICTURE_MAX_SIDE
    enum image_filter filter;
};
// pool: shares the work; NULL: the caller alone.
bool image_weights_create(struct image_weights *w, const struct image_axis *axis, struct thread_pool *pool,
                          struct err *err);
void image_weights_free(struct image_weights *w); // zeroed is allowed
