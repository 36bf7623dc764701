// deepseek2.c - DeepSeek V2, V3 and their kin (DeepSeek-AI, 2024), GLM-4.7-Flash (Zhipu AI, 2026): latent
// attention, some dense layers, then mixtures with shared experts. One architecture in GGUF, three model
// types in checkpoints.
//
// V2 scores experts by softmax, "greedy" over all or over the groups with the best experts. V3 and GLM score
// by sigmoid, choose with a correction bias, groups by their two best, and normalise.
#include "models/latent_attention.h"

static const struct config_key config[] = { LATENT_CONFIG, MIXTURE_DEEPSEEK_CONFIG };

static const struct weight_key weights[] = { LATENT_WEIGHTS, MIXTURE_DEEPSEEK_WEIGHTS };

// What V2's checkpoints say in words.
static bool read_method(struct model *m, struct err *err)
{
    struct mixture_config *c = m->own;
    struct str method = { 0 }, type = { 0 };

    if (!model_file_string(m->file, "topk_method", &method, err) ||
        !model_file_string(m->file, "model_type", &type, err))
        return false;
    if (!str_is(type, "deepseek_v2"))
        return mixture_complete(m, GATING_SIGMOID, err);
    if (method.n && !model_one_of("greedy group_limited_greedy", method))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: topk_method is \"%.*s\"; ingot knows greedy and group_limited_greedy",
                       model_file_path(m->file), STR_ARG(method));
    if (!str_is(method, "group_limited_greedy"))
        c->n_groups = c->n_used_groups = 1;
    c->normalise = 0; // whatever norm_topk_prob says: the reference implementation does not read it
    return mixture_complete(m, GATING_SOFTMAX, err);
}

static bool complete(struct model *m, struct err *err)
{
    bool gguf = model_file_format(m->file) == MODEL_GGUF;

    return latent_attention_complete(m, err) &&
           (gguf ? mixture_complete(m, GATING_UNKNOWN, err) : read_method(m, err));
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    latent_attention(t, s, l, x, angles);
    mixture_or_dense_block(t, s, l, x);
}

const struct arch arch_deepseek2 = { .name = "deepseek2",
                                     .model_types = "deepseek_v2 deepseek_v3 glm4_moe_lite",
                                     .activations = "silu swish",
                                     ARCH_TABLES(config, weights),
                                     ARCH_OWN(struct latent_config, struct latent_weights),
                                     .complete = complete,
                                     .drafts = true,
                                     .check = mixture_check,
                                     .scratch_cols = mixture_scratch_cols,
                                     .factors = latent_attention_factors,
                                     .layer = layer,
                                     .experts = mixture_or_dense_block };
