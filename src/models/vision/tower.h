// tower.h - a vision tower: an encoder of pictures and its connector, bound to a file, and the recording of
// its tape.
//
// The file is the mmproj GGUF beside a text model, or the safetensors folder that holds both. A tower's tape
// has one row per patch of all tiles in the step, a class token behind the patches of a tile where the tower
// has one, and one output per row of embeddings:
//   tokens: the row's position id     slots: the tile     positions: the row's number in its tile, from 0
//   outputs: the row at the upper left corner of each square that becomes one row of embeddings
// The embeddings land in the rows of a pool that `places` names, and the text tape reads them from there
// (ops/embed). Not here: how a picture becomes tiles (src/image), and playing the tape (src/engine).
#pragma once
#include "device/tape.h"
#include "format/model_file.h"
#include "image/image.h"

struct tower_config {
    uint32_t n_layers, n_cols, n_heads, n_ffn;
    uint32_t patch, side; // pixels of a patch; patches of a tile in both directions
    uint32_t n_class;     // class tokens of a tile: 0 or 1
    uint32_t scale;       // a square of scale x scale patches becomes one row of embeddings
    uint32_t n_out;       // columns of an embedding: those of the text model
    float norm_eps;
    struct image_processor processor;
};

// Fields of these two structs are all pointers, so that a tower's table can name them by offset.
struct tower_weights {
    const struct weight *patch, *patch_bias, *position, *post_norm, *post_norm_bias, *connect;
    const struct weight *class_token, *connect_norm, *connect_norm_bias, *connect_bias, *connect2,
        *connect2_bias;
    const struct weight *pixels; // [3, 256] the normalised value of each byte: computed, not read
};
struct tower_layer {
    const struct weight *norm1, *norm1_bias, *q, *q_bias, *k, *k_bias, *v, *v_bias, *o, *o_bias;
    const struct weight *norm2, *norm2_bias, *up, *up_bias, *down, *down_bias;
    const struct weight *scale1, *scale2; // LayerScale
};
enum {
    N_TOWER_WEIGHTS = sizeof(struct tower_weights) / sizeof(void *),
    N_TOWER_LAYER_WEIGHTS = sizeof(struct tower_layer) / sizeof(void *),
};

enum tower_dim {
    TOWER_ONE,
    TOWER_COLS,
    TOWER_FFN,
    TOWER_PATCH,
    TOWER_PLACES,    // patches of a tile
    TOWER_TILE_ROWS, // with the class token
    TOWER_SQUARE,
    TOWER_OUT
};

struct tower_key {
    bool per_layer;
    size_t place;            // in struct tower_weights or struct tower_layer, counted in pointers
    const char *gguf, *json; // "%u" is the layer
    enum tower_dim rows, cols;
};

struct tower;
struct tower_stage;

struct tower_parts { // of a tape, in commands: patch embedding, then the encoder, then the connector
    uint32_t n_embed, n_encode;
};

// A kind of tower; one file each, one line in towers.def.
struct tower_arch {
    const char *projector;     // in GGUF's clip.projector_type
    const char *model_types;   // in config.json's model_type, separated by blanks
    const char *json_prefixes; // of its tensors in a checkpoint, separated by blanks
    const struct tower_key *weights;
    uint32_t n_weights;
    bool (*read)(struct tower *t, struct err *err); // fills t->config, except n_out
    struct tower_parts (*record)(struct tape *tape, const struct tower_stage *s);
};

struct tower {
    const struct tower_arch *arch;
    const struct model_file *file; // borrowed
    struct tower_config config;
    bool swapped;                                       // ffn_up and ffn_down are swapped
    const struct file_tensor *tensors[N_TOWER_WEIGHTS]; // by place
    const struct file_tensor **layers;                  // [n_layers, N_TOWER_LAYER_WEIGHTS]
    uint64_t n_parameters, weight_bytes;
};

// Whether the file has a tower.
bool tower_is_in(const struct model_file *file);
// Reads and checks the sizes, and binds every tensor. n_out: the text model's width. The message names what
// was found and expected.
bool tower_bind(struct tower *t, const struct model_file *file, uint32_t n_out, struct err *err);
void tower_release(struct tower *t);             // zeroed is allowed
uint32_t tower_patches(const struct tower *t);   // of a tile
uint32_t tower_tile_rows(const struct tower *t); // patches and class token
uint32_t tower_rows(const struct tower *t);      // rows of embeddings of a tile
// The numbers of a class token: table[i] of patch i is its position and the patches' bias, and the last row
// the token and its position, which comes first in the file. table: [tower_tile_rows, n_cols].
bool tower_positions(const struct tower *t, float *table, struct err *err);

// The inputs of recording; all of them outlive the tape.
struct tower_stage {
    const struct tower *tower;
    struct tower_weights weights;
    const struct tower_layer *layers; // [n_layers]
    const struct buffer *pixels;      // [tiles of a step, T, T, 3] bytes
    const struct buffer *places;      // [max_outputs] u32: the pool's row of each output
    const struct buffer *pool;        // [pool rows, n_out] fp32
    const struct buffer *history;     // not read by any row
    const struct buffer *encoded; // [max_rows, n_cols] fp32: keeps the encoder's output for tests; or NULL
};
struct tower_parts tower_record(struct tape *tape, const struct tower_stage *s);
