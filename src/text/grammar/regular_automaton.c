// regular_automaton.c - the automaton of a term: its states are the term's Brzozowski derivatives.
//
// Code points that are in the same sets are one symbol. The derivative of a term by a symbol is the set of
// strings that may follow it; each is computed once. States that cannot reach an end are removed, so that
// every walk of the automaton can reach one.
#include <stdlib.h>
#include "base/mem.h"
#include "text/grammar/regular.h"
#include "text/utf8.h"

enum { MAX_SYMBOLS = 512, NO_STATE = UINT32_MAX };

struct derivation {
    struct regular *r;
    struct automaton *m;
    uint8_t *set_has;  // [n_sets][n_symbols]
    uint64_t *known;   // hash table of (term, symbol) + 1, open addressing
    uint32_t *results; // [as known]
    uint32_t known_size, n_known;
    uint32_t *state_of; // [REGULAR_MAX_TERMS] plus 1
};

// ---- symbols

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool set_has_code(const struct regular *r, uint32_t set, uint32_t cp)
{
    const struct regular_range *at = r->ranges + r->sets[set].first;
    uint32_t low = 0, high = r->sets[set].n;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (cp > at[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->sets[set].n && cp >= at[low].first;
}

// Cuts the code points at the beginnings and ends of sets.
static bool make_pieces(struct automaton *m, const struct regular *r)
{
    uint32_t *cuts = mem_alloc_array(2 * r->n_ranges + 3, sizeof *cuts), n = 0;

    m->pieces = mem_alloc_array(2 * r->n_ranges + 3, sizeof *m->pieces);
    m->symbol_of = mem_alloc_array(2 * r->n_ranges + 3, sizeof *m->symbol_of);
    if (cuts && m->pieces && m->symbol_of) {
        cuts[n++] = 0;
        cuts[n++] = 0xd800; // surrogates: in no string
        cuts[n++] = 0xe000;
        for (uint32_t i = 0; i < r->n_ranges; i++) {
            cuts[n++] = r->ranges[i].first;
            cuts[n++] = r->ranges[i].last + 1;
        }
        qsort(cuts, n, sizeof *cuts, by_number);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t last = (i + 1 < n ? cuts[i + 1] : REGULAR_LAST_CODE + 1) - 1;
            if (cuts[i] <= REGULAR_LAST_CODE && cuts[i] != 0xd800 && (i + 1 == n || cuts[i + 1] > cuts[i]))
                m->pieces[m->n_pieces++] = (struct regular_range){ cuts[i], last };
        }
    }
    mem_free(cuts);
    return n > 0;
}

// Pieces that are in the same sets become one symbol.
static bool make_symbols(struct derivation *d)
{
    struct automaton *m = d->m;
    uint32_t n_sets = d->r->n_sets;
    uint8_t *column = mem_alloc(n_sets), *columns = mem_alloc_array(MAX_SYMBOLS, n_sets);

    for (uint32_t p = 0; column && columns && p < m->n_pieces && m->n_symbols <= MAX_SYMBOLS; p++) {
        uint32_t s = 0;
        for (uint32_t i = 0; i < n_sets; i++)
            column[i] = set_has_code(d->r, i, m->pieces[p].first);
        while (s < m->n_symbols && memcmp(columns + (size_t)s * n_sets, column, n_sets) != 0)
            s++;
        if (s < MAX_SYMBOLS)
            memcpy(columns + (size_t)s * n_sets, column, n_sets);
        m->n_symbols += s == m->n_symbols;
        m->symbol_of[p] = s;
    }
    mem_free(column);
    d->set_has = columns;
    return column && columns && m->n_symbols <= MAX_SYMBOLS;
}

// ---- derivatives

static uint32_t derive(struct derivation *d, uint32_t term, uint32_t symbol);

static uint32_t derive_sequence(struct derivation *d, struct regular_term t, uint32_t symbol)
{
    uint32_t after = regular_sequence(d->r, derive(d, t.a, symbol), t.b);

    return d->r->terms[t.a].nullable ? regular_either(d->r, after, derive(d, t.b, symbol)) : after;
}

// Lists can be long, so they are walked without recursion.
static uint32_t derive_list(struct derivation *d, struct regular_term t, uint32_t symbol)
{
    const enum regular_kind kind = t.kind;
    const uint32_t base = d->r->n_stack;
    uint32_t n = 1;

    regular_push(d->r, derive(d, t.a, symbol));
    for (; d->r->terms[t.b].kind == kind; n++) {
        t = d->r->terms[t.b];
        regular_push(d->r, derive(d, t.a, symbol));
    }
    regular_push(d->r, derive(d, t.b, symbol));
    uint32_t result = d->r->full ? TERM_NOTHING : regular_join(d->r, kind, base, n + 1);
    d->r->n_stack = base;
    return result;
}

static uint32_t derive_anew(struct derivation *d, struct regular_term t, uint32_t symbol)
{
    switch ((enum regular_kind)t.kind) {
    case REGULAR_SET:
        return d->set_has[(size_t)symbol * d->r->n_sets + t.a] ? TERM_EMPTY : TERM_NOTHING;
    case REGULAR_SEQUENCE:
        return derive_sequence(d, t, symbol);
    case REGULAR_EITHER:
    case REGULAR_BOTH:
        return derive_list(d, t, symbol);
    case REGULAR_NOT:
        return regular_not(d->r, derive(d, t.a, symbol));
    case REGULAR_REPEAT:
        return regular_sequence(
            d->r, derive(d, t.a, symbol),
            regular_repeat(d->r, t.a, t.least ? t.least - 1 : 0, t.most == UINT32_MAX ? t.most : t.most - 1));
    default:
        return TERM_NOTHING;
    }
}

static uint64_t *known_place(const struct derivation *d, uint64_t key)
{
    uint64_t at = (key * 0x9e3779b97f4a7c15u >> 20) & (d->known_size - 1);

    while (d->known[at] && d->known[at] != key)
        at = (at + 1) & (d->known_size - 1);
    return &d->known[at];
}

static bool known_make_room(struct derivation *d)
{
    struct derivation more = *d;

    if (2 * d->n_known < d->known_size)
        return true;
    more.known_size = d->known_size ? 2 * d->known_size : 1024;
    more.known = mem_alloc_array(more.known_size, sizeof *more.known);
    more.results = mem_alloc_array(more.known_size, sizeof *more.results);
    for (uint32_t i = 0; more.known && more.results && i < d->known_size; i++) {
        uint64_t *place = d->known[i] ? known_place(&more, d->known[i]) : NULL;
        if (place) {
            *place = d->known[i];
            more.results[place - more.known] = d->results[i];
        }
    }
    bool ok = more.known && more.results;
    mem_free(ok ? d->known : more.known);
    mem_free(ok ? d->results : more.results);
    *d = ok ? more : *d;
    return ok;
}

static uint32_t derive(struct derivation *d, uint32_t term, uint32_t symbol)
{
    uint64_t key = ((uint64_t)term << 16 | symbol) + 1, *place;

    if (term <= TERM_EMPTY || term == TERM_ALL)
        return term == TERM_ALL ? TERM_ALL : TERM_NOTHING;
    d->r->full |= d->r->work++ > REGULAR_MAX_WORK || !known_make_room(d);
    if (d->r->full)
        return TERM_NOTHING;
    place = known_place(d, key);
    if (*place)
        return d->results[place - d->known];
    uint32_t result = derive_anew(d, d->r->terms[term], symbol);
    d->r->full |= !known_make_room(d);
    if (d->r->full)
        return TERM_NOTHING;
    place = known_place(d, key); // it may have moved
    *place = key;
    d->results[place - d->known] = result;
    d->n_known++;
    return result;
}

// ---- states

static uint32_t state_number(struct derivation *d, uint32_t term)
{
    struct automaton *m = d->m;

    if (term == TERM_NOTHING || d->r->full)
        return NO_STATE;
    if (!d->state_of[term]) {
        if (m->n_states == REGULAR_MAX_STATES) {
            d->r->full = true;
            return NO_STATE;
        }
        m->term[m->n_states] = term;
        m->ends[m->n_states] = d->r->terms[term].nullable;
        d->state_of[term] = ++m->n_states;
    }
    return d->state_of[term] - 1;
}

static bool make_states(struct derivation *d, uint32_t term)
{
    struct automaton *m = d->m;
    struct buf steps = { 0 };

    m->term = mem_alloc_array(REGULAR_MAX_STATES, sizeof *m->term);
    m->ends = mem_alloc_array(REGULAR_MAX_STATES, sizeof *m->ends);
    d->state_of = mem_alloc_array(REGULAR_MAX_TERMS, sizeof *d->state_of);
    d->r->full |= !m->term || !m->ends || !d->state_of;
    if (!d->r->full)
        state_number(d, term);
    for (uint32_t q = 0; q < m->n_states && !d->r->full; q++)
        for (uint32_t s = 0; s < m->n_symbols && !d->r->full; s++) {
            uint32_t next = state_number(d, derive(d, m->term[q], s));
            buf_append(&steps, &next, sizeof next);
            d->r->full |= steps.failed;
        }
    m->step = d->r->full || !steps.n ? NULL : mem_alloc_array(steps.n, 1);
    d->r->full |= steps.n && !m->step;
    if (m->step)
        memcpy(m->step, steps.at, steps.n);
    buf_free(&steps);
    return !d->r->full;
}

// Marks the states that can reach an end, backwards along the transitions.
static bool mark_live(const struct automaton *m, bool *live)
{
    size_t n_steps = (size_t)m->n_states * m->n_symbols;
    uint32_t *first = mem_alloc_array(m->n_states + 2, sizeof *first),
             *from = mem_alloc_array(n_steps + 1, sizeof *from);
    uint32_t *todo = mem_alloc_array(m->n_states, sizeof *todo), n = 0;
    bool ok = first && from && todo;

    for (size_t i = 0; ok && i < n_steps; i++)
        if (m->step[i] != NO_STATE)
            first[m->step[i] + 2]++;
    for (uint32_t q = 0; ok && q < m->n_states; q++)
        first[q + 2] += first[q + 1];
    for (size_t i = 0; ok && i < n_steps; i++)
        if (m->step[i] != NO_STATE)
            from[first[m->step[i] + 1]++] = (uint32_t)(i / m->n_symbols);
    for (uint32_t q = 0; ok && q < m->n_states; q++)
        if ((live[q] = m->ends[q]))
            todo[n++] = q;
    while (n > 0) {
        uint32_t q = todo[--n];
        for (uint32_t i = first[q]; i < first[q + 1]; i++) {
            if (live[from[i]])
                continue;
            live[from[i]] = true;
            todo[n++] = from[i];
        }
    }
    mem_free(first);
    mem_free(from);
    mem_free(todo);
    return ok;
}

static bool leave_out_dead(struct automaton *m)
{
    bool *live = mem_alloc_array(m->n_states + 1, sizeof *live);
    uint32_t *place = mem_alloc_array(m->n_states + 1, sizeof *place), kept = 0;
    bool ok = live && place && mark_live(m, live);

    for (uint32_t q = 0; ok && q < m->n_states; q++)
        place[q] = live[q] ? kept++ : NO_STATE;
    for (uint32_t q = 0; ok && q < m->n_states; q++) {
        if (!live[q])
            continue;
        for (uint32_t s = 0; s < m->n_symbols; s++) {
            uint32_t next = m->step[(size_t)q * m->n_symbols + s];
            m->step[(size_t)place[q] * m->n_symbols + s] = next == NO_STATE ? NO_STATE : place[next];
        }
        m->ends[place[q]] = m->ends[q];
        m->term[place[q]] = m->term[q];
    }
    if (ok)
        m->n_states = place[0] == 0 ? kept : 0;
    mem_free(live);
    mem_free(place);
    return ok;
}

enum automaton_result automaton_make(struct automaton *m, struct regular *r, uint32_t term)
{
    struct derivation d = { .r = r, .m = m };

    *m = (struct automaton){ 0 };
    bool ok = !r->full && make_pieces(m, r) && make_symbols(&d) && make_states(&d, term);
    ok = ok && (m->n_states == 0 || leave_out_dead(m));
    r->full = false; // the terms are valid; the caller may try a smaller automaton
    mem_free(d.set_has);
    mem_free(d.known);
    mem_free(d.results);
    mem_free(d.state_of);
    return !ok ? AUTOMATON_TOO_LARGE : m->n_states ? AUTOMATON_MADE : AUTOMATON_EMPTY;
}

void automaton_free(struct automaton *m)
{
    mem_free(m->step);
    mem_free(m->term);
    mem_free(m->ends);
    mem_free(m->symbol_of);
    mem_free(m->pieces);
    *m = (struct automaton){ 0 };
}

static uint32_t symbol_at(const struct automaton *m, uint32_t cp)
{
    uint32_t low = 0, high = m->n_pieces;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (cp > m->pieces[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return m->symbol_of[low];
}

bool automaton_takes(const struct automaton *m, struct str text)
{
    uint32_t state = m->n_states ? 0 : NO_STATE, cp;

    for (size_t i = 0; i < text.n && state != NO_STATE;) {
        i += utf8_read(text.at + i, text.n - i, &cp);
        state = cp <= REGULAR_LAST_CODE ? m->step[(size_t)state * m->n_symbols + symbol_at(m, cp)] : NO_STATE;
    }
    return state != NO_STATE && m->ends[state];
}
