// schema_language.c - a set of strings (regular.h) as an expression of GBNF: the characters between the
// quotes of a JSON string. A quote, a backslash and control characters stand there as escapes, all others as
// themselves.
//
// A term without "both", "not" and lengths is written directly: repetitions stay repetitions. Any other is
// written as its automaton: a state with one incoming edge is inlined, every other state is a rule.
// If an automaton is too large, its longest strings are excluded: a shorter limit makes it smaller, and stays
// within the schema.
#include "text/grammar/gbnf.h"
#include "text/grammar/schema_language.h"
#include "base/mem.h"

enum { MAX_INLINE = 32, MAX_STEPS = 1 << 16, SIZED_STATES = 1 << 12, SHORTEST_LIMIT = 32 };

// ---- characters

static void write_code(struct buf *out, uint32_t cp)
{
    buf_printf(out, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

// The escape of a character that cannot stand for itself, as a literal of GBNF; NULL: it can.
static const char *json_escape(uint32_t cp, char room[24])
{
    static const char named[] = "b\bf\fn\nr\rt\t";

    if (cp == '"' || cp == '\\')
        snprintf(room, 24, "\"\\\\%s\"", cp == '"' ? "\\\"" : "\\\\");
    else if (cp >= 0x20 && cp != 0x7f)
        return NULL;
    else
        snprintf(room, 24, "\"\\\\u%04x\"", cp);
    for (size_t i = 0; i + 1 < sizeof named - 1; i += 2)
        if ((uint32_t)named[i + 1] == cp)
            snprintf(room, 24, "\"\\\\%c\"", named[i]);
    return room;
}

static void write_plain_range(struct buf *out, struct regular_range r)
{
    static const struct regular_range plain[] = {
        { 0x20, 0x21 }, { 0x23, 0x5b }, { 0x5d, 0x7e }, { 0x80, 0xd7ff }, { 0xe000, REGULAR_LAST_CODE }
    };

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct regular_range both = { r.first > plain[i].first ? r.first : plain[i].first,
                                      r.last < plain[i].last ? r.last : plain[i].last };
        if (both.first > both.last)
            continue;
        write_code(out, both.first);
        buf_text(out, "-");
        write_code(out, both.last);
    }
}

// One character of these ranges.
static void write_set(struct buf *out, const struct regular_range *ranges, uint32_t n)
{
    struct buf plain = { 0 };
    const char *between = "";
    char room[24];

    if (n == 1 && ranges[0].first == 0 && ranges[0].last == REGULAR_LAST_CODE) {
        buf_text(out, "char");
        return;
    }
    buf_text(out, "(");
    for (uint32_t i = 0; i < n; i++)
        write_plain_range(&plain, ranges[i]);
    if (plain.n > 0) {
        buf_printf(out, "[%s]", plain.at);
        between = " | ";
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t cp = ranges[i].first; cp <= ranges[i].last && cp < 0x80; cp++) {
            const char *escape = json_escape(cp, room);
            if (!escape)
                continue;
            buf_printf(out, "%s%s", between, escape);
            between = " | ";
        }
    buf_text(out, ")");
    out->failed |= plain.failed;
    buf_free(&plain);
}

// ---- as written

static void write_term(const struct regular *r, uint32_t term, struct buf *to)
{
    struct regular_term t = r->terms[term];
    const enum regular_kind kind = t.kind;

    switch (kind) {
    case REGULAR_SET:
        write_set(to, r->ranges + r->sets[t.a].first, r->sets[t.a].n);
        return;
    case REGULAR_REPEAT:
        buf_text(to, r->terms[t.a].kind == REGULAR_REPEAT ? "(" : "");
        write_term(r, t.a, to);
        buf_text(to, r->terms[t.a].kind == REGULAR_REPEAT ? ")" : "");
        gbnf_times(to, t.least, t.most);
        return;
    case REGULAR_SEQUENCE:
    case REGULAR_EITHER:
        buf_text(to, "(");
        for (bool more = true; more; t = r->terms[term]) {
            write_term(r, t.a, to);
            buf_text(to, kind == REGULAR_EITHER ? " | " : " ");
            term = t.b;
            more = r->terms[term].kind == kind;
        }
        write_term(r, term, to);
        buf_text(to, ")");
        return;
    default:
        buf_text(to, "\"\"");
        return;
    }
}

// ---- lengths

struct lengths {
    uint64_t least, most;
};

static struct lengths cut(struct lengths l)
{
    return (struct lengths){ l.least < UINT32_MAX ? l.least : UINT32_MAX,
                             l.most < UINT32_MAX ? l.most : UINT32_MAX };
}

// The shortest and longest string of a term without "both" and "not". n_steps bounds the work on shared
// terms.
static struct lengths lengths_of(const struct regular *r, uint32_t term, uint32_t *n_steps)
{
    const struct regular_term *t = &r->terms[term];
    struct lengths a, b;

    if (++*n_steps > MAX_STEPS)
        return (struct lengths){ 0, UINT32_MAX };
    switch ((enum regular_kind)t->kind) {
    case REGULAR_SET:
        return (struct lengths){ 1, 1 };
    case REGULAR_SEQUENCE:
    case REGULAR_EITHER:
        a = lengths_of(r, t->a, n_steps);
        b = lengths_of(r, t->b, n_steps);
        if (t->kind == REGULAR_EITHER)
            return (struct lengths){ a.least < b.least ? a.least : b.least,
                                     a.most > b.most ? a.most : b.most };
        return cut((struct lengths){ a.least + b.least, a.most + b.most });
    case REGULAR_REPEAT:
        a = lengths_of(r, t->a, n_steps);
        return cut((struct lengths){ a.least * t->least, a.most * t->most });
    default:
        return (struct lengths){ 0, 0 };
    }
}

static bool is_run(const struct regular *r, uint32_t term) // of one set
{
    const struct regular_term *t = &r->terms[term];
    return t->kind == REGULAR_REPEAT && t->least != t->most && r->terms[t->a].kind == REGULAR_SET;
}

// Tries to turn the length limits of a sequence with one run of variable length into the limits of that run.
// False: there is no such run.
static bool fit_run(struct regular *r, uint32_t term, struct lengths all, uint32_t *fitted)
{
    struct regular_term t = r->terms[term];
    bool list = t.kind == REGULAR_SEQUENCE;
    uint32_t head = list ? t.a : term, rest = list ? t.b : TERM_EMPTY, n_steps = 0;
    struct lengths one = lengths_of(r, is_run(r, head) ? rest : head, &n_steps);

    if (r->terms[term].is_boolean || one.least != one.most)
        return false;
    all.least -= all.least < one.least ? all.least : one.least;
    if (all.most < one.most) {
        *fitted = TERM_NOTHING;
        return true;
    }
    all.most -= all.most == UINT32_MAX ? 0 : one.most;
    if (!is_run(r, head)) {
        if (!list || !fit_run(r, rest, all, fitted))
            return false;
        *fitted = regular_sequence(r, head, *fitted);
        return true;
    }
    t = r->terms[head];
    uint64_t least = t.least > all.least ? t.least : all.least, most = t.most < all.most ? t.most : all.most;
    *fitted = least > most
                  ? TERM_NOTHING
                  : regular_sequence(r, regular_repeat(r, t.a, (uint32_t)least, (uint32_t)most), rest);
    return true;
}

// ---- as an automaton

struct states {
    struct writer *w;
    const struct automaton *m;
    uint32_t *n_ways;  // [n_states] into it
    uint32_t *rule;    // [n_states] 0: none yet
    uint32_t *pending; // [n_pending] states whose rules are not written yet
    uint32_t n_pending;
    struct regular_range *ranges; // [n_pieces] room
    struct buf *to;
};

static bool write_state(struct states *s, uint32_t state, uint32_t depth);

static bool write_next(struct states *s, uint32_t state, uint32_t depth)
{
    if (s->n_ways[state] == 1 && !s->rule[state] && depth < MAX_INLINE) {
        buf_text(s->to, " (");
        bool ok = write_state(s, state, depth + 1);
        return buf_text(s->to, ")") && ok;
    }
    if (!s->rule[state]) {
        if (!schema_rule_new(s->w, &s->rule[state]))
            return false;
        s->pending[s->n_pending++] = state;
    }
    return buf_printf(s->to, " %s-%u", s->w->name, s->rule[state]);
}

// The characters that lead from one state to another.
static uint32_t collect_ranges(const struct states *s, const uint32_t *step, uint32_t next)
{
    const struct automaton *m = s->m;
    uint32_t n = 0;

    for (uint32_t p = 0; p < m->n_pieces; p++) {
        if (step[m->symbol_of[p]] != next)
            continue;
        uint32_t next_code = n ? s->ranges[n - 1].last + 1 : UINT32_MAX;
        if (m->pieces[p].first == (next_code == 0xd800 ? 0xe000 : next_code))
            s->ranges[n - 1].last = m->pieces[p].last;
        else
            s->ranges[n++] = m->pieces[p];
    }
    return n;
}

static bool write_state(struct states *s, uint32_t state, uint32_t depth)
{
    const struct automaton *m = s->m;
    const uint32_t *step = m->step + (size_t)state * m->n_symbols;
    const char *between = "";

    if (m->ends[state]) {
        buf_text(s->to, "\"\"");
        between = " | ";
    }
    for (uint32_t i = 0; i < m->n_symbols; i++) {
        bool seen = step[i] == UINT32_MAX;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = step[k] == step[i];
        if (seen)
            continue;
        buf_text(s->to, between);
        write_set(s->to, s->ranges, collect_ranges(s, step, step[i]));
        if (!write_next(s, step[i], depth))
            return false;
        between = " | ";
    }
    return true;
}

static void count_ways(const struct automaton *m, uint32_t *n_ways)
{
    n_ways[0] = 1;
    for (uint32_t q = 0; q < m->n_states; q++)
        for (uint32_t i = 0; i < m->n_symbols; i++) {
            const uint32_t *step = m->step + (size_t)q * m->n_symbols;
            bool again = step[i] == UINT32_MAX;
            for (uint32_t k = 0; k < i && !again; k++)
                again = step[k] == step[i];
            if (!again)
                n_ways[step[i]]++;
        }
}

static bool write_automaton(struct writer *w, const struct automaton *m, struct buf *to)
{
    struct states s = { .w = w, .m = m, .to = to };
    bool ok;

    s.n_ways = mem_alloc_array(m->n_states, sizeof *s.n_ways);
    s.rule = mem_alloc_array(m->n_states, sizeof *s.rule);
    s.pending = mem_alloc_array(m->n_states, sizeof *s.pending);
    s.ranges = mem_alloc_array(m->n_pieces, sizeof *s.ranges);
    ok = (s.n_ways && s.rule && s.pending && s.ranges) || err_memory(w->err, "a schema");
    if (ok) {
        count_ways(m, s.n_ways);
        buf_text(to, "(");
        ok = write_next(&s, 0, 0);
        buf_text(to, ")");
    }
    while (ok && s.n_pending > 0) {
        struct buf body = { 0 };
        uint32_t state = s.pending[--s.n_pending];
        s.to = &body;
        ok = write_state(&s, state, 0);
        ok = schema_rule_write(w, s.rule[state], &body) && ok;
    }
    mem_free(s.n_ways);
    mem_free(s.rule);
    mem_free(s.pending);
    mem_free(s.ranges);
    return ok;
}

// ---- both

static enum automaton_result make(struct regular *r, uint32_t term, struct lengths all, struct automaton *m)
{
    uint32_t most = all.most >= UINT32_MAX ? UINT32_MAX : (uint32_t)all.most;
    uint32_t sized = regular_both(r, term, regular_repeat(r, TERM_ANY, (uint32_t)all.least, most));
    enum automaton_result result = automaton_make(m, r, sized);

    if (result != AUTOMATON_MADE)
        automaton_free(m);
    return result;
}

// With lengths, an automaton has its states once per character of length. If these are too many, the longest
// strings are excluded.
static enum automaton_result make_bounded(struct regular *r, uint32_t term, struct lengths all,
                                          struct automaton *m)
{
    enum automaton_result result = automaton_make(m, r, term);
    uint64_t most = 2 * SHORTEST_LIMIT, n_states = result == AUTOMATON_MADE ? m->n_states : 0;

    automaton_free(m);
    if (result == AUTOMATON_EMPTY)
        return result;
    if (n_states && n_states * (all.most == UINT32_MAX ? all.least : all.most) <= 16 * SIZED_STATES &&
        (result = make(r, term, all, m)) != AUTOMATON_TOO_LARGE)
        return result;
    if (n_states && SIZED_STATES / n_states > most)
        most = SIZED_STATES / n_states;
    result = AUTOMATON_TOO_LARGE;
    for (; result == AUTOMATON_TOO_LARGE && most >= SHORTEST_LIMIT && most >= all.least; most /= 2)
        result = make(r, term, (struct lengths){ all.least, most < all.most ? most : all.most }, m);
    return result;
}

bool schema_language(struct writer *w, struct regular *r, struct language l, struct buf *to)
{
    struct lengths all = { l.least, l.most };
    struct automaton m;
    uint32_t n_steps = 0, term = l.term;

    if (!r->terms[term].is_boolean) {
        struct lengths own = lengths_of(r, term, &n_steps);
        bool fits = own.least >= all.least && own.most <= all.most;
        if (term != TERM_NOTHING && (fits || fit_run(r, term, all, &term))) {
            if (term == TERM_NOTHING)
                return schema_nothing(w, "no string has the pattern and the lengths at once");
            write_term(r, term, to);
            return !r->full || schema_refuse(w, "pattern: it is too large");
        }
    }
    enum automaton_result result = make_bounded(r, term, all, &m);
    if (result == AUTOMATON_EMPTY)
        return schema_nothing(w, "no string has the pattern, the format and the lengths at once");
    if (result == AUTOMATON_TOO_LARGE)
        return schema_refuse(w,
                             "pattern, format and lengths of one string take more than 8192 states together");
    bool ok = write_automaton(w, &m, to);
    automaton_free(&m);
    return ok;
}
