// sample_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "base/lang.h"
#include "ops/sample/sample.h"

#define SAMPLE_PARTS 32u // blocks that scan one row of logits, at most
enum { SAMPLE_THREADS = 1024 };

struct sample_launch_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) logits;
    DEVICE_AT(u32) history;
    DEVICE_AT(f32) work; // [outputs, 3 * n_tokens]: logits or candidates, then counts
    DEVICE_AT(u32) results;
    DEVICE_AT(u64) parts;           // [outputs, SAMPLE_PARTS], zero between steps: the best of a part
    DEVICE_AT(u32) kept;            // [outputs], the same: candidates in the row's work memory
    DEVICE_AT(const u32) mask_bias; // [outputs, args.mask_bias_stride]
    struct sample_args args;
};
