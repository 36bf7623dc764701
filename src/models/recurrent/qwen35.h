// qwen35.h - the sizes and tensors that Qwen3.5's dense models and those with experts share.
#pragma once
#include "models/mixture.h"
#include "ops/conv_step/conv_step.h"
#include "ops/scan/scan.h"

struct qwen35_config {
    struct mixture_config mixture; // first; unused in dense models
    uint32_t n_k_heads, n_v_heads, d_k, d_v, kernel;
    uint32_t interval;          // every so many layers one has attention
    uint32_t inner;             // GGUF's: n_v_heads * d_v
    uint32_t n_mixed, n_values; // columns of q, k and v together; of v
    uint32_t gated_head;        // rows of q and its gate in a head
};

struct qwen35_weights {
    struct mixture_weights mixture; // first
    const struct weight *q_gate;
    const struct weight *mixed, *z, *beta, *alpha, *conv, *a, *dt_bias, *norm, *out;
};

#define QWEN35_DIM(field) OWN_DIM(struct qwen35_config, field)
#define QWEN35_SIZE(field, gguf_name, json_name, largest, ...)                                   \
    {                                                                                            \
        CONFIG_OWN(struct qwen35_config, field), .gguf = gguf_name, .json = json_name, .min = 1, \
                                                 .max = largest, __VA_ARGS__                     \
    }
#define QWEN35_CONFIG                                                                                        \
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),                               \
        SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),                             \
        SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),                 \
        SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, REQUIRED),           \
        SIZE_KEY(head_dim, "%s.attention.key_length", "head_dim", 512, REQUIRED),                            \
        SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),                               \
        SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(2048)),         \
        FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 1, REQUIRED),      \
        { CONFIG_AT(n_draft), .gguf = "%s.nextn_predict_layers", .json = "mtp_num_hidden_layers", .max = 64, \
          DEFAULT(0) },                                                                                      \
        QWEN35_SIZE(n_k_heads, "%s.ssm.group_count", "linear_num_key_heads", 1024, REQUIRED),                \
        QWEN35_SIZE(n_v_heads, "%s.ssm.time_step_rank", "linear_num_value_heads", 1024, REQUIRED),           \
        QWEN35_SIZE(d_k, "%s.ssm.state_size", "linear_key_head_dim", SCAN_MAX_DIM, REQUIRED),                \
        QWEN35_SIZE(d_v, NULL, "linear_value_head_dim", SCAN_MAX_DIM, REQUIRED),                             \
        { CONFIG_OWN(struct qwen35_config, kernel),                                                          \
          .gguf = "%s.ssm.conv_kernel",                                                                      \
          .json = "linear_conv_kernel_dim",                                                                  \
          .min = 2,                                                                                          \
          .max = CONV_MAX_KERNEL,                                                                            \
          REQUIRED },                                                                                        \
        QWEN35_SIZE(inner, "%s.ssm.inner_size", NULL, 1 << 20, REQUIRED),                                    \
        QWEN35_SIZE(interval, "%s.full_attention_interval", "full_attention_interval", 4096, DEFAULT(4))

#define QWEN35_LAYER "model.layers.%u."
#define QWEN35_DRAFT "mtp.layers.0."
#define QWEN35_NORM(field, gguf_name, json_name, n_cols, ...)                              \
    L(field, "blk.%u." gguf_name ".weight", QWEN35_LAYER json_name ".weight", ONE, n_cols, \
      | WEIGHT_PLUS_ONE __VA_ARGS__)
#define QWEN35_OWN(field, gguf_name, json_name, n_rows, n_cols, ...)                                      \
    {                                                                                                     \
        .per_layer = true, .place = OWN_PLACE(struct qwen35_weights, field), .gguf = "blk.%u." gguf_name, \
        .json = QWEN35_LAYER "linear_attn." json_name, .rows = n_rows, .cols = n_cols,                    \
        .layers = LAYERS_STATE, __VA_ARGS__                                                               \
    }
// Heads of values lie by the head of keys that they have in common.
#define QWEN35_VALUES(n, rows_of_head, columns)                     \
    .groups = &(const struct weight_groups)                         \
    {                                                               \
        QWEN35_DIM(n), rows_of_head, QWEN35_DIM(n_k_heads), columns \
    }
