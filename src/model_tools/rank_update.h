// rank_update.h - the lower triangle of a symmetric matrix C plus or minus P^T P: sums of x x^T over rows,
// and a Cholesky factor's trailing part.
//
// An element begins with what C has and takes the rows of P in their order, each by a fused product and sum:
// the same bits on every processor, with any number of threads, and with the rows in one call or in many.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/thread_pool.h"

// P has n columns in panels of RANK_UPDATE_WIDTH: [panel, k, width], zeros behind n; aligned to 64 bytes.
enum { RANK_UPDATE_WIDTH = 24 };

struct rank_update {
    double *c;
    size_t stride; // of C's rows; 0: the triangle alone, row i of i + 1 numbers behind row i - 1
    const double *p;
    uint32_t n, k;
    double sign; // 1 or -1
};

void rank_update(const struct rank_update *u, struct thread_pool *pool);

static inline uint32_t rank_update_panels(uint32_t n)
{
    return (n + RANK_UPDATE_WIDTH - 1) / RANK_UPDATE_WIDTH;
}
