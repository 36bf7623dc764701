// random_model.h - writes a GGUF file with random weights in the shape of a known model: `ingot synth`.
//
// For speed work, where a download of the real model would tell nothing more: speed does not depend on the
// values, which have a standard deviation of about 0.02. Says nothing of quality. The tokeniser
// is made up too (text/tokenizer/tokenizer_random.h), so that the model can be served and chatted with: it
// answers nonsense.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

// A weight: standard deviation 0.02. *random: the generator's state, not 0.
float random_model_draw(uint64_t *random);

struct random_model_options {
    const char *shape; // the name of one of random_shapes.h
    // A weight format (Q4_0: the layers have it, embedding and head Q8_0, so that runs compare with earlier
    // ones), or a mix of quantize_type such as Q4_K_M.
    const char *type;
    const char *output; // of a shape that takes pictures also its tower: mmproj-NAME.gguf beside it
    uint64_t seed;
    uint32_t n_layers; // 0: the shape's
    bool hollow;       // zeros for weights, which take no room on most disks: for `inspect` and `plan`
    bool (*progress)(void *arg, uint64_t done, uint64_t total); // bytes; false stops. May be NULL
    void *progress_arg;
};

bool random_model_file(const struct random_model_options *options, struct err *err);
