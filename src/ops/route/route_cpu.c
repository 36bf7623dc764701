// route_cpu.c - the definition, row by row.
#include <math.h>
#include <string.h>
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/route/route.h"
#include "ops/rows.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

// x[i] becomes e^x[i] over the sum of all.
static void softmax(float *x, uint32_t n)
{
    float top = x[0], sum = 0;

    for (uint32_t i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - top);
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

// The largest number whose place is not taken; ties to the lowest place. n: none is left.
static uint32_t best_of(const float *key, const bool *taken, uint32_t n)
{
    uint32_t best = n;

    for (uint32_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || key[i] > key[best]))
            best = i;
    return best;
}

static float group_rank(const struct route_rule *rule, const float *key, uint32_t n)
{
    float best = -INFINITY, second = -INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        second = key[i] > best ? best : key[i] > second ? key[i] : second;
        best = key[i] > best ? key[i] : best;
    }
    return rule->rank == ROUTE_BEST ? best : best + second;
}

// Takes the experts of all but the best groups out of the choice.
static void leave_groups(const struct route_args *args, const float *key, bool *taken)
{
    const struct route_rule *rule = &args->rule;
    uint32_t size = args->n_experts / rule->n_groups;
    float rank[ROUTE_MAX_EXPERTS];
    bool kept[ROUTE_MAX_EXPERTS] = { false };

    for (uint32_t g = 0; g < rule->n_groups; g++)
        rank[g] = group_rank(rule, key + g * size, size);
    for (uint32_t i = 0; i < rule->n_used_groups; i++)
        kept[best_of(rank, kept, rule->n_groups)] = true;
    for (uint32_t e = 0; e < args->n_experts; e++)
        taken[e] = !kept[e / size];
}

static bool all_finite(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void end_row(const struct route_args *args, float *ids, float *weights)
{
    for (uint32_t j = 0; j <= args->n_slots; j++)
        weights[j] = NAN;
    for (uint32_t j = 0; j < args->n_slots; j++)
        ids[j] = (float)j;
}

static void weigh(const struct route_rule *rule, float *weights, uint32_t n)
{
    float sum = 0;

    for (uint32_t j = 0; j < n; j++)
        sum += weights[j];
    sum = sum > rule->floor ? sum : rule->floor;
    for (uint32_t j = 0; j < n; j++)
        weights[j] = (rule->normalise ? weights[j] / sum : weights[j]) * rule->scale;
}

void route_choose(const struct route_args *args, float *logits, const float *select_bias, float *ids, float *weights)
{
    const uint32_t n = args->n_experts;
    float key[ROUTE_MAX_EXPERTS];
    bool taken[ROUTE_MAX_EXPERTS] = { false };

    if (!all_finite(logits, n)) {
        end_row(args, ids, weights);
        return;
    }
    memcpy(key, logits, n * sizeof *key);
    if (args->rule.scores == ROUTE_SOFTMAX)
        softmax(logits, n);
    for (uint32_t e = 0; args->rule.scores == ROUTE_SIGMOID && e < n; e++)
        logits[e] = sigmoid(logits[e]);
    for (uint32_t e = 0; select_bias && e < n; e++)
        key[e] = logits[e] + select_bias[e];
    if (args->rule.n_groups > 1)
        leave_groups(args, key, taken);
    for (uint32_t j = 0; j < args->n_slots; j++) {
        uint32_t e = best_of(key, taken, n);
        taken[e] = true;
        ids[j] = (float)e;
        weights[j] = logits[e];
    }
    if (args->rule.scores == ROUTE_CHOSEN)
        softmax(weights, args->n_slots);
    weigh(&args->rule, weights, args->n_slots);
}

static void route_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct route_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->n_cols * sizeof(float);
}

static void route_row(const struct cpu_call *call, uint32_t r)
{
    const struct route_args *args = cpu_args(call);
    const float *bias = cpu_base(call, ROUTE_BIAS), *shared_gate = cpu_base(call, ROUTE_SHARED_GATE);
    float *n = cpu_row(call, ROUTE_NORMED, r), *logits = cpu_row(call, ROUTE_WORK, r), *weights = cpu_row(call, ROUTE_WEIGHTS, r);
    float *decoded = call->local; // [n_cols]

    rmsnorm_row_plain(cpu_row(call, ROUTE_IN, r), cpu_base(call, ROUTE_NORM), n, args->n_cols, args->eps);
    for (uint32_t e = 0; e < args->n_experts; e++) {
        matmul_decode_row(cpu_weight(call, ROUTE_ROUTER), e, decoded);
        logits[e] = matmul_dot_plain(n, decoded, args->n_cols) + (bias ? bias[e] : 0);
    }
    weights[args->n_slots] = shared_gate ? sigmoid(matmul_dot_plain(n, shared_gate, args->n_cols)) : 1;
    route_choose(args, logits, cpu_base(call, ROUTE_SELECT_BIAS), cpu_row(call, ROUTE_IDS, r), weights);
}

static void route_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        route_row(call, r);
}

const struct cpu_op cpu_op_route = { .name = "route", .by_rows = true, .plain = { route_plan, route_run } };
