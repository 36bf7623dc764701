// trellis_write.h - a safetensors folder with its matrices as EXL3: `ingot quantize --exl3`.
//
// The output is a folder as exllamav3 writes and reads it: NAME.trellis, NAME.suh, NAME.svh and NAME.mul1 for
// each matrix of the layers, and for a head of its own; everything else, the embedding, norms, biases and
// routers, is copied as it is, and so are the other files of the folder. model.safetensors appears last; it
// has what is copied, then layer by layer what is coded, and the head.
#pragma once
#include "model_tools/moments.h"

struct trellis_options {
    const char *input, *output; // folders; output must not hold a model
    uint32_t bits, head_bits;   // 1 to 8
    const char *device;         // that searches: one of ingot_engine_options, or NULL: auto
    unsigned n_threads;         // 0: all processors
    bool (*progress)(void *arg, uint64_t done, uint64_t total); // weights; false ends the work. May be NULL
    void *progress_arg;
    // Makes *m the moments of a text from layer `first` on, for as many layers as it likes (m->limits).
    // Called again when these are coded; the bytes that are written do not depend on how often. NULL: all
    // columns count alike.
    bool (*calibrate)(void *arg, uint32_t first, struct moments *m, struct err *err);
    void *calibrate_arg;
};

struct trellis_result {
    uint64_t bytes_in, bytes_out; // of tensors
    uint32_t n_coded, n_tensors;
    double error; // squared, relative, of the coded numbers: the mean over matrices
};

bool trellis_write(const struct trellis_options *options, struct trellis_result *result, struct err *err);
