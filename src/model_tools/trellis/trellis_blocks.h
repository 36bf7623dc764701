// trellis_blocks.h - codes transformed matrices on a device, block of 16 inputs after block, each row's error
// carried into the rows that are still to be coded (ops/trellis_search). Matrices of one shape go side by
// side: one of few outputs leaves most of a GPU idle.
#pragma once
#include "device/device.h"
#include "quant/exl3.h"

enum { TRELLIS_TOGETHER = 16 };

struct trellis_blocks {
    uint32_t n, n_in, n_out, bits; // n: matrices
    enum exl3_codebook codebook;
    struct trellis_blocks_matrix {
        const float *w;  // [n_in, n_out]
        const double *l; // [n_in, n_in], below the diagonal; the blocks on it are 1
        uint16_t *codes; // [n_in / 16, n_out / 16, 16 * bits]: written
        float *missed;   // [n_in, n_out]: w less what the codes decode to: written
    } at[TRELLIS_TOGETHER];
    bool (*goes_on)(void *arg, uint32_t done, uint32_t n_blocks); // after each; false ends with ERR_CANCELLED
    void *arg;
};

// Whether the device has a kernel for it: the CPU and CUDA.
bool trellis_blocks_supported(struct device *d);
bool trellis_blocks_code(struct device *d, const struct trellis_blocks *b, struct err *err);
