// blocks.h - the halves of a layer that many architectures share.
#pragma once
#include "models/arch.h"
#include "ops/attend/attend.h"

// The keys and tensors of a pre-norm decoder with RoPE, GQA and a gated feed-forward block, as GGUF and
// Hugging Face name them.
#define DECODER_CONFIG                                                                                       \
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),                               \
        SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),                             \
        SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),                 \
        SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, SAME_AS(n_heads),    \
                 PER_LAYER(n_kv_heads)),                                                                     \
        SIZE_KEY(head_dim, "%s.attention.key_length", "head_dim", 1024, RATIO(n_cols, n_heads)),             \
        SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED, PER_LAYER(n_ffn)), \
        SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),                               \
        SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(2048)),         \
        FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 1, REQUIRED)

#define DECODER_TOP                                                             \
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),    \
        W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS),      \
        W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED), \
        W(rope_divisors, "rope_freqs.weight", NULL, ONE, PAIRS, | WEIGHT_OPTIONAL)
#define DECODER_PROJECTIONS(q_k_flags)                                                                  \
    L(q, "blk.%u.attn_q.weight", "model.layers.%u.self_attn.q_proj.weight", Q, COLS, | q_k_flags),      \
        L(k, "blk.%u.attn_k.weight", "model.layers.%u.self_attn.k_proj.weight", KV, COLS, | q_k_flags), \
        L(v, "blk.%u.attn_v.weight", "model.layers.%u.self_attn.v_proj.weight", KV, COLS),              \
        L(o, "blk.%u.attn_output.weight", "model.layers.%u.self_attn.o_proj.weight", COLS, Q)

// gguf_ffn_norm: some architectures call the norm before the feed-forward block post_attention_norm.
#define DECODER_ATTENTION_NORM(q_k_flags, gguf_ffn_norm)                                              \
    DECODER_TOP,                                                                                      \
        L(attn_norm, "blk.%u.attn_norm.weight", "model.layers.%u.input_layernorm.weight", ONE, COLS), \
        DECODER_PROJECTIONS(q_k_flags),                                                               \
        L(ffn_norm, gguf_ffn_norm, "model.layers.%u.post_attention_layernorm.weight", ONE, COLS)
#define DECODER_ATTENTION(q_k_flags) DECODER_ATTENTION_NORM(q_k_flags, "blk.%u.ffn_norm.weight")

#define DECODER_FFN                                                                       \
    L(gate, "blk.%u.ffn_gate.weight", "model.layers.%u.mlp.gate_proj.weight", FFN, COLS), \
        L(up, "blk.%u.ffn_up.weight", "model.layers.%u.mlp.up_proj.weight", FFN, COLS),   \
        L(down, "blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight", COLS, FFN)
#define DECODER_WEIGHTS(q_k_flags) DECODER_ATTENTION(q_k_flags), DECODER_FFN

// Gate and up in one matrix.
#define DECODER_FFN_PART(field, number)                                                         \
    L(field, "blk.%u.ffn_up.weight", "model.layers.%u.mlp.gate_up_proj.weight", FFN, COLS, | 0, \
      .part = &(const struct weight_rows){ { DIM_FFN, DIM_FFN }, 2, number })
#define DECODER_FUSED_FFN                               \
    DECODER_FFN_PART(gate, 0), DECODER_FFN_PART(up, 1), \
        L(down, "blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight", COLS, FFN)

#define QKV_BIASES(flags)                                                                             \
    L(q_bias, "blk.%u.attn_q.bias", "model.layers.%u.self_attn.q_proj.bias", ONE, Q, | (flags)),      \
        L(k_bias, "blk.%u.attn_k.bias", "model.layers.%u.self_attn.k_proj.bias", ONE, KV, | (flags)), \
        L(v_bias, "blk.%u.attn_v.bias", "model.layers.%u.self_attn.v_proj.bias", ONE, KV,             \
          | ((flags) & ~WEIGHT_ROPE_PAIRED))

// Projects norm(x) to q, rotated, and stores k and v.
struct tensor block_qkv(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                        struct tensor angles);
// The same where q_norm and k_norm are of all heads at once. Without attn_norm x is projected as it is.
struct tensor block_qkv_whole(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                              struct tensor angles);
// Of a layer whose values are normalised head by head, without weights (Gemma 4), and are the keys before
// their norm where it has no projection of values. Where the layer reads another's pages, it projects q
// alone.
struct tensor block_qkv_normed_values(struct tape *t, const struct model_stage *s, uint32_t l,
                                      struct tensor x, struct tensor angles);
// x += attend(a) Wo^T (+ bias), or the norm of that where the layer has attn_out_norm. Of a, the caller gives
// q and whatever the layer has of its own: window, sinks.
void block_attend(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x, struct attend a);
// The second half of that.
void block_attended(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                    struct tensor attended);
// Both, in a layer without anything of its own.
void block_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                     struct tensor angles);
// Where ranks have a part of every layer each (model.n_ranks), their parts of a product are added up. What is
// added to the product is added on the first rank alone: `add` there, else no tensor.
struct tensor block_rank_add(const struct model_stage *s, struct tensor add);
// Room for a product whose sum over all ranks is read in its stead, and the sum.
struct tensor block_rank_tensor(struct tape *t, const struct model_stage *s, uint32_t n_cols);
void block_rank_sum(struct tape *t, const struct model_stage *s, struct tensor v);
// x += f(norm(x) Wgate^T) * (norm(x) Wup^T) Wdown^T, or the norm of that where the layer has ffn_out_norm
void block_gated_ffn(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                     enum activation activation);
