// trellis_factor.h - how the error of one input reaches the outputs with the others' (LDLQ): L of M = L D L^T
// in blocks of 16, where M are the moments of the inputs as the trellis sees them, scaled and transformed,
// with a fortieth of their mean added on the diagonal.
#pragma once
#include <stdbool.h>
#include "base/err.h"
#include "base/thread_pool.h"

struct trellis_factor_source {
    const double *moments; // as moments_entry has them; NULL: not known, all inputs count alike
    const uint16_t *suh;   // [n_in]: the inputs' factors, halves
    uint32_t cols, n_in;   // n_in: padded to 128
};

// l: [n_in, n_in], zeros. Its blocks of 16 on the diagonal become unit matrices; what is above them stays
// zero.
bool trellis_factor(const struct trellis_factor_source *source, struct thread_pool *pool, double *l,
                    struct err *err);
