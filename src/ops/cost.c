// cost.c - see cost.h.
#include "ops/cost.h"
#include <math.h>
#include "ops/attend/attend.h"
#include "ops/attend_all/attend_all.h"
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/moe/moe.h"
#include "ops/ops.h"
#include "ops/parts.h"
#include "ops/qkv/qkv.h"
#include "ops/trellis_experts/trellis_experts.h"

// ---- weights

// The experts of a command, or n 0: it has none.
struct stacks {
    uint32_t n, n_slots, first, last; // operands [first, last) are stacks of experts
};

static struct stacks stacks_of(const struct command *c)
{
    const struct experts_args *e = (const void *)c->args;
    const struct moe_args *m = (const void *)c->args;

    if (c->op == OP_experts_up)
        return (struct stacks){ e->n_experts, e->n_slots, EXPERTS_UP_GATE, EXPERTS_UP_SHARED_GATE };
    if (c->op == OP_experts_down)
        return (struct stacks){ e->n_experts, e->n_slots, EXPERTS_DOWN_DOWN, EXPERTS_DOWN_SHARED };
    if (c->op == OP_trellis_experts)
        return (struct stacks){ e->n_experts, e->n_slots, TRELLIS_EXPERTS_GATE, TRELLIS_EXPERTS_SHARED };
    if (c->op == OP_moe)
        return (struct stacks){ m->experts.n_experts, m->experts.n_slots, MOE_GATE, MOE_SHARED_GATE };
    return (struct stacks){ 0 };
}

// The share of experts that some row chooses, when every row chooses n_slots of them evenly.
static double share_used(const struct stacks *s, uint32_t n_rows)
{
    return 1 - pow(1 - (double)s->n_slots / s->n, n_rows);
}

static void add_weight(struct cost *cost, const struct command *c, uint32_t operand, uint32_t n_rows)
{
    const struct weight *w = c->operands[operand].weight;
    struct stacks s = stacks_of(c);
    double numbers = w->n_rows > 1 ? (double)w->n_rows * w->n_cols : 0;

    if (c->op == OP_embed) {
        cost->weight_bytes += (double)c->operands[operand].row_bytes * n_rows;
    } else if (s.n && operand >= s.first && operand < s.last) {
        cost->weight_bytes += (double)w->bytes * share_used(&s, n_rows);
        cost->operations += 2 * numbers / s.n * s.n_slots * n_rows;
    } else {
        cost->weight_bytes += (double)w->bytes;
        cost->operations += c->op == OP_patches ? 0 : 2 * numbers * n_rows; // its weight is a table
    }
}

// ---- pages

// Pairs of a row and a token that it attends to, and tokens that are read: of each sequence once.
struct reach {
    double pairs, tokens;
};

static bool is_last_of_slot(const struct step *step, uint32_t row)
{
    for (uint32_t i = row + 1; i < step->n_rows; i++)
        if (step_slots(step)[i] == step_slots(step)[row])
            return false;
    return true;
}

// The rows of a sequence come in the order of their positions.
static uint32_t first_position(const struct step *step, uint32_t row)
{
    uint32_t first = 0;

    while (step_slots(step)[first] != step_slots(step)[row])
        first++;
    return step_positions(step)[first];
}

static uint32_t seen(uint32_t position, uint32_t window)
{
    return window && position + 1 > window ? window : position + 1;
}

static struct reach reach_of(const struct step *step, uint32_t window)
{
    struct reach r = { 0 };

    for (uint32_t i = 0; i < step->n_rows; i++) {
        uint32_t at = step_positions(step)[i];
        r.pairs += seen(at, window);
        if (is_last_of_slot(step, i)) {
            uint32_t first = first_position(step, i);
            r.tokens += at - first + seen(first, window);
        }
    }
    return r;
}

// Bytes of a token's K, or V.
static double token_bytes(const struct page_shape *s, uint32_t format)
{
    return (double)page_head_bytes(format, s->head_dim) / PAGE_TOKENS * s->n_kv_heads;
}

static double both_bytes(const struct page_shape *s)
{
    return token_bytes(s, s->k_format) + token_bytes(s, s->v_format);
}

static void add_attention(struct cost *cost, const struct attend_args *a, const struct step *step)
{
    struct reach r = reach_of(step, a->window);
    double dims = a->pages.head_dim + (a->latent_dims ? a->latent_dims : a->pages.head_dim);

    cost->page_bytes +=
        r.tokens * (a->latent_dims ? token_bytes(&a->pages, a->pages.k_format) : both_bytes(&a->pages));
    cost->operations += 2 * r.pairs * a->n_heads * dims;
}

