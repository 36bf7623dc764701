// model.h - a model bound to its file: sizes, tensors by their place in the architecture, and the recording
// of its tape.
//
// Nothing here knows a device: the engine passes the weights in, per stage. A stage is a range of layers; the
// first one also embeds, the last one also has the head.
#pragma once
#include "format/model_file.h"
#include "ops/activate/activate.h"
#include "device/pages.h"
#include "ops/rope_store/rope_store.h"

enum rope_scaling_type { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    float base;
    uint32_t n_dims; // rotated dimensions of a head
    enum rope_scaling_type type;
    float factor;               // how far the context is extended
    float low, high;            // Llama 3: wavelengths between original/high and original/low are blended
    float beta_fast, beta_slow; // YaRN: rotations over the original context between which to blend
    float mscale, mscale_all;   // YaRN as DeepSeek has it: see rope_yarn_factor; 0: absent
    float attention;            // YaRN: factor on cosine and sine; 0: that of mscale over mscale_all, or of 1
    uint32_t original_context;
    bool truncate; // YaRN: the blend begins and ends at whole pairs
};

struct model_config {
    uint32_t n_layers, n_cols, n_heads, n_kv_heads, head_dim, n_ffn, n_vocab, n_context;
    uint32_t latent_dims; // values are a key's first numbers, pages have no V (ops/latent); 0: they have
    uint32_t window;      // attention sees this many tokens; 0: all
    uint32_t n_dense;     // leading layers without experts, in a model of experts
    uint32_t n_draft;     // layers behind the model's own, which draft tokens: nothing uses them
    float norm_eps;
    struct rope_config rope;
};

// The fields of these two structs are all pointers, so that an architecture's weights table can name them by
// offset. They are the weights that all architectures share. A layer's other weights follow struct
// layer_weights, in the order of the architecture's own struct.
struct model_weights {
    // frequencies are computed, not read
    const struct weight *embed, *out_norm, *head, *rope_divisors, *frequencies;
};
struct layer_weights {
    const struct weight *attn_norm, *q, *k, *v, *o, *q_bias, *k_bias, *v_bias, *o_bias, *q_norm, *k_norm;
    const struct weight *ffn_norm, *gate, *up, *down;
};
enum {
    N_MODEL_WEIGHTS = sizeof(struct model_weights) / sizeof(void *),
    N_LAYER_WEIGHTS = sizeof(struct layer_weights) / sizeof(void *),
    MODEL_TURNED_ROWS = 4096, // at most, where what is transposed is in blocks
};

struct arch;

// Factors that an architecture may set: on the embedding, on attention's scores, on the logits; and the
// norms' eps.
struct model_factors {
    float embed, attend, head, eps;
};

// The matrices of a layer's experts as one matrix, where the file does not hold them one after the other. The
// tensor has its shape and no data; model_tensor_read joins it. Each matrix is a part, or one part holds all.
// In such a part a matrix has n_halves times the rows, of which the `half`-th are used, or slice_rows, from
// slice_first on. Transposed matrices of blocks are read as fp32.
struct joined_tensor {
    struct file_tensor tensor;        // first
    const struct file_tensor **parts; // [n_parts]
    uint32_t n_parts, rows, cols;     // rows, cols: of one matrix
    uint32_t n_halves, half, slice_rows, slice_first;
    bool alternate;                   // the rows of the halves do
    bool transposed;                  // matrices are [cols, rows]
    const struct file_tensor *scales; // of MXFP4, whose numbers the part has; else NULL
    const struct joined_tensor *next;
};

struct model {
    const struct arch *arch;
    const struct model_file *file; // borrowed
    struct model_config config;
    void *own;                                          // the architecture's own sizes, or NULL
    enum rope_pairs pairs;                              // how this file's q and k rows pair up
    bool tied;                                          // the head is the embedding
    const struct file_tensor *tensors[N_MODEL_WEIGHTS]; // by place in struct model_weights; NULL: absent
    const struct file_tensor **layers;                  // [n_layers, n_places], by place
    const struct joined_tensor *joined;                 // the newest of a list
    bool *is_vector;                                    // [n_places]: taken as fp32, whatever its dimensions
    uint32_t n_places;  // of a layer: of struct layer_weights, then the architecture's own
    float *frequencies; // [rope.n_dims / 2] radians per position, scaling included
    float angle_scale;
    struct model_factors factors;
    uint64_t n_parameters, weight_bytes;
    uint32_t n_experts, n_used_experts; // per layer; per token; 0: the model has none
    uint64_t n_idle, idle_bytes;        // of these, not used by one token: the experts that are not chosen
};

// Finds the architecture, reads and checks the sizes, and binds every tensor. The message names what is
// missing or misshapen and what was expected. model_release frees what model_bind made.
bool model_bind(struct model *m, const struct model_file *file, struct err *err);
void model_release(struct model *m);

// Elements [first, first + n) of a tensor, joined or not, in its format; whole blocks.
void model_tensor_read(const struct file_tensor *t, uint64_t first, uint64_t n, void *to);

struct model_page { // bytes of a page of one layer
    uint64_t k, v;
};
struct model_page model_page_bytes(const struct model_config *c, enum kv_format k, enum kv_format v);

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
    const struct buffer *block;         // [max_rows, n_cols] fp32: the residual stream, in and out
    const struct buffer *history;       // [n_slots, history_stride] u32
    uint32_t history_stride;
    const struct buffer *pool;      // first stage: [n, n_cols] fp32 rows of pictures or NULL, see embed.h
    const struct buffer *logits;    // last stage: [max_outputs, n_vocab] fp32
    const struct buffer *results;   // last stage: [max_outputs] u32
    const struct buffer *mask_bias; // last stage: see ops/sample/sample.h
};
static inline const struct layer_weights *stage_layer(const struct model_stage *s, uint32_t l)
{
    return (const struct layer_weights *)(s->layers + (size_t)(l - s->first) * s->model->n_places);
}
// The architecture's own struct of pointers.
static inline const void *stage_layer_own(const struct model_stage *s, uint32_t l)
{
    return (const struct weight *const *)stage_layer(s, l) + N_LAYER_WEIGHTS;
}
void model_record(struct tape *t, const struct model_stage *s);

// Frequencies of the rotated pairs, [n_dims / 2], and the factor on cosine and sine. divisors: of each
// frequency, or NULL.
void rope_frequencies(const struct rope_config *r, const float *divisors, float *frequencies, float *scale);
// YaRN's 0.1 m ln(factor) + 1, or 1 where the context is not stretched.
float rope_yarn_factor(const struct rope_config *r, float m);
bool rope_config_read(struct rope_config *r, const struct model_file *file, const char *arch,
                      struct err *err);
