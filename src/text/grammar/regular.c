// regular.c - see regular.h: making terms.
//
// Each constructor normalises its term (sorted lists without duplicates or absorbed members). That makes the
// number of derivatives of a term finite, by Brzozowski's theorem, and small.
#include "text/grammar/regular.h"
#include <stdlib.h>
#include "base/mem.h"
#include "text/utf8.h"

// ---- terms by number

static uint64_t hash_term(const struct regular_term *t)
{
    uint64_t h = t->kind;
    uint32_t words[] = { t->a, t->b, t->least, t->most };

    for (size_t i = 0; i < 4; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static bool same_term(const struct regular_term *x, const struct regular_term *y)
{
    return x->kind == y->kind && x->a == y->a && x->b == y->b && x->least == y->least && x->most == y->most;
}

static bool make_room(struct regular *r)
{
    if (r->n_terms == r->capacity) {
        uint32_t capacity = r->capacity ? 2 * r->capacity : 256;
        struct regular_term *terms =
            capacity > REGULAR_MAX_TERMS ? NULL : mem_realloc(r->terms, capacity * sizeof *terms);
        if (!terms)
            return false;
        r->terms = terms;
        r->capacity = capacity;
    }
    return hash_index_reserve(&r->index);
}

static uint32_t term_number(struct regular *r, struct regular_term t)
{
    if (!make_room(r))
        r->full = true;
    if (r->full)
        return TERM_NOTHING;
    uint64_t hash = hash_term(&t);
    for (struct hash_probe p = { 0 }; hash_index_next(&r->index, hash, &p);)
        if (same_term(&r->terms[p.number], &t))
            return p.number;
    r->terms[r->n_terms] = t;
    hash_index_add(&r->index, hash, r->n_terms);
    return r->n_terms++;
}

struct regular *regular_create(void)
{
    struct regular *r = mem_alloc(sizeof *r);
    struct regular_range any = { 0, REGULAR_LAST_CODE };

    if (!r)
        return NULL;
    term_number(r, (struct regular_term){ .kind = REGULAR_NOTHING });
    term_number(r, (struct regular_term){ .kind = REGULAR_EMPTY, .nullable = true });
    regular_set(r, &any, 1);
    if (!r->full)
        regular_repeat(r, TERM_ANY, 0, UINT32_MAX);
    if (!r->full)
        return r;
    regular_free(r);
    return NULL;
}

void regular_free(struct regular *r)
{
    if (!r)
        return;
    mem_free(r->terms);
    hash_index_free(&r->index);
    mem_free(r->stack);
    mem_free(r);
}

void regular_push(struct regular *r, uint32_t term)
{
    if (r->n_stack == r->stack_capacity) {
        uint32_t capacity = r->stack_capacity ? 2 * r->stack_capacity : 256,
                 *more = mem_realloc(r->stack, capacity * sizeof *more);
        if (!more) {
            r->full = true;
            return;
        }
        r->stack = more;
        r->stack_capacity = capacity;
    }
    r->stack[r->n_stack++] = term;
}

// ---- sets of characters

static int by_first(const void *a, const void *b)
{
    const struct regular_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Strings have no surrogates: ranges do not begin or end within them.
static uint32_t cut_surrogates(struct regular_range *ranges, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = ranges[i].first, last = ranges[i].last;
        first = first >= 0xd800 && first <= 0xdfff ? 0xe000 : first;
        last = last >= 0xd800 && last <= 0xdfff ? 0xd7ff : last;
        if (first <= last)
            ranges[kept++] = (struct regular_range){ first, last };
    }
    return kept;
}

uint32_t regular_set(struct regular *r, struct regular_range *ranges, uint32_t n)
{
    uint32_t kept = 0;

    n = cut_surrogates(ranges, n);
    qsort(ranges, n, sizeof *ranges, by_first);
    for (uint32_t i = 0; i < n; i++) {
        if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last)
                ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    if (kept == 0)
        return TERM_NOTHING;
    for (uint32_t s = 0; s < r->n_sets; s++)
        if (r->sets[s].n == kept && !memcmp(r->ranges + r->sets[s].first, ranges, kept * sizeof *ranges))
            return term_number(r, (struct regular_term){ .kind = REGULAR_SET, .a = s });
    if (r->n_sets == REGULAR_MAX_SETS || kept > REGULAR_MAX_RANGES - r->n_ranges) {
        r->full = true;
        return TERM_NOTHING;
    }
    memcpy(r->ranges + r->n_ranges, ranges, kept * sizeof *ranges);
    r->sets[r->n_sets] = (struct regular_set){ r->n_ranges, kept };
    r->n_ranges += kept;
    return term_number(r, (struct regular_term){ .kind = REGULAR_SET, .a = r->n_sets++ });
}

uint32_t regular_text(struct regular *r, struct str text)
{
    uint32_t codes = 0, term = TERM_EMPTY, cp;
    struct buf list = { 0 };

    for (size_t i = 0; i < text.n; codes++) {
        i += utf8_read(text.at + i, text.n - i, &cp);
        buf_append(&list, &cp, sizeof cp);
    }
    r->full |= list.failed;
    while (codes-- > 0 && !r->full) {
        memcpy(&cp, list.at + codes * sizeof cp, sizeof cp);
        term = regular_sequence(r, regular_set(r, &(struct regular_range){ cp, cp }, 1), term);
    }
    buf_free(&list);
    return term;
}

// ---- composed terms

static uint32_t make(struct regular *r, struct regular_term t)
{
    const struct regular_term *a = &r->terms[t.a], *b = &r->terms[t.b];

    t.is_boolean |= a->is_boolean || b->is_boolean;
    t.asserts |= a->asserts || b->asserts;
    return term_number(r, t);
}

uint32_t regular_sequence(struct regular *r, uint32_t a, uint32_t b)
{
    struct regular_term first = r->terms[a];

    if (a == TERM_NOTHING || b == TERM_NOTHING)
        return TERM_NOTHING;
    if (a == TERM_EMPTY || b == TERM_EMPTY)
        return a == TERM_EMPTY ? b : a;
    if (a == TERM_ALL &&
        (b == TERM_ALL || (r->terms[b].kind == REGULAR_SEQUENCE && r->terms[b].a == TERM_ALL)))
        return b;
    if (first.kind == REGULAR_SEQUENCE)
        return regular_sequence(r, first.a, regular_sequence(r, first.b, b));
    return make(r, (struct regular_term){ .kind = REGULAR_SEQUENCE,
                                          .a = a,
                                          .b = b,
                                          .nullable = first.nullable && r->terms[b].nullable });
}

// The first of a list's parts. *rest: the others, or UINT32_MAX.
static uint32_t part_of(const struct regular *r, enum regular_kind kind, uint32_t list, uint32_t *rest)
{
    bool is_list = r->terms[list].kind == kind;

    *rest = is_list ? r->terms[list].b : UINT32_MAX;
    return is_list ? r->terms[list].a : list;
}

// Merges two sorted lists without duplicates and without `neutral`. A list with `absorbing` becomes
// `absorbing` alone.
static uint32_t join(struct regular *r, enum regular_kind kind, uint32_t x, uint32_t y)
{
    const uint32_t neutral = kind == REGULAR_EITHER ? TERM_NOTHING : TERM_ALL;
    const uint32_t absorbing = kind == REGULAR_EITHER ? TERM_ALL : TERM_NOTHING;
    const uint32_t base = r->n_stack;

    if (kind == REGULAR_BOTH && (x == TERM_EMPTY || y == TERM_EMPTY))
        return r->terms[x].nullable && r->terms[y].nullable ? TERM_EMPTY : TERM_NOTHING;
    uint32_t term = neutral, last = UINT32_MAX;

    while ((x != UINT32_MAX || y != UINT32_MAX) && last != absorbing) {
        uint32_t x_rest = x, y_rest = y, from_x = x != UINT32_MAX ? part_of(r, kind, x, &x_rest) : UINT32_MAX;
        uint32_t from_y = y != UINT32_MAX ? part_of(r, kind, y, &y_rest) : UINT32_MAX,
                 part = from_x < from_y ? from_x : from_y;
        x = from_x == part ? x_rest : x;
        y = from_y == part ? y_rest : y;
        if (part != neutral && part != last)
            regular_push(r, part);
        last = part;
    }
    for (uint32_t i = r->n_stack; i-- > base && last != absorbing && !r->full;) {
        uint32_t part = r->stack[i];
        bool p = r->terms[part].nullable, t = r->terms[term].nullable;
        term = term == neutral
                   ? part
                   : make(r, (struct regular_term){ .kind = (uint8_t)kind,
                                                    .a = part,
                                                    .b = term,
                                                    .nullable = kind == REGULAR_EITHER ? p || t : p && t,
                                                    .is_boolean = kind == REGULAR_BOTH });
    }
    r->n_stack = base;
    return last == absorbing ? absorbing : term;
}

uint32_t regular_either(struct regular *r, uint32_t a, uint32_t b)
{
    return join(r, REGULAR_EITHER, a, b);
}

uint32_t regular_both(struct regular *r, uint32_t a, uint32_t b)
{
    return join(r, REGULAR_BOTH, a, b);
}

uint32_t regular_join(struct regular *r, enum regular_kind kind, uint32_t base, uint32_t n)
{
    for (uint32_t width = 1; width < n && !r->full; width *= 2)
        for (uint32_t i = base; i + width < base + n; i += 2 * width) {
            uint32_t pair = join(r, kind, r->stack[i], r->stack[i + width]); // the stack may move
            r->stack[i] = pair;
        }
    r->work += n;
    return n == 0    ? (kind == REGULAR_EITHER ? TERM_NOTHING : TERM_ALL)
           : r->full ? TERM_NOTHING
                     : r->stack[base];
}

uint32_t regular_not(struct regular *r, uint32_t a)
{
    if (a == TERM_NOTHING || a == TERM_ALL)
        return a == TERM_NOTHING ? TERM_ALL : TERM_NOTHING;
    if (r->terms[a].kind == REGULAR_NOT)
        return r->terms[a].a;
    return make(r, (struct regular_term){
                       .kind = REGULAR_NOT, .a = a, .nullable = !r->terms[a].nullable, .is_boolean = true });
}

uint32_t regular_repeat(struct regular *r, uint32_t a, uint32_t least, uint32_t most)
{
    struct regular_term of = r->terms[a];

    least = of.nullable ? 0 : least;
    if (most == 0 || a == TERM_EMPTY || (a == TERM_NOTHING && least == 0))
        return TERM_EMPTY;
    if (a == TERM_NOTHING || (least == 1 && most == 1))
        return a;
    if (of.kind == REGULAR_REPEAT && of.least == 0 && of.most == UINT32_MAX)
        return a;
    return make(r,
                (struct regular_term){
                    .kind = REGULAR_REPEAT, .a = a, .least = least, .most = most, .nullable = least == 0 });
}

uint32_t regular_assertion(struct regular *r, enum regular_kind kind, uint32_t a)
{
    return make(r, (struct regular_term){ .kind = (uint8_t)kind, .a = a, .nullable = true, .asserts = true });
}
