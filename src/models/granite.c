// granite.c - Granite 3 and 4 without experts (IBM, 2024 and 2025): the Llama decoder with four factors, see
// granite.h. Granite 4 has a variant without positions.
#include "models/granite.h"
#include "models/blocks.h"

struct granite_dense {
    struct granite_factors factors;
    uint32_t rotates; // GGUF says it so; in config.json such models have another model_type
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    GRANITE_FACTORS(granite_dense),
    { CONFIG_OWN(struct granite_dense, rotates), .is_bool = true, .gguf = "%s.rope.scaling.finetuned",
      .max = 1, DEFAULT(1) },
};

static const struct weight_key weights[] = {
    DECODER_WEIGHTS(WEIGHT_ROPE_PAIRED),
    QKV_BIASES(WEIGHT_OPTIONAL | WEIGHT_ROPE_PAIRED), // attention_bias
    L(o_bias, "blk.%u.attn_output.bias", "model.layers.%u.self_attn.o_proj.bias", ONE, COLS,
      | WEIGHT_OPTIONAL),
};

void granite_factors_set(struct model *m, const struct granite_factors *f)
{
    m->factors.embed = f->embed / f->residual;
    m->factors.attend = f->attention;
    m->factors.eps /= f->residual * f->residual;
    m->factors.head = 1 / f->logits;
}

static void factors(struct model *m)
{
    const struct granite_dense *c = m->own;

    granite_factors_set(m, &c->factors);
    if (!c->rotates)
        m->config.rope[0].type = ROPE_NONE;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_granite = { .name = "granite",
                                   .model_types = "granite",
                                   .activations = "silu swish",
                                   ARCH_TABLES(config, weights),
                                   .own_config_bytes = sizeof(struct granite_dense),
                                   .factors = factors,
                                   .layer = layer };
