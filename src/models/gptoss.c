// gptoss.c - gpt-oss (OpenAI, 2025): GQA with a sink for each head, biases everywhere, a window on every
// other layer, and a mixture in every layer whose activation is clamped.
//
// Checkpoints hold an expert's gate and up with alternating rows, as MXFP4 (blocks and scales apart) or as
// plain numbers with columns first. GGUF files say nothing of two rules that this architecture always has:
// which layers have the window, and that YaRN's ramp does not begin and end at whole pairs.
#include "models/binding/layer_config.h"
#include "models/mixture.h"

struct gptoss_weights {             // all pointers
    struct mixture_weights mixture; // first
    const struct weight *sinks;
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_CONFIG("num_local_experts"),
    SIZE_KEY(window, "%s.attention.sliding_window", "sliding_window", 1 << 24, REQUIRED),
    { CONFIG_OWN(struct mixture_config, limit), .is_float = true, .gguf = "%s.swiglu_limit",
      .json = "swiglu_limit", .min = 1e-3, .max = 1e6, DEFAULT(7) },
};

#define EXPERTS_OF "model.layers.%u.mlp.experts."
// An expert's matrix and its bias.
#define EXPERT_MATRIX(field, gguf_name, json_name, n_rows, n_cols, more_flags, ...)                    \
    MIXTURE_WEIGHT(field, gguf_name ".weight", EXPERTS_OF json_name, n_rows, n_cols, MIXTURE_STACK,    \
                   .flags = WEIGHT_TRANSPOSED | WEIGHT_MXFP4 | (more_flags), __VA_ARGS__),             \
        MIXTURE_WEIGHT(field##_bias, gguf_name ".bias", EXPERTS_OF json_name "_bias", n_rows, DIM_ONE, \
                       MIXTURE_STACK, .flags = (more_flags), __VA_ARGS__)

static const struct weight_key weights[] = {
    DECODER_ATTENTION_NORM(0, "blk.%u.post_attention_norm.weight"),
    QKV_BIASES(0),
    L(o_bias, "blk.%u.attn_output.bias", "model.layers.%u.self_attn.o_proj.bias", ONE, COLS),
    { .per_layer = true,
      .place = OWN_PLACE(struct gptoss_weights, sinks),
      .gguf = "blk.%u.attn_sinks.weight",
      .json = "model.layers.%u.self_attn.sinks",
      .rows = DIM_ONE,
      .cols = DIM_HEADS },
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", "model.layers.%u.mlp.router.weight",
                   MIXTURE_DIM(n_experts), DIM_COLS),
    MIXTURE_WEIGHT(router_bias, "blk.%u.ffn_gate_inp.bias", "model.layers.%u.mlp.router.bias", DIM_ONE,
                   MIXTURE_DIM(n_experts)),
    EXPERT_MATRIX(gate, "blk.%u.ffn_gate_exps", "gate_up_proj", MIXTURE_DIM(n_ffn), DIM_COLS,
                  WEIGHT_ALTERNATE, .half = 1),
    EXPERT_MATRIX(up, "blk.%u.ffn_up_exps", "gate_up_proj", MIXTURE_DIM(n_ffn), DIM_COLS, WEIGHT_ALTERNATE,
                  .half = 2),
    EXPERT_MATRIX(down, "blk.%u.ffn_down_exps", "down_proj", DIM_COLS, MIXTURE_DIM(n_ffn), 0, .half = 0),
};

enum { PERIOD = 2 }; // layers that see all

static bool layers(struct model *m, struct err *err)
{
    (void)err;
    layer_config_windows(m, PERIOD, 0);
    return true;
}

// config.json names each layer's kind.
static bool check(const struct model *m, struct err *err)
{
    uint32_t period = PERIOD;

    if (!layer_config_types(m, &period, err))
        return false;
    if (period != PERIOD)
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: layer_types puts the window elsewhere; ingot runs %s models whose even layers have it",
            model_file_path(m->file), m->arch->name);
    return mixture_check(m, err);
}

static void factors(struct model *m)
{
    if (model_file_format(m->file) == MODEL_GGUF)
        m->config.rope[0].truncate = false;
}

static void experts(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_CHOSEN, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    const struct gptoss_weights *own = stage_layer_own(s, l);
    struct tensor q = block_qkv(t, s, l, x, angles);

    block_attend(t, s, l, x,
                 (struct attend){ .q = q, .window = stage_layer_config(s, l)->window, .sinks = own->sinks });
    experts(t, s, l, x);
}

const struct arch arch_gptoss = { .name = "gpt-oss",
                                  .model_types = "gpt_oss",
                                  .activations = "silu swish",
                                  .packings = "mxfp4",
                                  ARCH_TABLES(config, weights),
                                  ARCH_OWN(struct mixture_config, struct gptoss_weights),
                                  .layers = layers,
                                  .check = check,
                                  .scratch_cols = mixture_scratch_cols,
                                  .factors = factors,
                                  .layer = layer,
                                  .experts = experts };
