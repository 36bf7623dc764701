// model.h - a model bound to its file: sizes, tensors by their place in the architecture, and the recording
// of its tape.
//
// Nothing here knows a device: the engine passes the weights in, per stage. A stage is a range of layers; the
// first one also embeds, the last one also has the head.
#pragma once
#include <stddef.h>
#include "format/model_file.h"
#include "ops/activate/activate.h"
#include "device/pages.h"
#include "device/states.h"
#include "models/binding/pooling.h"
#include "models/binding/rope.h"
#include "ops/rope_store/rope_store.h"

struct model_config {
    uint32_t n_layers, n_cols, n_heads, n_kv_heads, head_dim, n_ffn, n_vocab, n_context;
    uint32_t latent_dims; // values are a key's first numbers, pages have no V (ops/latent); 0: they have
    uint32_t window;      // attention sees this many tokens; 0: all
    uint32_t n_dense;     // leading layers without experts, in a model of experts
    uint32_t n_inputs;    // numbers that all layers read of a row beside the residual stream
    uint32_t n_draft;     // layers behind the model's own, which draft tokens; see model.drafts
    float norm_eps;
    struct rope_config rope[MODEL_ROPES];
};

// What may differ from layer to layer; else as in struct model_config.
struct layer_config {
    uint32_t n_heads, n_kv_heads, head_dim, n_ffn, window;
    uint32_t rope;        // its number in model_config.rope
    uint32_t pages_of;    // the layer whose K and V this one reads: this one, or one before it
    uint32_t state_words; // of a sequence's state, which a recurrent layer has instead of pages; 0: pages
    uint32_t ffn_alone;   // 1: neither pages nor a state
    float gain;           // on the residual stream behind the layer; 0: 1
};

// The fields of these two structs are all pointers, so that an architecture's weights table can name them by
// offset. They are the weights that all architectures share. A layer's other weights follow struct
// layer_weights, in the order of the architecture's own struct.
struct model_weights {
    const struct weight *embed, *out_norm, *head, *rope_divisors, *rope_long, *rope_short;
    const struct weight *input_embed, *input_proj, *input_norm;                      // of config.n_inputs
    const struct weight *frequencies[MODEL_ROPES];                                   // computed
    const struct weight *position_embed, *type_embed, *embed_norm, *embed_norm_bias; // of encoders
    // What makes an embedding or a score of pooled rows: the host reads them, no stage takes them.
    const struct weight *rank_dense, *rank_dense_bias, *rank_out, *rank_out_bias, *embed_dense, *embed_out;
    // Of the layer that drafts (draft/draft_layer.h). Without an embedding or a head of its own: the model's.
    const struct weight *draft_embed_norm, *draft_hidden_norm, *draft_from_embed, *draft_from_hidden;
    const struct weight *draft_norm, *draft_embed, *draft_head;
};
struct layer_weights {
    const struct weight *attn_norm, *q, *k, *v, *o, *q_bias, *k_bias, *v_bias, *o_bias, *q_norm, *k_norm;
    const struct weight *ffn_norm, *gate, *up, *down;
    const struct weight *attn_out_norm, *ffn_out_norm; // of what a half adds to the residual stream, or NULL
};
enum {
    N_MODEL_WEIGHTS = sizeof(struct model_weights) / sizeof(void *),
    N_LAYER_WEIGHTS = sizeof(struct layer_weights) / sizeof(void *),
    MODEL_TURNED_ROWS = 4096, // at most, where what is transposed is in blocks
};
#define MODEL_PLACE(field)     (offsetof(struct model_weights, field) / sizeof(void *))
#define MODEL_TENSOR(m, field) ((m)->tensors[MODEL_PLACE(field)]) // NULL: the file has no such tensor

struct arch;

struct model_factors { // of the embedding, attention's scores, the logits; and the norms' eps
    float embed, attend, head, eps;
    float cap; // logits become cap tanh(logits / cap); 0: they stay
};

struct joined_tensor; // binding/joined.h

