// mixture.h - the feed-forward half of a layer made of experts, and the sizes and weights that models with
// experts share.
#pragma once
#include "models/blocks.h"
#include "ops/route/route.h"

struct mixture_config {
    uint32_t n_experts, n_slots; // of a layer, of a token
    uint32_t n_ffn, n_shared;    // hidden numbers of an expert, of the shared expert
    uint32_t normalise;          // the weights of a token's experts sum to one
};

struct mixture_weights { // all pointers, as struct layer_weights
    const struct weight *router, *gate, *up, *down;
    const struct weight *shared_router, *shared_gate, *shared_up, *shared_down;
};

#define MIXTURE_SIZE(field, gguf_name, json_name, largest, ...)                                   \
    {                                                                                             \
        CONFIG_OWN(struct mixture_config, field), .gguf = gguf_name, .json = json_name, .min = 1, \
                                                  .max = largest, __VA_ARGS__                     \
    }
// json_count: the key of config.json that counts a layer's experts.
#define MIXTURE_CONFIG(json_count)                                                                       \
    MIXTURE_SIZE(n_experts, "%s.expert_count", json_count, ROUTE_MAX_EXPERTS, REQUIRED),                 \
        MIXTURE_SIZE(n_slots, "%s.expert_used_count", "num_experts_per_tok", ROUTE_MAX_SLOTS, REQUIRED), \
        MIXTURE_SIZE(n_ffn, "%s.expert_feed_forward_length", "moe_intermediate_size", 1 << 20,           \
                     SAME_AS(n_ffn))
#define MIXTURE_NORMALISE(by_default)                                                                    \
    {                                                                                                    \
        CONFIG_OWN(struct mixture_config, normalise), .is_bool = true, .gguf = "%s.expert_weights_norm", \
                                                      .json = "norm_topk_prob", .min = 0, .max = 1,      \
                                                      DEFAULT(by_default),                               \
    }

#define MIXTURE_DIM(field) OWN_DIM(struct mixture_config, field)
// A weight of the mixture; more: flags, and .stack and .used for matrices of which there is one for each
// expert.
#define MIXTURE_WEIGHT(field, gguf_name, json_name, n_rows, n_cols, ...)                         \
    {                                                                                            \
        .per_layer = true, .place = OWN_PLACE(struct mixture_weights, field), .gguf = gguf_name, \
        .json = json_name, .rows = n_rows, .cols = n_cols, __VA_ARGS__                           \
    }
#define MIXTURE_STACK .stack = MIXTURE_DIM(n_experts), .used = MIXTURE_DIM(n_slots)
// json_*: names in a checkpoint, "%u" the layer and, where an expert has a tensor of its own, the expert.
#define MIXTURE_WEIGHTS(json_router, json_gate, json_up, json_down)                                      \
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", json_router, MIXTURE_DIM(n_experts), DIM_COLS), \
        MIXTURE_WEIGHT(gate, "blk.%u.ffn_gate_exps.weight", json_gate, MIXTURE_DIM(n_ffn), DIM_COLS,     \
                       MIXTURE_STACK),                                                                   \
        MIXTURE_WEIGHT(up, "blk.%u.ffn_up_exps.weight", json_up, MIXTURE_DIM(n_ffn), DIM_COLS,           \
                       MIXTURE_STACK),                                                                   \
        MIXTURE_WEIGHT(down, "blk.%u.ffn_down_exps.weight", json_down, DIM_COLS, MIXTURE_DIM(n_ffn),     \
                       MIXTURE_STACK)

// What the file says of its experts must make sense.
bool mixture_check(const struct model *m, struct err *err);
// x += the weighted sum of what each token's experts make of norm(x). The rule's `normalise` is the file's.
void block_mixture(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct route_rule rule);
