// vendor.h - NVIDIA's matrix library, loaded at run time like the driver: for comparison with our own
// products, and as a fallback.
//
// cuBLAS is no dependency: vendor_open opens libcublas.so.13, .12 or .11 when a tape asks for it (--gemm
// vendor). It computes one product: bf16 times bf16, summed in fp32. It runs in the device's stream beside
// our launches; such tapes are no graphs.
#pragma once
#include "device/cuda/driver.h"

struct vendor; // the library and a handle for one stream

struct vendor_product { // out[r][n] = sum over k of x[r][k] * w[n][k]
    cu_address out;     // fp32 [n_rows, n_out]
    cu_address x;       // bf16 [n_rows, n_cols]
    cu_address w;       // bf16 [n_out, n_cols]
    uint32_t n_rows, n_out, n_cols, reserved;
};

struct vendor *vendor_open(cu_stream stream, struct err *err); // NULL with a reason
void vendor_close(struct vendor *v);                           // NULL is allowed
bool vendor_multiply(struct vendor *v, const struct vendor_product *product, struct err *err);
