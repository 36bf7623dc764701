// route_cpu.c - the definition, row by row; then by panels, in fp32 too.
#include <math.h>
#include <string.h>
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
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

// The largest number whose index is not taken; ties to the lowest index. n: none is left.
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

// Excludes the experts of all but the best groups from the choice.
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

void route_choose(const struct route_args *args, float *logits, const float *select_bias, float *ids,
                  float *weights)
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

static void choose_row(const struct cpu_call *call, uint32_t r)
{
    const struct route_args *args = cpu_args(call);
    const float *shared_gate = cpu_base(call, ROUTE_SHARED_GATE), *n = cpu_row(call, ROUTE_NORMED, r);
    const float *scale = cpu_base(call, ROUTE_EXPERT_SCALE);
    float *weights = cpu_row(call, ROUTE_WEIGHTS, r), *ids = cpu_row(call, ROUTE_IDS, r);

    weights[args->n_slots] = shared_gate ? sigmoid(matmul_dot_plain(n, shared_gate, args->n_cols)) : 1;
    route_choose(args, cpu_row(call, ROUTE_WORK, r), cpu_base(call, ROUTE_SELECT_BIAS), ids, weights);
    for (uint32_t j = 0; scale && j < args->n_slots; j++)
        weights[j] *= scale[(uint32_t)ids[j]];
}

static void multiply(float *n, const struct route_args *args)
{
    for (uint32_t i = 0; args->gain != 1 && i < args->n_cols; i++)
        n[i] *= args->gain;
}

static void route_row(const struct cpu_call *call, uint32_t r)
{
    const struct route_args *args = cpu_args(call);
    const float *bias = cpu_base(call, ROUTE_BIAS);
    float *n = cpu_row(call, ROUTE_NORMED, r), *logits = cpu_row(call, ROUTE_WORK, r);
    float *decoded = call->local; // [n_cols]

    rmsnorm_row_plain(cpu_row(call, ROUTE_IN, r), cpu_base(call, ROUTE_NORM), n, args->n_cols, args->eps);
    multiply(n, args);
    for (uint32_t e = 0; e < args->n_experts; e++)
        logits[e] = matmul_row_plain(n, cpu_weight(call, ROUTE_ROUTER), e, decoded) + (bias ? bias[e] : 0);
    choose_row(call, r);
}

static void route_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        route_row(call, r);
}

// By panels: phase 0 normalises rows, phase 1 multiplies by panels of the router in fp32, phase 2 chooses.
struct route_job {
    const struct cpu_call *call;
    const struct route_args *args;
    const struct product_set *set;
    struct weight_product product;
    struct product_split split;
    uint32_t n_panels;
};

static struct route_job job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct route_job j = { .call = call, .args = cpu_args(call), .set = set };

    product_init(&j.product, set->kernels, cpu_weight(call, ROUTE_ROUTER), true);
    j.product.x = cpu_base(call, ROUTE_NORMED);
    j.product.x_stride = call->command->operands[ROUTE_NORMED].row_bytes;
    j.split = product_split(call->step->n_rows, product_packed_bytes(PACKING_F32, j.args->n_cols));
    j.n_panels = panel_count(j.args->n_experts);
    return j;
}

static void route_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set)
{
    struct route_job j = job_of(call, set);
    uint32_t n_rows = call->step->n_rows;

    plan->n_phases = 3;
    plan->n_tiles[0] = plan->n_tiles[2] = n_rows;
    plan->n_tiles[1] = n_rows ? j.n_panels * j.split.n_blocks : 0;
    plan->local_bytes = product_scratch_bytes(&j.product);
}

static void run_panel(const struct route_job *j, uint32_t panel, uint32_t block)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    uint32_t first = product_block_first(&j->split, block), end = product_block_first(&j->split, block + 1);
    uint32_t column = panel * PANEL_ROWS, left = j->args->n_experts - column;
    const float *bias = cpu_base(j->call, ROUTE_BIAS);
    struct product_panel w = product_panel(&j->product, panel, end - first, j->call->local);

    for (uint32_t row = first, n; row < end; row += n) {
        n = product_tile_rows(row, end, w.max_rows);
        product_run(&j->product, &w, (struct tile_range){ row, row + n }, y);
        j->set->kernels->store(
            &(struct product_store){ .y = y,
                                     .bias = bias ? bias + column : NULL,
                                     .out = (float *)cpu_row(j->call, ROUTE_WORK, row) + column,
                                     .stride = j->args->n_experts,
                                     .n_rows = n,
                                     .n_cols = left < PANEL_ROWS ? left : PANEL_ROWS });
    }
}

static void normalise(const struct route_job *j, uint32_t r)
{
    float *n = cpu_row(j->call, ROUTE_NORMED, r);

    j->set->rows->rmsnorm(cpu_row(j->call, ROUTE_IN, r), cpu_base(j->call, ROUTE_NORM), n, j->args->n_cols,
                          j->args->eps);
    multiply(n, j->args);
}

static void route_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                           const struct product_set *set)
{
    struct route_job j = job_of(call, set);

    for (uint32_t i = range.first; i < range.last; i++) {
        if (phase == 0)
            normalise(&j, i);
        else if (phase == 1)
            run_panel(&j, i % j.n_panels, i / j.n_panels);
        else
            choose_row(call, i);
    }
}

PRODUCT_KERNELS(route_fast)

const struct cpu_op cpu_op_route = { .name = "route",
                                     .by_rows = true,
                                     .plain = { route_plan, route_run },
                                     .fast = { PRODUCT_CHOICES(route_fast) } };
