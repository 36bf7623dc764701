// attend_cpu.c - the definition: two passes over the past, the maximum first.
#include <math.h>
#include "ops/attend/attend.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

struct head { // one query head of one row, and where its sequence's pages are
    const struct attend_args *args;
    const uint32_t *table;
    void *k_pages, *v_pages;
    const float *q;
    float *token;                  // [head_dim] room for one token's K or V
    uint32_t kv_head, first, last; // positions first..last
};

static const float *read_token(const struct head *h, uint32_t position, bool is_v)
{
    page_read(&(struct page_token){ &h->args->pages, is_v ? h->v_pages : h->k_pages, h->table[position / PAGE_TOKENS], h->kv_head,
                                    position % PAGE_TOKENS, is_v },
              h->token);
    return h->token;
}

static float score(const struct head *h, uint32_t position)
{
    const float *k = read_token(h, position, false);
    float sum = 0;

    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        sum += h->q[d] * k[d];
    return sum * h->args->scale;
}

static void head_plain(const struct head *h, float *out)
{
    float top = -INFINITY, total = 0;

    for (uint32_t j = h->first; j <= h->last; j++)
        top = fmaxf(top, score(h, j));
    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        out[d] = 0;
    for (uint32_t j = h->first; j <= h->last; j++) {
        float weight = expf(score(h, j) - top);
        const float *v = read_token(h, j, true);
        total += weight;
        for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
            out[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        out[d] /= total;
}

static void attend_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->pages.head_dim * sizeof(float);
}

// Query heads [first_head, last_head) of one row.
static void row_plain(const struct cpu_call *call, uint32_t r, uint32_t first_head, uint32_t last_head)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t position = step_positions(call->step)[r];
    struct head h = { .args = args,
                      .table = (const uint32_t *)cpu_base(call, ATTEND_TABLE) +
                               (uint64_t)step_slots(call->step)[r] * args->pages.max_pages,
                      .k_pages = cpu_base(call, ATTEND_K_PAGES),
                      .v_pages = cpu_base(call, ATTEND_V_PAGES),
                      .token = call->local,
                      .first = args->window && position >= args->window ? position - args->window + 1 : 0,
                      .last = position };

    for (uint32_t i = first_head; i < last_head; i++) {
        h.q = (const float *)cpu_row(call, ATTEND_Q, r) + i * args->pages.head_dim;
        h.kv_head = i / (args->n_heads / args->pages.n_kv_heads);
        head_plain(&h, (float *)cpu_row(call, ATTEND_OUT, r) + i * args->pages.head_dim);
    }
}

static void attend_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct attend_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++)
        row_plain(call, r, 0, args->n_heads);
}

// Fast: a tile is a KV head and a few rows of the step. Neighbouring rows of one sequence in it share what they read.
enum { MANY_ROWS = 16, ROWS_IN_TILE = 8 };

static uint32_t rows_in_tile(const struct cpu_call *call)
{
    return call->step->n_rows < MANY_ROWS ? 1 : ROWS_IN_TILE;
}

static void attend_plan_fast(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t n = rows_in_tile(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = (call->step->n_rows + n - 1) / n * args->pages.n_kv_heads;
    plan->local_bytes = attend_local_bytes(args->pages.head_dim);
}

// How many of the rows [r, end) follow each other in one sequence.
static uint32_t run_length(const struct step *s, uint32_t r, uint32_t end)
{
    uint32_t n = 1;

    while (r + n < end && step_slots(s)[r + n] == step_slots(s)[r] && step_positions(s)[r + n] == step_positions(s)[r] + n)
        n++;
    return n;
}

static void attend_tile(const struct cpu_call *call, uint32_t tile, const struct row_kernels *rows)
{
    const struct attend_args *args = cpu_args(call);
    const struct page_shape *s = &args->pages;
    uint32_t n = rows_in_tile(call), kv_head = tile % s->n_kv_heads, first = tile / s->n_kv_heads * n;
    uint32_t end = first + n < call->step->n_rows ? first + n : call->step->n_rows;
    uint32_t group = args->n_heads / s->n_kv_heads, column = kv_head * group * s->head_dim;
    bool plain = s->k_format > KV_F16 || s->k_format != s->v_format; // no vector kernels for these pages

    for (uint32_t r = first; plain && r < end; r++)
        row_plain(call, r, kv_head * group, (kv_head + 1) * group);
    for (uint32_t r = first, length; !plain && r < end; r += length) {
        length = run_length(call->step, r, end);
        rows->attend(&(struct attend_run){
            .args = args,
            .table = (const uint32_t *)cpu_base(call, ATTEND_TABLE) + (uint64_t)step_slots(call->step)[r] * s->max_pages,
            .k_pages = cpu_base(call, ATTEND_K_PAGES),
            .v_pages = cpu_base(call, ATTEND_V_PAGES),
            .q = (const float *)cpu_row(call, ATTEND_Q, r) + column,
            .out = (float *)cpu_row(call, ATTEND_OUT, r) + column,
            .stride = (size_t)args->n_heads * s->head_dim,
            .n_rows = length,
            .position = step_positions(call->step)[r],
            .kv_head = kv_head,
            .local = call->local,
        });
    }
}

static void attend_fast(const struct cpu_call *call, uint32_t first, uint32_t last, const struct row_kernels *rows)
{
    for (uint32_t tile = first; tile < last; tile++)
        attend_tile(call, tile, rows);
}
ROW_KERNELS(attend_fast)

const struct cpu_op cpu_op_attend = { .name = "attend",
                                      .plain = { attend_plan, attend_run },
                                      .fast = { ROW_CHOICES(attend_plan_fast, attend_fast) } };
