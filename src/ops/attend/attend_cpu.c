// attend_cpu.c - the definition: two passes over the past, the maximum first.
#include <math.h>
#include "ops/attend/attend.h"
#include "ops/rows.h"

struct head { // one query head of one row, and where its sequence's pages are
    const struct attend_args *args;
    const uint32_t *table;
    const void *k_pages, *v_pages;
    const float *q;
    uint32_t kv_head, first, last; // positions first..last
};

static uint64_t token_at(const struct head *h, uint32_t position)
{
    const struct page_shape *s = &h->args->pages;
    return page_at(s->n_kv_heads, s->head_dim, h->table[position / PAGE_TOKENS], h->kv_head, position % PAGE_TOKENS);
}

static float page_value(const struct head *h, const void *pages, uint64_t at)
{
    return h->args->pages.format == KV_F32 ? ((const float *)pages)[at] : quant_half_to_float(((const uint16_t *)pages)[at]);
}

static float score(const struct head *h, uint32_t position)
{
    uint64_t at = token_at(h, position);
    float sum = 0;

    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        sum += h->q[d] * page_value(h, h->k_pages, at + d);
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
        uint64_t at = token_at(h, j);
        total += weight;
        for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
            out[d] += weight * page_value(h, h->v_pages, at + d);
    }
    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        out[d] /= total;
}

static void attend_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct attend_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        uint32_t position = step_positions(call->step)[r];
        struct head h = { .args = args,
                          .table = (const uint32_t *)cpu_base(call, ATTEND_TABLE) +
                                   (uint64_t)step_slots(call->step)[r] * args->pages.max_pages,
                          .k_pages = cpu_base(call, ATTEND_K_PAGES),
                          .v_pages = cpu_base(call, ATTEND_V_PAGES),
                          .first = args->window && position >= args->window ? position - args->window + 1 : 0,
                          .last = position };
        for (uint32_t i = 0; i < args->n_heads; i++) {
            h.q = (const float *)cpu_row(call, ATTEND_Q, r) + i * args->pages.head_dim;
            h.kv_head = i / (args->n_heads / args->pages.n_kv_heads);
            head_plain(&h, (float *)cpu_row(call, ATTEND_OUT, r) + i * args->pages.head_dim);
        }
    }
}

const struct cpu_op cpu_op_attend = { .name = "attend", .plain = { plan_rows, attend_run } };
