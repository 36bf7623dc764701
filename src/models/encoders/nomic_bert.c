// nomic_bert.c - Nomic's BERT (Nussbaum et al., 2024): queries and keys rotate instead of positions, q, k and
// v are one matrix, and there is a gate, or GELU where a GGUF file has none. No biases but those of the
// norms.
#include "models/encoders/encoder_layer.h"

static const struct config_key nomic_keys[] = {
    SIZE_KEY(n_layers, "%s.block_count", "n_layer", 4096, REQUIRED),
    SIZE_KEY(n_cols, "%s.embedding_length", "n_embd", 65536, REQUIRED),
    SIZE_KEY(n_heads, "%s.attention.head_count", "n_head", 4096, REQUIRED),
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "n_inner", 1 << 20, REQUIRED),
    FLOAT_KEY(norm_eps, "%s.attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-15, 1, DEFAULT(1e-12)),
    FLOAT_KEY(rope[0].base, "%s.rope.freq_base", "rotary_emb_base", 1, 1e12, DEFAULT(1e4)),
    ENCODER_CONFIG("n_positions"),
};

#define NOMIC "model.encoder.layers.%u."
#define QKV_PART(field, number)                                                \
    L(field, "blk.%u.attn_qkv.weight", NOMIC "attn.Wqkv.weight", Q, COLS, | 0, \
      .part = &(const struct weight_rows){ { DIM_Q, DIM_KV, DIM_KV }, 3, number })

static const struct weight_key nomic_tensors[] = {
    W(embed, "token_embd.weight", "model.embeddings.word_embeddings.weight", VOCAB, COLS),
    ENCODER_TYPES,
    W(embed_norm, "token_embd_norm.weight", "model.emb_ln.weight", ONE, COLS),
    W(embed_norm_bias, "token_embd_norm.bias", "model.emb_ln.bias", ONE, COLS),
    QKV_PART(q, 0),
    QKV_PART(k, 1),
    QKV_PART(v, 2),
    L(o, "blk.%u.attn_output.weight", NOMIC "attn.out_proj.weight", COLS, Q),
    L(o_bias, "blk.%u.attn_output.bias", NOMIC "attn.out_proj.bias", ONE, COLS, | WEIGHT_OPTIONAL),
    ENCODER_NORM(attn, "attn_output_norm", NOMIC "norm1"),
    L(up, "blk.%u.ffn_up.weight", NOMIC "mlp.fc11.weight", FFN, COLS),
    L(gate, "blk.%u.ffn_gate.weight", NOMIC "mlp.fc12.weight", FFN, COLS, | WEIGHT_OPTIONAL),
    ENCODER_OWN_OPTIONAL(up_bias, "blk.%u.ffn_up.bias", NOMIC "mlp.fc11.bias", FFN),
    L(down, "blk.%u.ffn_down.weight", NOMIC "mlp.fc2.weight", COLS, FFN),
    ENCODER_OWN_OPTIONAL(down_bias, "blk.%u.ffn_down.bias", NOMIC "mlp.fc2.bias", COLS),
    ENCODER_NORM(ffn, "layer_output_norm", NOMIC "norm2"),
};

static bool nomic_check(const struct model *m, struct err *err)
{
    static const char *const others[] = { "prenorm",       "rotary_emb_interleaved", "rotary_scaling_factor",
                                          "qkv_proj_bias", "rotary_emb_scale_base",  "num_experts",
                                          "use_rms_norm" };
    struct str activation = STR("swiglu");
    double part = 1;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!model_lacks(m, others[i], err))
            return false;
    if (!encoder_sees_all(m, err) || !model_file_f64(m->file, "rotary_emb_fraction", 1, 1, &part, err) ||
        !model_file_string(m->file, "activation_function", &activation, err))
        return false;
    return str_is(activation, "swiglu") ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: activation_function is \"%.*s\"; ingot reads checkpoints with swiglu",
                   model_file_path(m->file), STR_ARG(activation));
}

const struct arch arch_nomic_bert = { .name = "nomic-bert",
                                      .model_types = "nomic_bert",
                                      .activations = "gelu",
                                      .is_encoder = true,
                                      .gguf_differs = true,
                                      ARCH_TABLES(nomic_keys, nomic_tensors),
                                      ARCH_OWN(struct encoder_config, struct encoder_weights),
                                      .complete = encoder_read_types,
                                      .check = nomic_check,
                                      .layer = encoder_layer };
