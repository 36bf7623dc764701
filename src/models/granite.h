// granite.h - the four factors of Granite models, with experts or without.
//
// The factor m on the halves' outputs needs no kernel: the residual stream is kept divided by m. The
// embedding is divided once, outputs stay as they are, and norm(m x, eps) = norm(x, eps / m^2).
#pragma once
#include "models/arch.h"

struct granite_factors {
    float embed, residual, attention, logits;
};

// sizes: the architecture's own struct, which has `factors`.
#define GRANITE_FACTOR(sizes, field, gguf_name, json_name)                                               \
    {                                                                                                    \
        CONFIG_OWN(struct sizes, factors.field), .is_float = true, .gguf = gguf_name, .json = json_name, \
                                                 .min = 1e-6, .max = 1e6, REQUIRED                       \
    }
#define GRANITE_FACTORS(sizes)                                                          \
    GRANITE_FACTOR(sizes, embed, "%s.embedding_scale", "embedding_multiplier"),         \
        GRANITE_FACTOR(sizes, residual, "%s.residual_scale", "residual_multiplier"),    \
        GRANITE_FACTOR(sizes, attention, "%s.attention.scale", "attention_multiplier"), \
        GRANITE_FACTOR(sizes, logits, "%s.logit_scale", "logits_scaling")

void granite_factors_set(struct model *m, const struct granite_factors *f);
