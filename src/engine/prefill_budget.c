// prefill_budget.c - see prefill_budget.h.
#include "engine/prefill_budget.h"
#include <math.h>
#include <stddef.h>

enum { MEASURE_EVERY = 32, FIRST_ROWS = 8 };
static const double FREE_NS = 1.6e7; // see prefill_budget.h

// What a step may take beyond its decode rows.
static double room_ns(const struct prefill_budget *p)
{
    double step_ns = p->stretch * p->decode_ns > FREE_NS ? p->stretch * p->decode_ns : FREE_NS;
    return step_ns - p->decode_ns;
}

double prefill_budget_ns(const struct prefill_budget *p, uint32_t n_decode)
{
    if (p->stretch <= 0 || n_decode == 0)
        return INFINITY;
    if (p->decode_ns == 0 || p->n_mixed >= MEASURE_EVERY)
        return 0;
    return room_ns(p) > 1 ? room_ns(p) : 1;
}

void prefill_budget_note_encoding(struct prefill_budget *p, uint32_t n_decode)
{
    p->n_mixed += n_decode > 0;
}

// Interpolates between the largest measured size that fits and the next one. If all fit: twice the largest,
// since on a GPU that can cost the same.
static double rows_within(const struct prefill_size *sizes, double room)
{
    const struct prefill_size *fits = NULL, *next = NULL;

    for (uint32_t i = 0; i < PREFILL_SIZES; i++) {
        const struct prefill_size *s = &sizes[i];
        if (s->rows == 0)
            continue;
        if (s->ns <= room) {
            fits = s;
            next = NULL;
        } else if (!next)
            next = s;
    }
    if (fits && next)
        return fits->rows + (next->rows - fits->rows) * (room - fits->ns) / (next->ns - fits->ns);
    if (fits)
        return 2 * fits->rows;
    return next ? next->rows * room / next->ns : FIRST_ROWS;
}

uint32_t prefill_budget_rows(const struct prefill_budget *p, uint32_t n_decode, uint32_t most)
{
    if (p->stretch <= 0 || n_decode == 0 || most == 0)
        return most;
    if (p->decode_ns == 0 || p->n_mixed >= MEASURE_EVERY)
        return 0;
    double rows = rows_within(p->sizes, room_ns(p));
    return rows < 1 ? 1 : rows < most ? (uint32_t)rows : most;
}

static uint32_t size_of(uint32_t n_rows)
{
    uint32_t i = 0;

    while (i + 1 < PREFILL_SIZES && 1u << i < n_rows)
        i++;
    return i;
}

static double follow(double known, double value)
{
    return known == 0 ? value : known + 0.3 * (value - known);
}

void prefill_budget_note(struct prefill_budget *p, uint32_t n_decode, uint32_t n_prefill, uint64_t ns)
{
    if (n_decode == 0)
        return;
    if (n_prefill == 0) {
        p->decode_ns = follow(p->decode_ns, (double)ns);
        p->n_mixed = 0;
        return;
    }
    struct prefill_size *size = &p->sizes[size_of(n_prefill)];
    // least: a floor for steps measured too fast
    double added = (double)ns - p->decode_ns, least = 0.02 * p->decode_ns;
    size->ns = follow(size->ns, added > least ? added : least);
    size->rows = follow(size->rows, n_prefill);
    p->n_mixed++;
}
