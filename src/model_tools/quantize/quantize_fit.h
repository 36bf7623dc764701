// quantize_fit.h - finds the scale (and the minimum) with which a few numbers lose least when they become
// small integers.
//
// For given integers the best scale is a least-squares solution; for a given scale the best integers are the
// nearest ones. Each fit tries a row of first guesses, solves, rounds again, and keeps the smallest weighted
// error. Private to quantize.
#pragma once
#include <stdbool.h>

enum { FIT_MAX = 32 }; // elements of a group

// value = scale * q + base, q in 0..q_max.
struct fit {
    float scale, base, error;
    float q[FIT_MAX]; // whole numbers
};

struct points { // 16 or 32 numbers and their weights, above 0
    const float *x, *w;
    int n;
};
// base_negative: base must not be above 0, as in the K formats, which subtract a minimum.
void fit_affine(struct fit *best, const struct points *p, int q_max, bool base_negative);
// base = 0, q in -q_size..q_size - 1. The scale's sign is chosen so that the largest element gets the extra
// step.
void fit_signed(struct fit *best, const struct points *p, int q_size);

// The nearest integers to (x - base) / scale in q_min..q_max, and the weighted error with them.
float fit_round(float *q, const struct points *p, const float scale_base[2], const int range[2]);

// Weights of n elements: larger ones count more, since an error there moves a product most; times the
// importance of each column, where it is known (NULL: it is not).
void fit_weights(float *w, const float *x, const float *importance, int n);

// The same for sixteen levels in ascending order, of which the first has the greatest magnitude: q holds
// levels.
struct fit_levels {
    float at[16];
};
void fit_to_levels(struct fit *best, const struct points *p, const struct fit_levels *levels);
float fit_round_to_levels(float *q, const struct points *p, float scale, const struct fit_levels *levels);
// The number of the level nearest to v.
int fit_level(const struct fit_levels *levels, float v);
