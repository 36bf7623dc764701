// mixture.h - the feed-forward half of a layer with experts, and the sizes and weights that models with
// experts share.
#pragma once
#include "models/blocks.h"
#include "ops/route/route.h"

enum mixture_gating { GATING_UNKNOWN, GATING_SOFTMAX, GATING_SIGMOID }; // as GGUF files number them

struct mixture_config {
    uint32_t n_experts, n_slots; // per layer; per token
    uint32_t n_ffn, n_shared;    // hidden numbers of an expert, of the shared expert
    uint32_t normalise;          // the weights of a token's experts sum to one
    float limit;                 // of the clamped activation, see ops/experts/experts.h; 0: none
    uint32_t activation;         // enum activation; experts without gates have theirs times what it is of
    // Of mixture_rule alone:
    uint32_t gating;                  // enum mixture_gating
    uint32_t n_groups, n_used_groups; // of experts: a token chooses groups first
    uint32_t n_shared_experts;        // joined in one shared expert
    uint32_t biased;                  // the router has a bias
    float scale;                      // factor on the weights
};

struct mixture_weights { // all pointers, as struct layer_weights
    const struct weight *router, *gate, *up, *down;
    const struct weight *router_bias, *gate_bias, *up_bias, *down_bias; // or NULL
    const struct weight *shared_router, *shared_gate, *shared_up, *shared_down;
    const struct weight *select_bias; // added for the choice, not in the weights
};

#define MIXTURE_SIZE(field, gguf_name, json_name, largest, ...)                                   \
    {                                                                                             \
        CONFIG_OWN(struct mixture_config, field), .gguf = gguf_name, .json = json_name, .min = 1, \
                                                  .max = largest, __VA_ARGS__                     \
    }
