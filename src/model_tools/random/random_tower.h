// random_tower.h - the mmproj file of a tower of pictures with random weights, beside a random text model.
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "quant/quant.h"

struct random_tower_shape {
    uint32_t n_layers, n_cols, n_heads, n_ffn, patch, tile;
    uint32_t longest_edge; // 0: InternVL's tower, which cuts pictures by their aspect ratio
    uint32_t scale;
};

// *random: the generator's state. What llama.cpp's converter keeps in F32 is F32.
struct random_tower_file {
    const char *path, *name; // name: of the model, for the file's keys
    uint32_t n_out;          // columns of the text model
    enum quant matrices;     // BF16 or Q8_0; rows that are no whole blocks are BF16
    bool hollow;             // as of struct random_model_options
};
bool random_tower_file(const struct random_tower_shape *shape, const struct random_tower_file *file,
                       uint64_t *random, struct err *err);
// Of the shape with this name; NULL: it takes no pictures.
const struct random_tower_shape *random_tower_find(const char *name);
