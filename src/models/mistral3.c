// mistral3.c - Ministral 3 and Devstral 2 (Mistral AI, 2025), and the language half of Mistral Small 3.1 as a
// checkpoint: the Llama decoder, whose queries grow with their position beyond the original context.
#include "models/blocks.h"
#include "ops/temper/temper.h"

struct ministral_config {
    float beta; // of op_temper; 0: queries stay as they are
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .max = 1 << 24,
      DEFAULT(0) },
    { CONFIG_OWN(struct ministral_config, beta), .is_float = true, .gguf = "%s.attention.temperature_scale",
      .json = "rope_parameters.llama_4_scaling_beta", .max = 100, DEFAULT(0) },
};

static const struct weight_key weights[] = { DECODER_WEIGHTS(WEIGHT_ROPE_PAIRED) };

// A shorter context never leaves the first period.
static bool tempers(const struct model_stage *s)
{
    const struct ministral_config *c = s->model->own;
    return c->beta > 0 && s->history_stride > s->model->config.rope[0].original_context;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    const struct ministral_config *c = s->model->own;
    struct tensor q = block_qkv(t, s, l, x, angles);

    if (tempers(s))
        op_temper(
            t, (struct temper){
                   .out = q, .in = q, .beta = c->beta, .period = s->model->config.rope[0].original_context });
    block_attend(t, s, l, x, (struct attend){ .q = q, .window = stage_layer_config(s, l)->window });
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_mistral3 = { .name = "mistral3",
                                    .model_types = "mistral3 ministral3",
                                    .json_prefix = "model.language_model. language_model.model.",
                                    .activations = "silu swish",
                                    ARCH_TABLES(config, weights),
                                    .own_config_bytes = sizeof(struct ministral_config),
                                    .layer = layer };
