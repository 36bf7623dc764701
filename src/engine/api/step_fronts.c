// step_fronts.c - see step_fronts.h.
//
// A play with m cuts that took longer than one without by e is taken to be late by e/m behind each of them.
// Where cuts lie a few whole layers apart, a play has them before commands of one kind, and e is these cuts'
// own price. What is kept of a front is its time less the share of the whole play that e's share there is;
// the same share of `end`, which is known only afterwards, is put back.
#include "engine/api/step_fronts.h"
#include "base/mem.h"
#include "base/stats.h"

bool fronts_open(struct fronts *f, uint32_t n_commands, uint32_t every, uint32_t n_plays, struct err *err)
{
    *f = (struct fronts){ .n_commands = n_commands, .every = every, .room = n_plays / every + 1 };
    f->n = mem_alloc_array(n_commands, sizeof *f->n);
    f->samples = mem_alloc_array((size_t)n_commands * f->room, sizeof *f->samples);
    return (f->n && f->samples) || err_memory(err, "the times of commands");
}

void fronts_close(struct fronts *f)
{
    mem_free(f->n);
    mem_free(f->samples);
    *f = (struct fronts){ 0 };
}

uint32_t fronts_n_cuts(uint32_t n_commands, const struct play_cuts *cuts)
{
    return cuts->first < n_commands ? (n_commands - 1 - cuts->first) / cuts->every + 1 : 0;
}

// The share of a play's cuts that lie before the one at a command.
static double share_before(const struct fronts *f, uint32_t command)
{
    struct play_cuts cuts = { .first = (command - 1) % f->every + 1, .every = f->every };
    return (double)((command - 1) / f->every) / fronts_n_cuts(f->n_commands, &cuts);
}

void fronts_add(struct fronts *f, uint32_t first, const double *ns)
{
    struct play_cuts cuts = { .first = first, .every = f->every };
    uint32_t n = fronts_n_cuts(f->n_commands, &cuts);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t command = first + i * f->every;
        if (f->n[command] < f->room)
            f->samples[(size_t)command * f->room + f->n[command]++] =
                ns[i] - share_before(f, command) * ns[n];
    }
}

// The nearest rising sequence: neighbours that fall, by the measurements' noise, get their mean.
static void make_rising(double *at, uint32_t *n, uint32_t count)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < count; i++, last++) {
        at[last] = at[i];
        n[last] = 1;
        for (; last > 0 && at[last - 1] > at[last]; last--) {
            at[last - 1] = (at[last - 1] * n[last - 1] + at[last] * n[last]) / (n[last - 1] + n[last]);
            n[last - 1] += n[last];
        }
    }
    for (uint32_t to = count; last-- > 0;)
        for (uint32_t i = n[last]; i > 0; i--)
            at[--to] = at[last];
}

bool fronts_solve(struct fronts *f, double begin, double end, double *ns, struct err *err)
{
    double *at = mem_alloc_array((size_t)f->n_commands + 1, sizeof *at);
    uint32_t *n = mem_alloc_array((size_t)f->n_commands + 1, sizeof *n);

    for (uint32_t i = 1; at && n && i < f->n_commands; i++) {
        double *samples = f->samples + (size_t)i * f->room,
               front = f->n[i] ? stats_interquartile_mean(samples, f->n[i]) + share_before(f, i) * end
                               : at[i - 1];
        at[i] = front < begin ? begin : front > end ? end : front;
    }
    if (at && n) {
        at[0] = begin;
        at[f->n_commands] = end;
        make_rising(at, n, f->n_commands + 1);
        for (uint32_t i = 0; i < f->n_commands; i++)
            ns[i] = at[i + 1] - at[i];
    }
    mem_free(at);
    mem_free(n);
    return (at && n) || err_memory(err, "the times of commands");
}
