// mistral4.c - Mistral Small 4 (Mistral AI, 2026): DeepSeek's latent attention, whose queries grow with their
// position beyond the original context, and experts with a shared one, chosen by softmax without a bias.
#include "models/latent_attention.h"

static const struct config_key config[] = {
    LATENT_CONFIG,
    MIXTURE_DEEPSEEK_CONFIG,
    { CONFIG_OWN(struct latent_config, beta), .is_float = true, .gguf = "%s.attention.temperature_scale",
      .json = "rope_parameters.llama_4_scaling_beta", .max = 100, DEFAULT(0) },
};

#define EXPERTS(field, part, json_part, n_rows, n_cols, ...)                                           \
    MIXTURE_WEIGHT(field, "blk.%u.ffn_" part "_exps.weight", MIXTURE_MLP "experts." json_part, n_rows, \
                   n_cols, MIXTURE_STACK, __VA_ARGS__)

static const struct weight_key weights[] = {
    LATENT_WEIGHTS,
    MIXTURE_DENSE_WEIGHTS,
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", MIXTURE_MLP "gate.weight", MIXTURE_DIM(n_experts),
                   DIM_COLS),
    EXPERTS(gate, "gate", "gate_up_proj", MIXTURE_DIM(n_ffn), DIM_COLS, .half = 1),
    EXPERTS(up, "up", "gate_up_proj", MIXTURE_DIM(n_ffn), DIM_COLS, .half = 2),
    EXPERTS(down, "down", "down_proj", DIM_COLS, MIXTURE_DIM(n_ffn), .half = 0),
    MIXTURE_SHARED_WEIGHTS,
};

static bool complete(struct model *m, struct err *err)
{
    struct latent_config *c = m->own;
    bool gguf = model_file_format(m->file) == MODEL_GGUF;

    if (!model_file_meta(m->file, gguf ? "mistral4.expert_weights_norm" : "norm_topk_prob"))
        c->mixture.normalise = 1;
    if (!latent_attention_complete(m, err) || !mixture_complete(m, GATING_SOFTMAX, err))
        return false;
    if (c->mixture.n_groups > 1)
        return err_set(err, ERR_UNSUPPORTED, "%s: %u groups of experts; ingot runs %s models with one",
                       model_file_path(m->file), c->mixture.n_groups, m->arch->name);
    return c->mixture.gating == GATING_SOFTMAX ||
           err_set(err, ERR_UNSUPPORTED, "%s: expert_gating_func is %u; ingot runs %s models with %u",
                   model_file_path(m->file), c->mixture.gating, m->arch->name, GATING_SOFTMAX);
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    latent_attention(t, s, l, x, angles);
    mixture_or_dense_block(t, s, l, x);
}

const struct arch arch_mistral4 = { .name = "mistral4",
                                    .model_types = "mistral4",
                                    .json_prefix = "model.language_model. language_model.model.",
                                    .activations = "silu swish",
                                    ARCH_TABLES(config, weights),
                                    ARCH_OWN(struct latent_config, struct latent_weights),
                                    .complete = complete,
                                    .check = mixture_check,
                                    .scratch_cols = mixture_scratch_cols,
                                    .factors = latent_attention_factors,
                                    .layer = layer,
                                    .experts = mixture_or_dense_block };
