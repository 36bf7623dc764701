// tower_blocks.h - what towers share: the tables of their tensors, reading sizes, and a layer of a ViT on the
// tape.
#pragma once
#include "models/vision/tower.h"
#include "ops/matmul/matmul.h"

// A tower's own tensor, and one of a layer. json: without "model.".
#define TOWER_KEY(field, gguf_name, json_name, n_rows, n_cols)                                        \
    {                                                                                                 \
        false, offsetof(struct tower_weights, field) / sizeof(void *), gguf_name, "model." json_name, \
            TOWER_##n_rows, TOWER_##n_cols                                                            \
    }
#define LAYER_KEY(layers, field, gguf_name, json_name, n_rows, n_cols)                     \
    {                                                                                      \
        true, offsetof(struct tower_layer, field) / sizeof(void *), "v.blk.%u." gguf_name, \
            "model." layers ".%u." json_name, TOWER_##n_rows, TOWER_##n_cols               \
    }
// A product or norm with its bias. layers: what comes before a layer's number in a folder.
#define LAYER_KEYS(layers, field, gguf_name, json_name, n_rows, n_cols, n_bias)         \
    LAYER_KEY(layers, field, gguf_name ".weight", json_name ".weight", n_rows, n_cols), \
        LAYER_KEY(layers, field##_bias, gguf_name ".bias", json_name ".bias", ONE, n_bias)

struct tower_size {
    size_t offset; // in struct tower_config
    const char *gguf, *json;
    uint32_t otherwise, max; // otherwise: the default in a folder; a GGUF file must have the key
};
#define TOWER_SIZE(field) offsetof(struct tower_config, field)

bool tower_read_sizes(struct tower *t, const struct tower_size *sizes, uint32_t n, struct err *err);
// Reads the epsilon of the norms, and checks that the activation is what the tower is run with (the name in a
// folder) and that embeddings are as wide as the text model.
bool tower_read_common(struct tower *t, const char *activation, struct err *err);

// x += attention(layernorm(x)) and x += ffn(layernorm(x)), each times the layer's factors where it has them.
void tower_block_attention(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x);
void tower_block_ffn(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x,
                     enum activation activation);
// Patch embedding: x becomes the patches' products, their biases and positions. patch_bias may be NULL.
void tower_block_patches(struct tape *t, const struct tower_stage *s, struct tensor x);
