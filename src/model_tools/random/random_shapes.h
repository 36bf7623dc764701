// random_shapes.h - the shapes of models that `ingot synth` writes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANDOM_MOST_LAYERS = 1024 };

struct random_shape {
    const char *name, *arch;
    uint32_t n_layers, n_cols, n_ffn, n_heads, n_kv_heads, head_dim, n_vocab;
    float rope_base;
    bool tied;
    uint32_t n_experts, n_used, n_expert_ffn, n_shared;
};

const struct random_shape *random_shape_at(size_t i); // NULL behind the last
