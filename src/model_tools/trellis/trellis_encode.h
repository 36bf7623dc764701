// trellis_encode.h - a matrix as EXL3 (quant/exl3.h): factors, Hadamard transforms, and the best paths
// through the trellis, with each row's error carried into the ones that are still to be coded (LDLQ; Chee et
// al., QuIP, 2023). The same bits on every device and by any number of threads.
#pragma once
#include "base/thread_pool.h"
#include "device/device.h"
#include "model_tools/trellis/trellis_blocks.h"
#include "quant/exl3.h"

struct trellis_source {
    const float *w;        // [rows, cols], one row per output
    const double *moments; // of what is multiplied with w, as moments_entry has them; NULL: not known
    uint32_t rows, cols, bits;
    enum exl3_codebook codebook;
    float gain;    // trellis_gain
    uint64_t seed; // of the signs
};

// The size of normal numbers, relative to the codebook's, that its codes miss least: with few bits there are
// few large ones. It takes a dozen searches.
bool trellis_gain(uint32_t bits, enum exl3_codebook codebook, float *gain, struct err *err);

struct trellis_workers {
    struct device *device;                                        // searches; trellis_blocks_supported
    struct thread_pool *pool;                                     // computes the rest
    bool (*goes_on)(void *arg, uint32_t done, uint32_t n_blocks); // after each block of 16 inputs; false ends
                                                                  // with ERR_CANCELLED. May be NULL
    void *arg;
};

// All in one allocation, at `codes`. n_in, n_out: padded to 128.
struct trellis_code {
    uint16_t *codes, *suh, *svh;
    uint32_t n_in, n_out;
    double error; // squared, relative: of the output, as far as moments tell
};

// n matrices of one shape, bits and codebook, TRELLIS_TOGETHER at most; a code for each.
bool trellis_encode(const struct trellis_source *sources, uint32_t n, const struct trellis_workers *workers,
                    struct trellis_code *codes, struct err *err);
uint64_t trellis_encode_bytes(uint32_t rows, uint32_t cols); // of host memory that each of them takes
void trellis_code_free(struct trellis_code *code);           // a zeroed one is allowed
