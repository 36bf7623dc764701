// latent_attention.h - multi-head latent attention (MLA; DeepSeek-AI, 2024) as a half of a layer, and the
// sizes and weights that models with it share.
//
// A token's keys and values of all heads come from one latent vector and one rotated key, which is what a
// page holds. The matrices that would expand them are absorbed: queries are multiplied into the latent space,
// what attention yields out of it. Files hold the two as attn_k_b and attn_v_b (GGUF since llama.cpp's PR
// 12801), or as one, kv_b; that is parted and its half transposed at load.
#pragma once
#include "models/mixture.h"

struct latent_config {
    struct mixture_config mixture; // first
    uint32_t latent, q_latent;     // numbers of a token's latent; of its queries' latent, or 0
    uint32_t key, value;           // numbers of a head's query and value, as they would be expanded
    uint32_t nope, rotated;        // of a query: not rotated, rotated
    uint32_t old_key, old_value;   // GGUF's key_length and value_length, which once were the expanded ones
    uint32_t n_heads, plain_q;     // plain_q: 1 where queries have no latent
    float beta;                    // of op_temper on queries; 0: they stay as they are
    uint32_t n_q, n_kv, n_out, kv_b_rows; // of all heads' queries; of latent and rotated key; of all heads'
                                          // values; of a head's keys and values
};

struct latent_weights {
    struct mixture_weights mixture; // first
    const struct weight *q_a, *q_a_norm, *q_b, *q, *kv_a, *kv_a_norm, *k_b, *v_b;
};

#define LATENT_SIZE(field, gguf_name, json_name, largest, ...)                                         \
    {                                                                                                  \
        CONFIG_OWN(struct latent_config, field), .gguf = gguf_name, .json = json_name, .max = largest, \
                                                 __VA_ARGS__                                           \
    }
#define LATENT_CONFIG                                                                                   \
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),                          \
        SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),                        \
        SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),            \
        SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED),              \
        SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),                          \
        SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(2048)),    \
        FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 1, REQUIRED), \
        SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", NULL, 4096, DEFAULT(1)),                     \
        LATENT_SIZE(latent, "%s.attention.kv_lora_rank", "kv_lora_rank", MODEL_TURNED_ROWS, .min = 2,   \
                    REQUIRED),                                                                          \
        LATENT_SIZE(q_latent, "%s.attention.q_lora_rank", "q_lora_rank", 65536, DEFAULT(0)),            \
        LATENT_SIZE(key, "%s.attention.key_length_mla", NULL, 4096, DEFAULT(0)),                        \
        LATENT_SIZE(value, "%s.attention.value_length_mla", "v_head_dim", 4096, DEFAULT(0)),            \
        LATENT_SIZE(old_key, "%s.attention.key_length", NULL, 8192, DEFAULT(0)),                        \
        LATENT_SIZE(old_value, "%s.attention.value_length", NULL, 4096, DEFAULT(0)),                    \
        LATENT_SIZE(nope, NULL, "qk_nope_head_dim", 4096, DEFAULT(0)),                                  \
        LATENT_SIZE(rotated, NULL, "qk_rope_head_dim", 1024, DEFAULT(0))

#define LATENT_DIM(field) OWN_DIM(struct latent_config, field)
#define LATENT_WEIGHT(field, gguf_part, json_part, n_rows, n_cols, ...)                                   \
    {                                                                                                     \
        .per_layer = true, .place = OWN_PLACE(struct latent_weights, field), .gguf = "blk.%u." gguf_part, \
        .json = "model.layers.%u.self_attn." json_part, .rows = n_rows, .cols = n_cols, __VA_ARGS__       \
    }
#define LATENT_SLICE(is_last, is_transposed)                                     \
    .stack = LATENT_DIM(n_heads), .slice = &(const struct weight_slice)          \
    {                                                                            \
        "blk.%u.attn_kv_b.weight", LATENT_DIM(kv_b_rows), is_last, is_transposed \
    }
#define LATENT_WEIGHTS                                                                                       \
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),                                 \
        W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS),                                   \
        W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED),                              \
        L(attn_norm, "blk.%u.attn_norm.weight", "model.layers.%u.input_layernorm.weight", ONE, COLS),        \
        L(ffn_norm, "blk.%u.ffn_norm.weight", "model.layers.%u.post_attention_layernorm.weight", ONE, COLS), \
        LATENT_WEIGHT(q, "attn_q.weight", "q_proj.weight", LATENT_DIM(n_q), DIM_COLS,                        \
                      .when = LATENT_DIM(plain_q)),                                                          \
        LATENT_WEIGHT(q_a, "attn_q_a.weight", "q_a_proj.weight", LATENT_DIM(q_latent), DIM_COLS,             \
                      .when = LATENT_DIM(q_latent)),                                                         \
        LATENT_WEIGHT(q_a_norm, "attn_q_a_norm.weight", "q_a_layernorm.weight", DIM_ONE,                     \
                      LATENT_DIM(q_latent), .when = LATENT_DIM(q_latent)),                                   \
        LATENT_WEIGHT(q_b, "attn_q_b.weight", "q_b_proj.weight", LATENT_DIM(n_q), LATENT_DIM(q_latent),      \
                      .when = LATENT_DIM(q_latent)),                                                         \
        LATENT_WEIGHT(kv_a, "attn_kv_a_mqa.weight", "kv_a_proj_with_mqa.weight", LATENT_DIM(n_kv),           \
                      DIM_COLS),                                                                             \
        LATENT_WEIGHT(kv_a_norm, "attn_kv_a_norm.weight", "kv_a_layernorm.weight", DIM_ONE,                  \
                      LATENT_DIM(latent)),                                                                   \
        LATENT_WEIGHT(k_b, "attn_k_b.weight", "kv_b_proj.weight", LATENT_DIM(latent), LATENT_DIM(nope),      \
                      LATENT_SLICE(false, true)),                                                            \
        LATENT_WEIGHT(v_b, "attn_v_b.weight", "kv_b_proj.weight", LATENT_DIM(value), LATENT_DIM(latent),     \
                      LATENT_SLICE(true, false)),                                                            \
    {                                                                                                        \
        .per_layer = true, .place = offsetof(struct layer_weights, o) / sizeof(void *),                      \
        .gguf = "blk.%u.attn_output.weight", .json = "model.layers.%u.self_attn.o_proj.weight",              \
        .rows = DIM_COLS, .cols = LATENT_DIM(n_out)                                                          \
    }

// The sizes that follow from the file's, whichever way it says them.
bool latent_attention_complete(struct model *m, struct err *err);
// The factor on scores: that of the expanded query's length, and of YaRN.
void latent_attention_factors(struct model *m);
// x += attention(x) Wo^T
void latent_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                      struct tensor angles);
