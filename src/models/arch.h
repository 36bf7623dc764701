// arch.h - the description of an architecture: config keys, tensors, and the recording of one layer.
#pragma once
#include "models/model.h"

// A size or number of the model, under its GGUF and config.json names. %s in the GGUF name is the
// architecture.
struct config_key {
    size_t offset; // in struct model_config, or in the architecture's own sizes
    bool is_float, is_bool, is_own;
    const char *gguf, *json; // NULL: such files do not have the key
    // when the key is absent
    enum { CONFIG_REQUIRED, CONFIG_DEFAULT, CONFIG_SAME_AS, CONFIG_RATIO, CONFIG_FROM_EMBED } otherwise;
    double value;          // the default
    size_t other, divisor; // offsets: same as `other`, or other / divisor
    double min, max;
};

#define CONFIG_AT(field)          .offset = offsetof(struct model_config, field)
#define CONFIG_OWN(config, field) .is_own = true, .offset = offsetof(config, field)
#define SIZE_KEY(field, gguf_name, json_name, largest, ...)                                           \
    {                                                                                                 \
        CONFIG_AT(field), .gguf = gguf_name, .json = json_name, .min = 1, .max = largest, __VA_ARGS__ \
    }
#define FLOAT_KEY(field, gguf_name, json_name, least, largest, ...)                             \
    {                                                                                           \
        CONFIG_AT(field), .is_float = true, .gguf = gguf_name, .json = json_name, .min = least, \
                          .max = largest, __VA_ARGS__                                           \
    }
#define REQUIRED       .otherwise = CONFIG_REQUIRED
#define DEFAULT(v)     .otherwise = CONFIG_DEFAULT, .value = v
#define SAME_AS(field) .otherwise = CONFIG_SAME_AS, .other = offsetof(struct model_config, field)
#define RATIO(field, below)                                                   \
    .otherwise = CONFIG_RATIO, .other = offsetof(struct model_config, field), \
    .divisor = offsetof(struct model_config, below)
#define FROM_EMBED .otherwise = CONFIG_FROM_EMBED

// Sizes that shapes are made of: what all architectures share, and from DIM_OWN on the u32 fields of an
// architecture's own sizes.
enum dim { DIM_ONE, DIM_COLS, DIM_VOCAB, DIM_Q, DIM_KV, DIM_FFN, DIM_HEAD, DIM_HEADS, DIM_PAIRS, DIM_OWN };
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
};

// For models with leading dense layers (config.n_dense): whether dense layers, the others, or all have it.
enum weight_layers { LAYERS_ALL, LAYERS_DENSE, LAYERS_MIXTURE };

// The rows of each matrix of another tensor, [stack * all, ...], that make up this one.
struct weight_slice {
    // the other tensor in GGUF files that lack this one; in checkpoints it is weight_key.json
    const char *gguf;
    uint32_t all;    // enum dim: rows of a matrix there
    bool last;       // the last of them; else the first
    bool transposed; // they are this tensor's columns
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
    // 1, 2: in checkpoints the first or second half of the rows of each matrix of a stack; 0: all
    uint32_t half;
    uint32_t when; // enum dim: only models in which this size is not 0 have it
    enum weight_layers layers;
    const struct weight_slice *slice; // or NULL
};

#define WEIGHT_KEY(own_place, of_layer, gguf_name, json_name, n_rows, n_cols, ...)       \
    {                                                                                    \
        .per_layer = of_layer, .place = own_place, .gguf = gguf_name, .json = json_name, \
        .rows = DIM_##n_rows, .cols = DIM_##n_cols, .flags = 0 __VA_ARGS__               \
    }
#define W(field, ...) WEIGHT_KEY(offsetof(struct model_weights, field) / sizeof(void *), false, __VA_ARGS__)
#define L(field, ...) WEIGHT_KEY(offsetof(struct layer_weights, field) / sizeof(void *), true, __VA_ARGS__)

// For the last argument of L.
#define IN_LAYERS(which) | 0, .layers = which

// The place of a layer's weight that is the architecture's own: a field of `weights`, a struct of pointers as
// struct layer_weights is.
#define OWN_PLACE(weights, field) (N_LAYER_WEIGHTS + offsetof(weights, field) / sizeof(void *))

// Whether layer l has this tensor. l = 0 for tensors outside of layers.
bool model_has(const struct model *m, const struct weight_key *k, uint32_t l);
// Whether `word` is one of the words, which are separated by blanks.
bool model_one_of(const char *words, struct str word);

struct arch {
    const char *name;        // in GGUF's general.architecture
    const char *model_types; // in config.json's model_type, separated by blanks
    const char *json_prefix; // of its tensors in a checkpoint with other parts, for "model."; its sizes lie
                             // in text_config. NULL: no parts
    const char *activations; // names that hidden_act may have, separated by blanks; messages say the first
    const char *packings;    // names of quant_method whose tensors the weights table reads; NULL: none
    const struct config_key *config;
    uint32_t n_config;
    const struct weight_key *weights;
    uint32_t n_weights;
    uint32_t own_config_bytes; // a struct of the architecture's own sizes, which its config keys fill; 0: it
                               // has none
    uint32_t n_own_weights;    // of a layer, behind struct layer_weights
    const char *with; // a size of GGUF files that must be there: it tells the architecture from another of
                      // the same name; or NULL
    bool (*complete)(struct model *m, struct err *err);    // sizes that follow from others, or NULL
    bool (*check)(const struct model *m, struct err *err); // of the sizes, or NULL
    // Changes what follows from the sizes by the architecture's own rules: m->factors, the rotation; or NULL.
    void (*factors)(struct model *m);
    // Columns (of 4 bytes) of scratch that a row takes in a layer, but for what dense layers take; or NULL.
    uint64_t (*scratch_cols)(const struct model *m);
    // Records layer l (counted from the model's first) on the residual stream x, [rows, n_cols], updated in
    // place.
    void (*layer)(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles);
};

#define ARCH_OWN(config, layer_weights) \
    .own_config_bytes = sizeof(config), .n_own_weights = sizeof(layer_weights) / sizeof(void *)
#define ARCH_TABLES(config_table, weights_table)                                    \
    .config = config_table, .n_config = sizeof config_table / sizeof *config_table, \
    .weights = weights_table, .n_weights = sizeof weights_table / sizeof *weights_table
