// random_gemma4.h - the layers of random Gemma 4 models. They differ in their heads, in whose K and V they
// read, and in their feed-forward blocks.
#pragma once
#include "model_tools/random/random_layers.h"

// Each returns how many. Of layer l; and of what all layers have together, with whole names.
uint32_t random_gemma4_layer(const struct random_shape *h, uint32_t l,
                             struct random_tensor tensors[RANDOM_LAYER_TENSORS]);
uint32_t random_gemma4_top(const struct random_shape *h, struct random_tensor tensors[RANDOM_LAYER_TENSORS]);
void random_gemma4_keys(const struct random_shape *h, struct gguf_writer *w);
