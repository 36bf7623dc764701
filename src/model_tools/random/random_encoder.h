// random_encoder.h - tensors and keys of embedding models and rerankers, for random_model.c.
#pragma once
#include "format/gguf_write.h"

enum { RANDOM_ENCODER_TENSORS = 20 };
struct random_encoder_tensor {
    const char *name;        // of a layer: what follows "blk.%u."
    uint64_t n_rows, n_cols; // n_rows 0: a vector
};

// An encoder with LayerNorms behind the halves of its layers: all its tensors come from here.
bool random_encoder_is(const char *arch);
// Each returns the number of tensors: of any model by its name, what an encoder has beside token_embd and its
// layers, and what stands behind pooling; and of one of an encoder's layers.
uint32_t random_encoder_top(const char *name, const char *arch, uint64_t n_cols,
                            struct random_encoder_tensor *tensors);
uint32_t random_encoder_layer(const char *arch, uint64_t n_cols, uint64_t n_ffn,
                              struct random_encoder_tensor *tensors);
uint32_t random_encoder_context(const char *name, const char *arch); // positions
void random_encoder_keys(const char *name, const char *arch, struct gguf_writer *w);
