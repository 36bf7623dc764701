// pace.c - see pace.h.
#include "engine/pace.h"

enum { MEASURE_EVERY = 32, FIRST_ROWS = 8 };
static const double FREE_NS = 1e6; // nobody sees a millisecond, and a small model reads prompts at half its speed in small pieces

uint32_t pace_prompt_rows(const struct pace *p, uint32_t n_answers, uint32_t most)
{
    if (p->stretch <= 0 || n_answers == 0 || most == 0)
        return most;
    if (p->answers_ns == 0 || p->n_mixed >= MEASURE_EVERY)
        return 0;
    double step_ns = p->stretch * p->answers_ns > FREE_NS ? p->stretch * p->answers_ns : FREE_NS;
    double rows = p->row_ns > 0 ? (step_ns - p->answers_ns) / p->row_ns : FIRST_ROWS;
    double grown = 2.0 * p->last_rows + 1; // a guess that was far too good is found out before it hurts
    rows = rows > grown && p->last_rows > 0 ? grown : rows;
    return rows < 1 ? 1 : rows < most ? (uint32_t)rows : most;
}

static double follow(double known, double value)
{
    return known == 0 ? value : known + 0.3 * (value - known);
}

void pace_note(struct pace *p, uint32_t n_answers, uint32_t n_prompt_rows, uint64_t ns)
{
    if (n_answers == 0)
        return;
    if (n_prompt_rows == 0) {
        p->answers_ns = follow(p->answers_ns, (double)ns);
        p->n_mixed = 0;
        return;
    }
    double added = (double)ns - p->answers_ns, least = 0.02 * p->answers_ns; // a step that was faster than it can be
    p->row_ns = follow(p->row_ns, (added > least ? added : least) / n_prompt_rows);
    p->last_rows = n_prompt_rows;
    p->n_mixed++;
}
