// granitemoe.c - Granite 3 with experts (IBM, 2024): Llama's attention and a mixture, with four factors: on
// the embedding, on attention's scores, on the output of each half of a layer, and on the logits.
//
// The factor m on the halves' outputs needs no kernel: the residual stream is kept divided by m. The
// embedding is divided once, outputs stay as they are, and norm(m x, eps) = norm(x, eps / m^2).
#include "models/mixture.h"

struct granite_config {
    struct mixture_config mixture; // first
    float embed, residual, attention, logits;
};

#define FACTOR(field, gguf_name, json_name)                                                               \
    {                                                                                                     \
        CONFIG_OWN(struct granite_config, field), .is_float = true, .gguf = gguf_name, .json = json_name, \
                                                  .min = 1e-6, .max = 1e6, REQUIRED                       \
    }

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_CONFIG("num_local_experts"),
    FACTOR(embed, "%s.embedding_scale", "embedding_multiplier"),
    FACTOR(residual, "%s.residual_scale", "residual_multiplier"),
    FACTOR(attention, "%s.attention.scale", "attention_multiplier"),
    FACTOR(logits, "%s.logit_scale", "logits_scaling"),
};

#define EXPERTS_OF "model.layers.%u.block_sparse_moe."
static const struct weight_key weights[] = {
    DECODER_ATTENTION(WEIGHT_ROPE_PAIRED),
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", EXPERTS_OF "router.layer.weight",
                   MIXTURE_DIM(n_experts), DIM_COLS),
    MIXTURE_WEIGHT(gate, "blk.%u.ffn_gate_exps.weight", EXPERTS_OF "input_linear.weight", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, .half = 1),
    MIXTURE_WEIGHT(up, "blk.%u.ffn_up_exps.weight", EXPERTS_OF "input_linear.weight", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, .half = 2),
    MIXTURE_WEIGHT(down, "blk.%u.ffn_down_exps.weight", EXPERTS_OF "output_linear.weight", DIM_COLS,
                   MIXTURE_DIM(n_ffn), MIXTURE_STACK),
};

static void factors(struct model *m)
{
    const struct granite_config *c = m->own;

    m->factors.embed = c->embed / c->residual;
    m->factors.attend = c->attention;
    m->factors.eps /= c->residual * c->residual;
    m->factors.head = 1 / c->logits;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_CHOSEN, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

const struct arch arch_granitemoe = { .name = "granitemoe",
                                      .model_types = "granitemoe",
                                      .activations = "silu swish",
                                      ARCH_TABLES(config, weights),
                                      ARCH_OWN(struct granite_config, struct mixture_weights),
                                      .check = mixture_check,
                                      .scratch_cols = mixture_scratch_cols,
                                      .factors = factors,
                                      .layer = layer };
