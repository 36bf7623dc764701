// smollm3.c - SmolLM3 (Hugging Face, 2025): the Llama decoder without positions in every fourth layer.
#include "models/blocks.h"

enum { PERIOD = 4 }; // GGUF files do not say it

static const struct config_key config[] = { DECODER_CONFIG };
static const struct weight_key weights[] = { DECODER_WEIGHTS(WEIGHT_ROPE_PAIRED) };

static bool rotates(uint32_t l)
{
    return (l + 1) % PERIOD != 0;
}

static bool layers(struct model *m, struct err *err)
{
    (void)err;
    m->config.rope[1] = (struct rope_config){ .type = ROPE_NONE, .n_dims = m->config.rope[0].n_dims };
    for (uint32_t l = 0; l < m->config.n_layers; l++)
        m->layer_configs[l].rope = !rotates(l);
    return true;
}

// config.json has a 1 for each layer with positions.
static bool check(const struct model *m, struct err *err)
{
    const struct meta *list = model_file_meta(m->file, "no_rope_layers");
    uint64_t period = PERIOD;

    if (!list && !model_file_u64(m->file, "no_rope_layer_interval", 0, UINT32_MAX, &period, err))
        return false;
    for (uint32_t l = 0; list && list->type == META_ARRAY && l < list->n; l++) {
        struct meta rotated = meta_at(list, l);
        if (l >= m->config.n_layers || rotated.type != META_UINT || rotated.u != rotates(l))
            period = 0;
    }
    return period == PERIOD ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: %s does not leave out the positions of every layer number %u alone; "
                   "ingot runs smollm3 models which do",
                   model_file_path(m->file), list ? "no_rope_layers" : "no_rope_layer_interval", PERIOD);
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_smollm3 = { .name = "smollm3",
                                   .model_types = "smollm3",
                                   .activations = "silu swish",
                                   ARCH_TABLES(config, weights),
                                   .layers = layers,
                                   .check = check,
                                   .layer = layer };
