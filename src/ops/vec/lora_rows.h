// lora_rows.h - parts of a row of lora, as the kernels of row_kernels.h take them.
#pragma once
#include <stdint.h>

enum { LORA_RANKS = 4 }; // of a part, at most

struct lora_down {          // h[j] = scale * sum over k of in[k] * a[j][k]
    const float *in, *a;    // [n_cols], [n_ranks, n_cols]
    const uint32_t *owners; // [n_ranks]
    const float *scales;    // by owner
    float *h;               // [n_ranks]
    uint32_t n_cols, n_ranks;
};
struct lora_up { // out[n] += sum over j of h[j] * b[j][n]
    const float *h, *b;
    float *out;                  // [n]
    uint32_t n, stride, n_ranks; // stride: from rank to rank of b
};