// json_count: the key of config.json with the number of experts in a layer.
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
// A weight of the mixture. more: flags, and .stack and .used for matrices that every expert has.
#define MIXTURE_WEIGHT(field, gguf_name, json_name, n_rows, n_cols, ...)                         \
    {                                                                                            \
        .per_layer = true, .place = OWN_PLACE(struct mixture_weights, field), .gguf = gguf_name, \
        .json = json_name, .rows = n_rows, .cols = n_cols, .layers = LAYERS_MIXTURE, __VA_ARGS__ \
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

// DeepSeek's kind, also used by GLM: leading dense layers, groups of experts, a router with its own bias,
// shared experts, draft layers.
#define MIXTURE_DEEPSEEK_CONFIG                                                                              \
    MIXTURE_CONFIG("n_routed_experts"), MIXTURE_NORMALISE(0),                                                \
        MIXTURE_SIZE(n_groups, "%s.expert_group_count", "n_group", ROUTE_MAX_EXPERTS, DEFAULT(1)),           \
        MIXTURE_SIZE(n_used_groups, "%s.expert_group_used_count", "topk_group", ROUTE_MAX_EXPERTS,           \
                     DEFAULT(1)),                                                                            \
        { CONFIG_OWN(struct mixture_config, gating), .gguf = "%s.expert_gating_func", .max = GATING_SIGMOID, \
          DEFAULT(0) },                                                                                      \
        { CONFIG_OWN(struct mixture_config, n_shared_experts), .gguf = "%s.expert_shared_count",             \
          .json = "n_shared_experts", .max = 256, DEFAULT(0) },                                              \
        { CONFIG_OWN(struct mixture_config, scale), .is_float = true, .gguf = "%s.expert_weights_scale",     \
          .json = "routed_scaling_factor",          .max = 1e6,       DEFAULT(1) },                          \
        { CONFIG_AT(n_dense), .gguf = "%s.leading_dense_block_count", .json = "first_k_dense_replace",       \
          .max = 4096, DEFAULT(0) },                                                                         \
    {                                                                                                        \
        CONFIG_AT(n_draft), .gguf = "%s.nextn_predict_layers", .json = "num_nextn_predict_layers",           \
                            .max = 64, DEFAULT(0)                                                            \
    }

#define MIXTURE_MLP "model.layers.%u.mlp."
#define MIXTURE_SHARED(field, gguf_name, json_name, n_rows, n_cols)                           \
    MIXTURE_WEIGHT(field, gguf_name, MIXTURE_MLP "shared_experts." json_name, n_rows, n_cols, \
                   .when = MIXTURE_DIM(n_shared_experts), .flags = WEIGHT_SHARED_EXPERT)
#define MIXTURE_DENSE_WEIGHTS                                                                              \
    L(gate, "blk.%u.ffn_gate.weight", MIXTURE_MLP "gate_proj.weight", FFN, COLS, IN_LAYERS(LAYERS_DENSE)), \
        L(up, "blk.%u.ffn_up.weight", MIXTURE_MLP "up_proj.weight", FFN, COLS, IN_LAYERS(LAYERS_DENSE)),   \
        L(down, "blk.%u.ffn_down.weight", MIXTURE_MLP "down_proj.weight", COLS, FFN,                       \
          IN_LAYERS(LAYERS_DENSE))
#define MIXTURE_SHARED_WEIGHTS                                                                             \
    MIXTURE_SHARED(shared_gate, "blk.%u.ffn_gate_shexp.weight", "gate_proj.weight", MIXTURE_DIM(n_shared), \
                   DIM_COLS),                                                                              \
        MIXTURE_SHARED(shared_up, "blk.%u.ffn_up_shexp.weight", "up_proj.weight", MIXTURE_DIM(n_shared),   \
                       DIM_COLS),                                                                          \
        MIXTURE_SHARED(shared_down, "blk.%u.ffn_down_shexp.weight", "down_proj.weight", DIM_COLS,          \
                       MIXTURE_DIM(n_shared))
#define MIXTURE_DEEPSEEK_WEIGHTS                                                                             \
    MIXTURE_DENSE_WEIGHTS,                                                                                   \
        MIXTURE_WEIGHTS(MIXTURE_MLP "gate.weight", MIXTURE_MLP "experts.%u.gate_proj.weight",                \
                        MIXTURE_MLP "experts.%u.up_proj.weight", MIXTURE_MLP "experts.%u.down_proj.weight"), \
        MIXTURE_WEIGHT(select_bias, "blk.%u.exp_probs_b.bias", MIXTURE_MLP "gate.e_score_correction_bias",   \
                       DIM_ONE, MIXTURE_DIM(n_experts), .when = MIXTURE_DIM(biased)),                        \
        MIXTURE_SHARED_WEIGHTS

// What a file of DeepSeek's kind leaves to be found out: how wide the shared expert is, and, where it does
// not say so, how the router scores: by `scores` in a checkpoint; in a GGUF file by whether the router has a
// bias.
bool mixture_complete(struct model *m, enum mixture_gating scores, struct err *err);
// Checks that the sizes of the experts fit together.
bool mixture_check(const struct model *m, struct err *err);
// An architecture's scratch_cols: tensors and workspace of the operations that need most.
uint64_t mixture_scratch_cols(const struct model *m);
// x += the weighted sum of what each token's experts make of norm(x). The rule's `normalise` is the file's.
void mixture_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct route_rule rule);
// The weighted sum alone of what experts make of rmsnorm(x) * expert_norm, where the router has a norm and
// factors of its own.
struct mixture_router {
    struct route_rule rule;
    const struct weight *norm, *expert_scale; // of op_route, on x
    float gain;
    const struct weight *expert_norm;
};
struct tensor mixture_sum(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                          const struct mixture_router *r);
// Experts elsewhere (model_stage.n_away). Whether those of layer l are: mixture_block records a border there.
bool mixture_is_away(const struct model_stage *s, uint32_t l);
// Whether a place of a layer belongs to the experts. They also read ffn_norm.
bool mixture_has_place(const struct model *m, uint32_t place);
// The experts alone of a stage's layers, all of which have experts: on the block, with borders between
// layers.
void mixture_record(struct tape *t, const struct model_stage *s);
// The rule of a model of DeepSeek's kind.
struct route_rule mixture_rule(const struct model *m);
// A leading layer's dense block, or mixture_block by that rule.
void mixture_or_dense_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x);