// Every row of a tile of a picture sees all of them.
static void add_attention_of_all(struct cost *cost, const struct command *c, const struct step *step)
{
    const struct attend_all_args *a = (const void *)c->args;
    double pairs = 0;

    for (uint32_t i = 0, first = 0; i < step->n_rows; i++)
        if (i + 1 == step->n_rows || step_slots(step)[i + 1] != step_slots(step)[i]) {
            pairs += (double)(i + 1 - first) * (i + 1 - first);
            first = i + 1;
        }
    cost->operations += 4 * pairs * a->n_heads * a->head_dim;
}

// Expanded attention for sequences with at least LATENT_PROMPT_ROWS rows in the step, absorbed attention for
// the others. add_weight has counted the products with Wuk and Wuv for each row of the step; expanding has
// them for each token of the past as well.
static void add_prompt_attention(struct cost *cost, const struct latent_prompt_args *a,
                                 const struct step *step)
{
    const struct latent_project_args *p = &a->qk.project;
    double latent = a->qk.store.latent_dims, rotated = p->n_rotated, heads = p->n_heads;

    for (uint32_t first = 0, end; first < step->n_rows; first = end) {
        for (end = first + 1; end < step->n_rows && step_slots(step)[end] == step_slots(step)[first];)
            end++;
        double n = end - first, past = step_positions(step)[first], pairs = n * past + n * (n + 1) / 2;
        bool expands = end - first >= LATENT_PROMPT_ROWS;
        double dims = expands ? p->n_cols + rotated + a->n_value : 2 * latent + rotated;
        cost->page_bytes += (past + n) * token_bytes(&a->qk.store.pages, a->qk.store.pages.k_format);
        cost->operations +=
            2 * heads * (pairs * dims + (expands ? past * latent * (p->n_cols + a->n_value) : 0));
    }
}

static void add_pages(struct cost *cost, const struct command *c, const struct step *step)
{
    const struct rope_store_args *rope = (const void *)c->args;
    const struct qkv_args *qkv = (const void *)c->args;
    const struct latent_store_args *latent = (const void *)c->args;
    struct command parts[MOST_PARTS];
    uint32_t n_parts = parts_of(c, parts);

    for (uint32_t i = 0; i < n_parts; i++)
        if (parts[i].n_operands && !(c->op == OP_latent_prompt && i == LATENT_PROMPT_ATTEND))
            add_pages(cost, &parts[i], step);
    if (c->op == OP_latent_prompt)
        add_prompt_attention(cost, (const void *)c->args, step);
    else if (c->op == OP_attend || c->op == OP_latent_attend)
        add_attention(cost, (const void *)c->args, step);
    else if (c->op == OP_attend_all)
        add_attention_of_all(cost, c, step);
    else if (c->op == OP_rope_store)
        cost->page_bytes += both_bytes(&rope->pages) * step->n_rows;
    else if (c->op == OP_qkv || c->op == OP_qkv_adapted) // whose arguments begin alike
        cost->page_bytes += both_bytes(&qkv->rope.pages) * step->n_rows;
    else if (c->op == OP_latent_store)
        cost->page_bytes += token_bytes(&latent->pages, latent->pages.k_format) * step->n_rows;
}

// ---- all

// Rows of what the command computes.
static uint32_t n_rows_of(const struct tape *t, const struct command *c, const struct step *step)
{
    for (uint32_t i = 0; i < c->n_operands; i++) {
        const struct operand *o = &c->operands[i];
        if (o->writes && o->tensor && o->type == OPERAND_F32)
            return tape_operand_rows(t, o, step);
    }
    return step->n_rows;
}

struct cost cost_of_command(const struct tape *t, const struct command *c, const struct step *step)
{
    uint32_t n_rows = n_rows_of(t, c, step);
    struct cost cost = { 0 };

    for (uint32_t i = 0; i < c->n_operands; i++) {
        const struct operand *o = &c->operands[i];
        if (o->weight)
            add_weight(&cost, c, i, n_rows);
        else if (o->tensor && o->type == OPERAND_F32)
            cost.value_bytes += (double)o->row_bytes * tape_operand_rows(t, o, step);
    }
    add_pages(&cost, c, step);
    return cost;
}
