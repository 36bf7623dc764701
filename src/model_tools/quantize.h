// quantize.h - writes a model in other weight formats: `ingot quantize`.
//
// Input is any model_file, output one GGUF file, which appears whole or not at all. The mixes follow
// llama.cpp's conventions: matrices get the format of the name; the head (or the embedding that serves as
// one) Q6_K; in the _M mixes the value and down projections of the first and last eighth of the layers and of
// every third between get Q6_K; norms, biases and routers stay F32. Rows that are no multiple of 256 fall
// back: Q4_K to Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, and to F16 when 32 does not divide them. The file's bytes
// do not depend on the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

// F32 F16 BF16 Q8_0 Q4_0 Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K, and Q4_K, Q5_K for their _M mixes. Ends in NULL.
extern const char *const quantize_types[];

struct quantize_options {
    const char *input;  // a .gguf file, or a safetensors folder or file
    const char *output; // must not be the input
    const char *type;   // one of quantize_types, any case
    unsigned n_threads; // 0: all processors
    // Called from the calling thread with the bytes of input that are done. false ends the work with
    // ERR_CANCELLED. May be NULL.
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
};

struct quantize_result {
    uint64_t bytes_in, bytes_out; // of tensors
    uint64_t n_tensors, n_quantized, n_fallback;
};

bool quantize_file(const struct quantize_options *options, struct quantize_result *result, struct err *err);
