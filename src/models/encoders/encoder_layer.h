// encoder_layer.h - what encoders share, in which every row of a text sees every other.
#pragma once
#include "models/blocks.h"

// q, k and v of `in`, normalised head by head where the layer has such norms and rotated where angles.id is
// not 0, then attention over the text's rows, at most `reach` away if that is not 0. Returns [rows, heads *
// head_dim].
struct tensor encoder_attend(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor in,
                             struct tensor angles, uint32_t reach);

// ---- of those with a LayerNorm behind each half of a layer

struct encoder_config {
    uint32_t n_positions, n_skipped; // rows of the table of positions, and those before the first one's
    uint32_t n_types;
};
struct encoder_weights {
    const struct weight *attn_norm_bias, *ffn_norm_bias, *up_bias, *down_bias;
};
enum {
    DIM_POSITIONS = OWN_DIM(struct encoder_config, n_positions),
    DIM_SKIPPED = OWN_DIM(struct encoder_config, n_skipped),
    DIM_TYPES = OWN_DIM(struct encoder_config, n_types)
};

#define ENCODER_CONFIG(json_context)                                                                       \
    SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),                                 \
        SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, SAME_AS(n_heads)), \
        SIZE_KEY(head_dim, "%s.attention.key_length", "head_dim", 1024, RATIO(n_cols, n_heads)),           \
        SIZE_KEY(n_context, "%s.context_length", json_context, 1 << 24, DEFAULT(512))

#define ENCODER_OWN(field, gguf_name, json_name, n_cols) \
    WEIGHT_KEY(OWN_PLACE(struct encoder_weights, field), true, gguf_name, json_name, ONE, n_cols)
#define ENCODER_OWN_OPTIONAL(field, gguf_name, json_name, n_cols)                                 \
    WEIGHT_KEY(OWN_PLACE(struct encoder_weights, field), true, gguf_name, json_name, ONE, n_cols, \
               | WEIGHT_OPTIONAL)
#define ENCODER_NORM(field, gguf_name, json_name)                                       \
    L(field##_out_norm, "blk.%u." gguf_name ".weight", json_name ".weight", ONE, COLS), \
        ENCODER_OWN(field##_norm_bias, "blk.%u." gguf_name ".bias", json_name ".bias", COLS)
#define ENCODER_TYPES                                                                                      \
    W(type_embed, "token_types.weight", "model.embeddings.token_type_embeddings.weight", TYPES, COLS, | 0, \
      .when = DIM_TYPES)

// Rows of the tensor under this name of the format's, or with the checkpoint's prefix before it; 0: there is
// none.
uint64_t encoder_rows(const struct model *m, const char *gguf, const char *json);
bool encoder_read_types(struct model *m, struct err *err);     // config's n_types
bool encoder_sees_all(const struct model *m, struct err *err); // or it is an error
// The whole layer; with a gate where the model has one, else with GELU.
void encoder_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct tensor angles);