// The rows of a head are q's, then its gate's, in both formats.
#define QWEN35_Q(at, is_gate)                                                               \
    {                                                                                       \
        .per_layer = true, .place = at, .gguf = "blk.%u.attn_q.weight",                     \
        .json = QWEN35_LAYER "self_attn.q_proj.weight", .rows = DIM_HEAD, .cols = DIM_COLS, \
        .stack = DIM_HEADS, .layers = LAYERS_PAGES, .slice = &(const struct weight_slice)   \
        {                                                                                   \
            "blk.%u.attn_q.weight", QWEN35_DIM(gated_head), is_gate, false                  \
        }                                                                                   \
    }
#define QWEN35_WEIGHTS                                                                                  \
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),                            \
        W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS, | WEIGHT_PLUS_ONE),           \
        W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED),                         \
        QWEN35_NORM(attn_norm, "attn_norm", "input_layernorm", COLS),                                   \
        QWEN35_Q(offsetof(struct layer_weights, q) / sizeof(void *), false),                            \
        QWEN35_Q(OWN_PLACE(struct qwen35_weights, q_gate), true),                                       \
        L(k, "blk.%u.attn_k.weight", QWEN35_LAYER "self_attn.k_proj.weight", KV, COLS,                  \
          IN_LAYERS(LAYERS_PAGES)),                                                                     \
        L(v, "blk.%u.attn_v.weight", QWEN35_LAYER "self_attn.v_proj.weight", KV, COLS,                  \
          IN_LAYERS(LAYERS_PAGES)),                                                                     \
        L(o, "blk.%u.attn_output.weight", QWEN35_LAYER "self_attn.o_proj.weight", COLS, Q,              \
          IN_LAYERS(LAYERS_PAGES)),                                                                     \
        QWEN35_NORM(q_norm, "attn_q_norm", "self_attn.q_norm", HEAD, IN_LAYERS(LAYERS_PAGES)),          \
        QWEN35_NORM(k_norm, "attn_k_norm", "self_attn.k_norm", HEAD, IN_LAYERS(LAYERS_PAGES)),          \
        QWEN35_OWN(mixed, "attn_qkv.weight", "in_proj_qkv.weight", QWEN35_DIM(n_mixed), DIM_COLS,       \
                   QWEN35_VALUES(n_values, QWEN35_DIM(d_v), false)),                                    \
        QWEN35_OWN(z, "attn_gate.weight", "in_proj_z.weight", QWEN35_DIM(n_values), DIM_COLS,           \
                   QWEN35_VALUES(n_values, QWEN35_DIM(d_v), false)),                                    \
        QWEN35_OWN(beta, "ssm_beta.weight", "in_proj_b.weight", QWEN35_DIM(n_v_heads), DIM_COLS,        \
                   QWEN35_VALUES(n_v_heads, DIM_ONE, false)),                                           \
        QWEN35_OWN(alpha, "ssm_alpha.weight", "in_proj_a.weight", QWEN35_DIM(n_v_heads), DIM_COLS,      \
                   QWEN35_VALUES(n_v_heads, DIM_ONE, false)),                                           \
        QWEN35_OWN(conv, "ssm_conv1d.weight", "conv1d.weight", QWEN35_DIM(n_mixed), QWEN35_DIM(kernel), \
                   .flags = WEIGHT_DEPTHWISE),                                                          \
        QWEN35_OWN(a, "ssm_a", "A_log", DIM_ONE, QWEN35_DIM(n_v_heads)),                                \
        QWEN35_OWN(dt_bias, "ssm_dt.bias", "dt_bias", DIM_ONE, QWEN35_DIM(n_v_heads)),                  \
        QWEN35_OWN(norm, "ssm_norm.weight", "norm.weight", DIM_ONE, QWEN35_DIM(d_v)),                   \
        QWEN35_OWN(out, "ssm_out.weight", "out_proj.weight", DIM_COLS, QWEN35_DIM(n_values),            \
                   QWEN35_VALUES(n_values, QWEN35_DIM(d_v), true)),                                     \
        QWEN35_NORM(ffn_norm, "post_attention_norm", "post_attention_layernorm", COLS)
