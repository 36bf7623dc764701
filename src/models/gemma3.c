// gemma3.c - Gemma 3 (Gemma team, 2025), its text: RMSNorms before and behind both halves of a layer, GELU,
// and the embedding, which is also the head, times the root of its width.
//
// All layers but every sixth see a window, and have a rotation of their own, which a longer context never
// stretches. Norms multiply by 1 + w: checkpoints hold w, GGUF files the sum. GGUF files say nothing of the
// scale of scores: it is that of a head, but in the model of 62 layers that of width / heads.
#include <math.h>
#include "models/blocks.h"
#include "models/binding/layer_config.h"
#include "models/encoders/encoder_layer.h"
#include "ops/rmsnorm/rmsnorm.h"

struct gemma_config {
    uint32_t period; // every so many layers one sees all
    float scale;     // of scores; in config.json its square's reciprocal
};

// config.json leaves out what is as in the 4B model.
static const struct config_key config[] = {
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),
    SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),
    SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, DEFAULT(8)),
    SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, DEFAULT(4)),
    SIZE_KEY(head_dim, "%s.attention.key_length", "head_dim", 1024, DEFAULT(256)),
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED),
    SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),
    SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(131072)),
    FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 1, DEFAULT(1e-6)),
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .max = 1 << 24,
      DEFAULT(0) },
    FLOAT_KEY(rope[1].base, "%s.rope.freq_base_swa", "rope_local_base_freq", 1, 1e12, DEFAULT(1e4)),
    { CONFIG_OWN(struct gemma_config, period), .is_period = true,
      .gguf = "%s.attention.sliding_window_pattern", .json = "sliding_window_pattern", .min = 1, .max = 4097,
      DEFAULT(6) },
    { CONFIG_OWN(struct gemma_config, scale), .is_float = true, .gguf = "%s.attention.scale",
      .json = "query_pre_attn_scalar", .max = 1e6, DEFAULT(0) },
};

#define LAYER     "model.layers.%u."
#define ATTENTION LAYER "self_attn."
#define NORM(field, gguf_name, json_name, n_cols) \
    L(field, "blk.%u." gguf_name ".weight", LAYER json_name ".weight", ONE, n_cols, | WEIGHT_PLUS_ONE)

static const struct weight_key weights[] = {
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),
    W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS, | WEIGHT_PLUS_ONE),
    W(head, "output.weight", NULL, VOCAB, COLS, | WEIGHT_TIED), // a checkpoint's lm_head is the embedding
    NORM(attn_norm, "attn_norm", "input_layernorm", COLS),
    L(q, "blk.%u.attn_q.weight", ATTENTION "q_proj.weight", Q, COLS),
    L(k, "blk.%u.attn_k.weight", ATTENTION "k_proj.weight", KV, COLS),
    L(v, "blk.%u.attn_v.weight", ATTENTION "v_proj.weight", KV, COLS),
    NORM(q_norm, "attn_q_norm", "self_attn.q_norm", HEAD),
    NORM(k_norm, "attn_k_norm", "self_attn.k_norm", HEAD),
    L(o, "blk.%u.attn_output.weight", ATTENTION "o_proj.weight", COLS, Q),
    NORM(attn_out_norm, "post_attention_norm", "post_attention_layernorm", COLS),
    NORM(ffn_norm, "ffn_norm", "pre_feedforward_layernorm", COLS),
    L(gate, "blk.%u.ffn_gate.weight", LAYER "mlp.gate_proj.weight", FFN, COLS),
    L(up, "blk.%u.ffn_up.weight", LAYER "mlp.up_proj.weight", FFN, COLS),
    L(down, "blk.%u.ffn_down.weight", LAYER "mlp.down_proj.weight", COLS, FFN),
    NORM(ffn_out_norm, "post_ffw_norm", "post_feedforward_layernorm", COLS),
    // of EmbeddingGemma
    W(embed_dense, "dense_2.weight", "2_Dense.linear.weight", HIDDEN, COLS, | 0, .when = DIM_HIDDEN),
    W(embed_out, "dense_3.weight", "3_Dense.linear.weight", VECTOR, HIDDEN, | 0, .when = DIM_HIDDEN),
};