struct model {
    const struct arch *arch;
    const struct model_file *file; // borrowed
    struct model_config config;
    struct layer_config *layer_configs;                 // [n_layers], and of one that drafts
    void *own;                                          // the architecture's own sizes, or NULL
    enum rope_pairs pairs;                              // how this file's q and k rows pair up
    bool tied;                                          // the head is the embedding
    char json_prefix[64];                               // for "model.", see struct arch; or empty
    bool is_bare;                                       // a checkpoint's names lack their "model."
    const struct file_tensor *tensors[N_MODEL_WEIGHTS]; // by place in struct model_weights; NULL: absent
    const struct file_tensor **layers;                  // [n_layers + 1, n_places], by place
    const struct joined_tensor *joined;                 // the newest of a list
    bool *is_vector;                                    // [n_places]: taken as fp32, whatever its dimensions
    uint32_t n_places;               // of a layer: of struct layer_weights, then the architecture's own
    float *frequencies[MODEL_ROPES]; // [rope.n_dims / 2] radians per position, scaling included; or NULL
    float angle_scale[MODEL_ROPES];
    struct model_factors factors;
    struct model_embedder embedder;
    uint64_t n_parameters, weight_bytes;
    uint32_t n_experts, n_used_experts; // per layer; per token; 0: the model has none
    uint64_t n_idle, idle_bytes;        // of these, not used by one token: the experts that are not chosen
    // The file has a layer n_layers, whole, which drafts tokens: layers and layer_configs have one more. The
    // sums above are without it.
    bool drafts;
    uint64_t n_draft_parameters, draft_bytes;
    uint32_t rank, n_ranks; // of a part of every layer (split/model_part.h); n_ranks 0: this is the whole
};

// Finds the architecture, reads and checks the sizes, and binds every tensor. The message names what is
// missing or misshapen and what was expected. model_release frees what model_bind made.
bool model_bind(struct model *m, const struct model_file *file, struct err *err);
void model_release(struct model *m);
// The context that an engine has, at most config.n_context: some rotations depend on it.
bool model_context_set(struct model *m, uint32_t n_context, struct err *err);

// Elements [first, first + n) of a tensor, joined or not, in its format; whole blocks.
void model_tensor_read(const struct file_tensor *t, uint64_t first, uint64_t n, void *to);
// Elements of a range that is best read alone: ranges may be read side by side.
uint64_t model_tensor_range(const struct file_tensor *t);

struct model_page { // bytes of a page of one layer; 0: it has none of its own
    uint64_t k, v;
};
// Words of a sequence's state in all layers; 0: the model has none.
uint64_t model_state_words(const struct model *m, uint32_t first, uint32_t last);
struct model_page model_page_bytes(const struct model *m, uint32_t l, enum kv_format k, enum kv_format v);
// Of all layers in [first, last), K and V.
uint64_t model_pages_bytes(const struct model *m, uint32_t first, uint32_t last, enum kv_format k,
                           enum kv_format v);

static inline const struct file_tensor **model_layer(const struct model *m, uint32_t l)
{
    return m->layers + (size_t)l * m->n_places;
}

// The inputs of recording a stage; all of them outlive the tape.
struct model_stage {
    const struct model *model;
    uint32_t first, last; // layers [first, last)
    // embed in the first stage; out_norm and head in the last; frequencies in all
    struct model_weights weights;
    const struct weight *const *layers; // [last - first, model->n_places]
    const struct pages *pages;          // [last - first]
    const struct state_rows *states;    // [last - first], of recurrent layers
    const struct buffer *block;         // [max_rows, n_cols] fp32: the residual stream, in and out
    const struct buffer *inputs;        // [max_rows, n_inputs] fp32, or NULL
    const struct buffer *history;       // [n_slots, history_stride] u32
    uint32_t history_stride;
    const struct buffer *pool;      // first stage: [n, n_cols] fp32 rows of pictures or NULL, see embed.h
    const struct buffer *logits;    // last stage: [max_outputs, n_vocab] fp32
    const struct buffer *results;   // last stage: [max_outputs] u32
    const struct buffer *mask_bias; // last stage: see ops/sample/sample.h
    // of a part: [max_rows, n_cols] fp32 of an all-reduce before a norm; [max_outputs, its rows of the head]
    const struct buffer *sums, *head_part;
    uint32_t n_away; // of the model's last layers, whose experts are recorded elsewhere; 0: none
};
void model_record(struct tape *t, const struct model_stage *s);
