// random_layers.h - the layers of random models that differ in more than their sizes: Gemma 4, Nemotron-H
// and Granite 4 H.
#pragma once
#include "format/gguf_write.h"
#include "model_tools/random/random_shapes.h"

enum { RANDOM_LAYER_TENSORS = 28 };
struct random_tensor {
    const char *part;                    // behind "blk.N."
    uint64_t n_matrices, n_rows, n_cols; // 0 matrices: one of two dimensions; 0 rows: a vector
};

bool random_layers_knows(const char *arch);
// Layers up to the first with attention, where not every layer has it; else 1.
uint32_t random_layers_fewest(const char *arch);
// The tensors of layer l; returns how many.
uint32_t random_layers_tensors(const struct random_shape *h, uint32_t l,
                               struct random_tensor tensors[RANDOM_LAYER_TENSORS]);
// The same of what lies outside of the layers; parts are whole names.
uint32_t random_layers_top(const struct random_shape *h, struct random_tensor tensors[RANDOM_LAYER_TENSORS]);
// The keys in which layers differ.
void random_layers_keys(const struct random_shape *h, struct gguf_writer *w);
