// quantize.h - writes a model in other weight formats: `ingot quantize`.
//
// Input is any model_file, output one GGUF file, which appears whole or not at all. The mixes nearly follow
// llama.cpp's conventions: matrices get the format of the name; the head (or the embedding that serves as
// one) Q6_K; in the _M mixes of Q4_K and Q5_K the value and down projections of the first and last eighth of
// the layers and of every third between get Q6_K; Q3_K and Q2_K mixes give the value, down and output
// projections more, IQ4_NL and IQ4_XS the value projection; MXFP4_MOE is MXFP4 for experts and Q8_0 for the
// rest. Norms, biases and routers stay F32, and so do an encoder's positions and token types and a tower's
// positions and patches. Rows that are no multiple of 256 fall back: Q2_K, Q3_K and IQ4_XS to IQ4_NL, Q4_K to
// Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, and all to F16 when 32 does not divide them. The file's bytes do not
// depend on the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "format/model_file.h"

// The types' names, the largest first, and behind them Q5_K, Q4_K and Q3_K for their _M mixes. NULL: there
// are no more.
const char *quantize_type(size_t i);
bool quantize_type_check(const char *type, struct err *err); // one of them, any case

// A format for the matrices whose names match. Of several that do the first wins.
struct quantize_override {
    const char *pattern; // POSIX extended regular expression, any case, anywhere in the name that GGUF gives
    const char *type;    // a format, not a mix
};
bool quantize_override_check(const struct quantize_override *override, struct err *err); // of its type

struct quantize_tensor { // of the output, with its source
    const struct file_tensor *from;
    struct str name;
    enum quant format;
    uint64_t bytes;
};

struct quantize_options {
    const char *input;   // a .gguf file, or a safetensors folder or file
    const char *output;  // must not be the input. NULL: nothing is written; the result says what would be
    const char *type;    // one of quantize_type, any case
    const char *imatrix; // an importance matrix (imatrix_file.h), or NULL
    const struct quantize_override *overrides; // [n_overrides]
    size_t n_overrides;
    unsigned n_threads; // 0: all processors
    // Called from the calling thread with the bytes of input that are done. false ends the work with
    // ERR_CANCELLED. May be NULL.
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    void (*on_tensor)(
        void *arg,
        const struct quantize_tensor *tensor); // called for each before any is written. May be NULL
    void *on_tensor_arg;
};

struct quantize_result {
    uint64_t bytes_in, bytes_out; // of tensors
    uint64_t n_tensors, n_quantized, n_fallback;
    uint64_t n_weighted; // by the importance matrix
};

bool quantize_file(const struct quantize_options *options, struct quantize_result *result, struct err *err);
