// route.c - checks and records the operation; see route.h.
#include "ops/route/route.h"
#include "base/err.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"

static bool rule_fits(struct tape *t, const struct route *r, uint32_t n_experts, uint32_t n_slots)
{
    const struct route_rule *rule = &r->rule;
    uint32_t n_groups = rule->n_groups, n_used = rule->n_used_groups;

    if (n_experts < 1 || n_experts > ROUTE_MAX_EXPERTS || n_slots < 1 || n_slots > ROUTE_MAX_SLOTS ||
        n_slots > n_experts) {
        tape_fail(t, "route: %u of %u experts a row; want 1 to %u, of at most %u", n_slots, n_experts,
                  ROUTE_MAX_SLOTS, ROUTE_MAX_EXPERTS);
        return false;
    }
    if (n_groups < 1 || n_used < 1 || n_used > n_groups || n_experts % n_groups != 0 ||
        n_experts / n_groups * n_used < n_slots) {
        tape_fail(t, "route: %u of %u groups of %u experts, %u chosen; want equal groups with enough experts",
                  n_used, n_groups, n_experts, n_slots);
        return false;
    }
    if (rule->rank == ROUTE_TWO_BEST && n_groups > 1 && (!r->select_bias || n_experts / n_groups < 2)) {
        tape_fail(t, "route: groups ranked by their two best want a selection bias and two experts each");
        return false;
    }
    return true;
}

static bool values_fit(struct tape *t, const struct route *r, uint32_t n_cols, uint32_t n_slots)
{
    if (r->normed.n_cols == n_cols && r->weights.n_cols == n_slots + 1 && r->in.rows == ROWS_STEP &&
        r->normed.rows == ROWS_STEP && r->ids.rows == ROWS_STEP && r->weights.rows == ROWS_STEP)
        return true;
    tape_fail(t, "route: normed has %u columns, weights %u; want %u and %u, a row for each of the step",
              r->normed.n_cols, r->weights.n_cols, n_cols, n_slots + 1);
    return false;
}

bool route_check(struct tape *t, const struct route *r, struct route_args *args)
{
    uint32_t n_cols = r->in.n_cols, n_experts = r->router->n_rows, n_slots = r->ids.n_cols;

    if (!tape_supports(t, OP_route)) {
        tape_fail(t, "this model's experts have no kernels on this device yet; use %s cpu",
                  err_option("device"));
        return false;
    }
    *args = (struct route_args){ n_cols, n_experts, n_slots, r->eps, r->rule, r->gain > 0 ? r->gain : 1 };
    return matmul_fits(t, "route", r->router, n_cols, n_experts) &&
           matmul_vector_fits(t, "route", r->norm, n_cols) &&
           matmul_vector_fits(t, "route", r->bias, n_experts) &&
           matmul_vector_fits(t, "route", r->select_bias, n_experts) &&
           matmul_vector_fits(t, "route", r->shared_gate, n_cols) &&
           matmul_vector_fits(t, "route", r->expert_scale, n_experts) &&
           rule_fits(t, r, n_experts, n_slots) && values_fit(t, r, n_cols, n_slots);
}

void op_route(struct tape *t, struct route r)
{
    struct route_args args;

    if (!route_check(t, &r, &args))
        return;
    struct tensor work = tape_tensor(t, args.n_experts, ROWS_STEP);
    struct command *c = tape_add(t, OP_route, "route", &args, sizeof args);
    tape_reads(t, c, r.in);
    tape_reads_weight(t, c, r.norm);
    tape_reads_weight(t, c, r.router);
    tape_reads_weight(t, c, r.bias);
    tape_reads_weight(t, c, r.select_bias);
    tape_reads_weight(t, c, r.shared_gate);
    tape_works_in(t, c, work);
    tape_writes(t, c, r.normed);
    tape_writes(t, c, r.ids);
    tape_writes(t, c, r.weights);
    tape_reads_weight(t, c, r.expert_scale);
}
