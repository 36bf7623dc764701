// granitemoe.c - Granite 3 with experts (IBM, 2024): Llama's attention and a mixture, with four factors: on
// the embedding, on attention's scores, on the output of each half of a layer, and on the logits. See
// granite.h.
#include "models/granite.h"
#include "models/mixture.h"

struct granite_config {
    struct mixture_config mixture; // first
    struct granite_factors factors;
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_CONFIG("num_local_experts"),
    GRANITE_FACTORS(granite_config),
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
    granite_factors_set(m, &((const struct granite_config *)m->own)->factors);
}

static void experts(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_CHOSEN, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    experts(t, s, l, x);
}

const struct arch arch_granitemoe = { .name = "granitemoe",
                                      .model_types = "granitemoe",
                                      .activations = "silu swish",
                                      ARCH_TABLES(config, weights),
                                      ARCH_OWN(struct granite_config, struct mixture_weights),
                                      .check = mixture_check,
                                      .scratch_cols = mixture_scratch_cols,
                                      .factors = factors,
                                      .layer = layer,
                                      .experts = experts };
