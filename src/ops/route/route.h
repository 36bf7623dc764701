// route: which experts a row goes to, and with what weights (mixture of experts; Shazeer et al., 2017).
//
//   n = rmsnorm(in) * norm * gain             written to normed, the input of all experts
//   l[e] = n . router[e]  (+ bias[e])         in fp32 in every mode and on every device, whatever the format
//   s[e] = softmax over all of l, or sigmoid(l[e])
//   key[e] = l[e]; with select_bias s[e] + select_bias[e], which selects but is in no weight
//   chosen: the n_slots largest keys, in descending order, ties to the lowest e
//   w[j] = s of the chosen; or softmax of l over the chosen alone (ROUTE_CHOSEN)
//   normalise: w[j] /= max(sum of w, floor);  then w[j] *= scale
//   with expert_scale: w[j] *= expert_scale[e]
//   ids[j] = e as an fp32 number;  weights[j] = w[j];  weights[n_slots] = 1, or sigmoid(n . shared_gate)
//
// Groups: n_groups runs of equal length. Only the n_used_groups best take part, ties to the lowest group. A
// group's rank is its largest key, or the sum of its two largest (ROUTE_TWO_BEST). A row with a NaN or an
// infinity in l has ids 0, 1, ... and NaN for all weights, so that its logits are NaN and its request ends.
// ops/experts sums in the order of the slots. A row's bits do not depend on other rows. Limits: n_experts to
// 1,024, n_slots to 32.
//
// Rules of known models:
//   Mixtral, Qwen3        softmax, normalise
//   Qwen2, OLMoE          softmax
//   Granite, gpt-oss      chosen
//   DeepSeek V2           softmax, scale
//   DeepSeek V3, GLM 4.5  sigmoid, select_bias, two best of the groups, normalise with floor 1e-20, scale
//   ERNIE 4.5             softmax, select_bias, normalise with floor 1e-12
//   Gemma 4               softmax, normalise, expert_scale; gain is the root of 1 / n_cols
#pragma once
#include "base/lang.h"

#define ROUTE_MAX_EXPERTS 1024u
#define ROUTE_MAX_SLOTS   32u

enum route_scores { ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_CHOSEN };
enum route_rank { ROUTE_BEST, ROUTE_TWO_BEST };

struct route_rule {
    u32 scores;                  // enum route_scores
    u32 n_groups, n_used_groups; // 1 and 1: no groups
    u32 rank;                    // enum route_rank
    u32 normalise;
    f32 floor; // of the sum to normalise by
    f32 scale; // 1: none
};

struct route_args {
    u32 n_cols, n_experts, n_slots;
    f32 eps;
    struct route_rule rule;
    f32 gain; // of the norm
};
STATIC_ASSERT(sizeof(struct route_args) == 48);

// Operand numbers, for the kernels. BIAS, SELECT_BIAS, SHARED_GATE and EXPERT_SCALE may be absent.
enum {
    ROUTE_IN,
    ROUTE_NORM,
    ROUTE_ROUTER,
    ROUTE_BIAS,
    ROUTE_SELECT_BIAS,
    ROUTE_SHARED_GATE,
    ROUTE_WORK, // [rows, n_experts]: room for the logits
    ROUTE_NORMED,
    ROUTE_IDS,
    ROUTE_WEIGHTS,
    ROUTE_EXPERT_SCALE
};

#ifdef HOST_C
#include "device/tape.h"

struct route {
    struct tensor normed;              // [rows, n_cols]
    struct tensor ids;                 // [rows, n_slots]
    struct tensor weights;             // [rows, n_slots + 1]
    struct tensor in;                  // [rows, n_cols]
    const struct weight *norm;         // [n_cols] fp32
    const struct weight *router;       // [n_experts, n_cols]
    const struct weight *bias;         // [n_experts] fp32, or NULL
    const struct weight *select_bias;  // [n_experts] fp32, or NULL
    const struct weight *shared_gate;  // [n_cols] fp32, or NULL
    const struct weight *expert_scale; // [n_experts] fp32, or NULL
    struct route_rule rule;
    float eps, gain; // gain 0: 1
};
void op_route(struct tape *t, struct route r);
// The operation's arguments, if shapes fit; else false and the tape's error.
bool route_check(struct tape *t, const struct route *r, struct route_args *args);

// Turns a row's logits [n_experts], which it overwrites, into ids and weights: the definition, shared with
// the fast kernels. n: the normed row.
void route_choose(const struct route_args *args, float *logits, const float *select_bias, float *ids,
                  float *weights);
#endif
