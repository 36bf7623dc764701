// mamba.h - Mamba2 (Dao and Gu, 2024) as the half of a layer that mixes tokens, and the sizes and weights
// that models with it share.
//
// in_proj makes z, then x, B and C, then a step for each head; the middle part goes through a short
// convolution. The state is that of the convolution, then a matrix for each head. The norm is behind the
// gate.
#pragma once
#include "models/arch.h"
#include "ops/conv_step/conv_step.h"
#include "ops/scan/scan.h"

struct mamba_config {
    uint32_t n_heads, d_state, n_groups, kernel;
    uint32_t inner;         // heads * their numbers
    uint32_t n_in, n_mixed; // rows of in_proj; channels of the convolution
};

struct mamba_weights { // all pointers
    const struct weight *in, *conv, *conv_bias, *dt_bias, *a, *d, *norm, *out;
};

// sizes: the architecture's own struct, which has `mamba`; so have its weights. at: the names in a checkpoint
// up to the layer's part.
#define MAMBA_SIZE(sizes, field, gguf_name, json_name, least, largest, ...)                        \
    {                                                                                              \
        CONFIG_OWN(struct sizes, mamba.field), .gguf = gguf_name, .json = json_name, .min = least, \
                                               .max = largest, __VA_ARGS__                         \
    }
#define MAMBA_KEY(sizes, weights, field, at, gguf_name, json_name, n_rows, n_cols, ...)                  \
    {                                                                                                    \
        .per_layer = true, .place = OWN_PLACE(struct weights, mamba.field), .gguf = "blk.%u." gguf_name, \
        .json = at json_name, .rows = n_rows, .cols = n_cols, .layers = LAYERS_STATE, __VA_ARGS__        \
    }
#define MAMBA_DIM(sizes, field) OWN_DIM(struct sizes, mamba.field)
#define MAMBA_WEIGHTS(sizes, weights, at)                                                                    \
    MAMBA_KEY(sizes, weights, in, at, "ssm_in.weight", "in_proj.weight", MAMBA_DIM(sizes, n_in), DIM_COLS),  \
        MAMBA_KEY(sizes, weights, conv, at, "ssm_conv1d.weight", "conv1d.weight", MAMBA_DIM(sizes, n_mixed), \
                  MAMBA_DIM(sizes, kernel), .flags = WEIGHT_DEPTHWISE),                                      \
        MAMBA_KEY(sizes, weights, conv_bias, at, "ssm_conv1d.bias", "conv1d.bias", DIM_ONE,                  \
                  MAMBA_DIM(sizes, n_mixed), .flags = WEIGHT_OPTIONAL),                                      \
        MAMBA_KEY(sizes, weights, dt_bias, at, "ssm_dt.bias", "dt_bias", DIM_ONE,                            \
                  MAMBA_DIM(sizes, n_heads)),                                                                \
        MAMBA_KEY(sizes, weights, a, at, "ssm_a", "A_log", DIM_ONE, MAMBA_DIM(sizes, n_heads)),              \
        MAMBA_KEY(sizes, weights, d, at, "ssm_d", "D", DIM_ONE, MAMBA_DIM(sizes, n_heads)),                  \
        MAMBA_KEY(sizes, weights, norm, at, "ssm_norm.weight", "norm.weight", DIM_ONE,                       \
                  MAMBA_DIM(sizes, inner)),                                                                  \
        MAMBA_KEY(sizes, weights, out, at, "ssm_out.weight", "out_proj.weight", DIM_COLS,                    \
                  MAMBA_DIM(sizes, inner))

// The sizes that follow from the others, and whether they fit together.
bool mamba_complete(const struct model *m, struct mamba_config *c, struct err *err);
// Words of a sequence's state in a layer.
uint32_t mamba_state_words(const struct mamba_config *c);
// Columns of a row's tensors.
uint64_t mamba_scratch_cols(const struct model *m, const struct mamba_config *c);
// x += Mamba2(norm(x))
void mamba_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                 const struct mamba_config *c, const struct mamba_weights *w);