static float scale_of(const struct model *m, float found)
{
    const struct model_config *c = &m->config;

    if (model_file_format(m->file) != MODEL_GGUF)
        return 1 / sqrtf(found > 0 ? found : 256);
    return found > 0 ? found : 1 / sqrtf((float)(c->n_layers == 62 ? c->n_cols / c->n_heads : c->head_dim));
}

static bool complete(struct model *m, struct err *err)
{
    struct gemma_config *c = m->own;
    double base = (double)m->config.rope[1].base;

    if (!layer_config_types(m, &c->period, err) ||
        !model_file_f64(m->file, "rope_parameters.sliding_attention.rope_theta", 1, 1e12, &base, err))
        return false;
    m->config.rope[0].base = 1e6f; // where the file has none
    m->config.rope[1].base = (float)base;
    c->scale = scale_of(m, c->scale);
    return true;
}

static bool layers(struct model *m, struct err *err)
{
    const struct gemma_config *c = m->own;

    (void)err;
    m->config.rope[1].n_dims = m->config.rope[0].n_dims;
    layer_config_windows(m, m->config.window ? c->period : 1, 1);
    return true;
}

// Files may say more than these models have.
static bool check(const struct model *m, struct err *err)
{
    return (m->arch->is_encoder || model_lacks(m, "use_bidirectional_attention", err)) &&
           model_lacks(m, "attn_logit_softcapping", err) && model_lacks(m, "final_logit_softcapping", err) &&
           model_lacks(m, "gemma3.attn_logit_softcapping", err) &&
           model_lacks(m, "gemma3.final_logit_softcapping", err) &&
           model_lacks(m, "rope_parameters.sliding_attention.factor", err);
}

static void factors(struct model *m)
{
    m->factors.embed = sqrtf((float)m->config.n_cols);
    m->factors.attend = ((const struct gemma_config *)m->own)->scale;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_GELU_TANH);
}

const struct arch arch_gemma3 = { .name = "gemma3",
                                  .model_types = "gemma3_text gemma3",
                                  .json_prefix = "model.language_model. language_model.model.",
                                  .activations = "gelu_pytorch_tanh gelu_tanh",
                                  .rope_part = "full_attention",
                                  ARCH_TABLES(config, weights),
                                  .own_config_bytes = sizeof(struct gemma_config),
                                  .complete = complete,
                                  .layers = layers,
                                  .check = check,
                                  .factors = factors,
                                  .layer = layer };

// EmbeddingGemma (Vera et al., 2025): every row sees all others, or those at most half the window away.
static void embedding_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                            struct tensor angles)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor n = tape_tensor(t, x.n_cols, ROWS_STEP);

    tape_label(t, "layer%u.attn_norm", l);
    op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = x, .scale = w->attn_norm, .eps = s->model->factors.eps });
    block_attended(t, s, l, x, encoder_attend(t, s, l, n, angles, stage_layer_config(s, l)->window / 2));
    block_gated_ffn(t, s, l, x, ACTIVATION_GELU_TANH);
}

const struct arch arch_gemma_embedding = { .name = "gemma-embedding",
                                           .model_types = "gemma3_text",
                                           .json_with = "use_bidirectional_attention",
                                           .activations = "gelu_pytorch_tanh gelu_tanh",
                                           .rope_part = "full_attention",
                                           .is_encoder = true,
                                           ARCH_TABLES(config, weights),
                                           .own_config_bytes = sizeof(struct gemma_config),
                                           .complete = complete,
                                           .layers = layers,
                                           .check = check,
                                           .factors = factors,
                                           .layer = embedding_layer };
