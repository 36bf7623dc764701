// prefill_budget.c - see prefill_budget.h.
#include "engine/prefill_budget.h"
#include <math.h>

enum { MEASURE_EVERY = 32, FIRST_ROWS = 8 };
static const double FREE_NS = 1e6; // see prefill_budget.h

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

uint32_t prefill_budget_rows(const struct prefill_budget *p, uint32_t n_decode, uint32_t most)
{
    if (p->stretch <= 0 || n_decode == 0 || most == 0)
        return most;
    if (p->decode_ns == 0 || p->n_mixed >= MEASURE_EVERY)
        return 0;
    double rows = p->row_ns > 0 ? room_ns(p) / p->row_ns : FIRST_ROWS;
    double grown = 2.0 * p->last_rows + 1; // growth is limited, because row_ns may be far too low
    rows = rows > grown && p->last_rows > 0 ? grown : rows;
    return rows < 1 ? 1 : rows < most ? (uint32_t)rows : most;
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
    // least: a floor for steps measured too fast
    double added = (double)ns - p->decode_ns, least = 0.02 * p->decode_ns;
    p->row_ns = follow(p->row_ns, (added > least ? added : least) / n_prefill);
    p->last_rows = n_prefill;
    p->n_mixed++;
}
