// weight_key.h - the tables of weights: by which names and in which shapes files of both formats hold what an
// architecture needs.
#pragma once
#include "models/model.h"

// Sizes that shapes are made of: what all architectures share, and from DIM_OWN on the u32 fields of an
// architecture's own sizes.
enum dim {
    DIM_ONE,
    DIM_COLS,
    DIM_VOCAB,
    DIM_Q,
    DIM_KV,
    DIM_FFN,
    DIM_HEAD,
    DIM_HEADS,
    DIM_PAIRS,
    DIM_LABELS, // of model.embedder, as the next two
    DIM_HIDDEN,
    DIM_VECTOR,
    DIM_OWN
};
#define OWN_DIM(config, field) (DIM_OWN + offsetof(config, field) / sizeof(uint32_t))

enum {
    WEIGHT_OPTIONAL = 1,
    WEIGHT_TIED = 2, // absent: the embedding is used
    WEIGHT_ROPE_PAIRED =
        4, // rows of each head are reordered in GGUF files so that neighbours rotate together
    // Of a stack, in checkpoints:
    WEIGHT_ALTERNATE = 8,   // the rows of the two halves alternate
    WEIGHT_TRANSPOSED = 16, // matrices are [cols, rows]
    WEIGHT_MXFP4 = 32,      // or else there are bytes, under the name with "_blocks" and with "_scales"
    WEIGHT_PLUS_ONE = 64,   // a vector that is 1 less in checkpoints
    // A convolution's taps, a row for each channel; in checkpoints [rows, 1, cols]. Taken as one vector.
    WEIGHT_DEPTHWISE = 128,
    WEIGHT_SHARED_EXPERT = 256, // a matrix of it: nothing but products reads it, as of those with `used`
};

// For models with leading dense layers (config.n_dense): whether dense layers, the others, or all have it. Of
// those with recurrent layers: whether these, or the others. LAYERS_OWN_KV: those that do not read another's
// pages; files may have it elsewhere too, where nothing uses it. LAYERS_FFN: those with neither pages nor a
// state.
enum weight_layers {
    LAYERS_ALL,
    LAYERS_DENSE,
    LAYERS_MIXTURE,
    LAYERS_STATE,
    LAYERS_PAGES,
    LAYERS_OWN_KV,
    LAYERS_FFN
};

// The rows of each matrix of another tensor, [stack * all, ...], that make up this one.
struct weight_slice {
    // the other tensor in GGUF files that lack this one, or in all where that is weight_key.gguf; in
    // checkpoints it is weight_key.json
    const char *gguf;
    uint32_t all;    // enum dim: rows of a matrix there
    bool last;       // the last of them; else the first
    bool transposed; // they are this tensor's columns
};

// The tensor holds the rows of several, one behind the other, of which this is the number `index`.
struct weight_rows {
    uint32_t all[3]; // enum dim: rows of each
    uint32_t n, index;
};

// The last `n` rows are blocks of `block` rows: in checkpoints each group's, one group behind the other; in
// GGUF files all groups' first, then all groups' second, and so on.
struct weight_groups {
    uint32_t n, block, groups; // enum dim
    bool columns;              // in place of rows
};

struct weight_key {
    bool per_layer;
    size_t place; // in struct model_weights or struct layer_weights, counted in pointers; behind the latter,
                  // of OWN_PLACE
    const char *gguf, *json; // "%u" is the layer; without ".weight" / ".bias" nothing is added
    uint32_t rows, cols;     // enum dim
    uint32_t flags;
    // Not 0: there are as many matrices, of which a token uses `used`, or all where that is 0; one tensor
    // with three dimensions (two, if a matrix has one column: then it is taken as one long vector), or
    // tensors whose second "%u" is the number. enum dim.
    uint32_t stack, used;
    // 1, 2: in checkpoints the first or second half of the rows of each matrix of a stack; 0: all. GGUF files
    // that have no ffn_gate_exps and ffn_up_exps have both in ffn_gate_up_exps
    uint32_t half;
    uint32_t col_half; // 1, 2: the first or second half of the columns of a matrix; 0: all
    uint32_t when;     // enum dim: only models in which this size is not 0 have it
    enum weight_layers layers;
    const struct weight_slice *slice;   // or NULL
    const struct weight_rows *part;     // or NULL
    const struct weight_groups *groups; // or NULL
    uint32_t layer;                     // not of tables: the layer that is being bound
};

#define WEIGHT_KEY(own_place, of_layer, gguf_name, json_name, n_rows, n_cols, ...)       \
    {                                                                                    \
        .per_layer = of_layer, .place = own_place, .gguf = gguf_name, .json = json_name, \
        .rows = DIM_##n_rows, .cols = DIM_##n_cols, .flags = 0 __VA_ARGS__               \
    }
#define W(field, ...) WEIGHT_KEY(MODEL_PLACE(field), false, __VA_ARGS__)
#define L(field, ...) WEIGHT_KEY(offsetof(struct layer_weights, field) / sizeof(void *), true, __VA_ARGS__)

// For the last argument of L.
#define IN_LAYERS(which) | 0, .layers = which

// The place of a layer's weight that is the architecture's own: a field of `weights`, a struct of pointers as
// struct layer_weights is.
#define OWN_PLACE(weights, field) (N_LAYER_WEIGHTS + offsetof(weights, field) / sizeof(void *))
