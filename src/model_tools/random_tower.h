// random_tower.h - the mmproj file of a tower of pictures with random weights, beside a random text model.
#pragma once
#include "base/err.h"
#include "base/str.h"

struct random_tower_shape {
    uint32_t n_layers, n_cols, n_heads, n_ffn, patch, tile, longest_edge, scale;
};

// name: of the model, for the file's keys. n_out: columns of the text model. *random: the generator's state.
// Weights are BF16, what llama.cpp's converter keeps in F32 is F32.
bool random_tower_file(const struct random_tower_shape *shape, const char *name, uint32_t n_out,
                       uint64_t *random, const char *path, struct err *err);
// Of the shape with this name; NULL: it takes no pictures.
const struct random_tower_shape *random_tower_find(const char *name);
