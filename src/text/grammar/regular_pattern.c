// regular_pattern.c - a regular expression of ECMA 262, flag u, as a term: literals, classes, \d \w \s,
// groups, alternatives, quantifiers, anchors, look-ahead. Other syntax is refused with its name.
//
// The parser keeps assertions as terms. They are then resolved from the end of the expression to its
// beginning: (?=a) becomes the intersection of `a` with what follows, $ says that nothing follows. Recursion
// is as deep as groups are nested (at most MAX_DEPTH), or a sequence is long. A lazy quantifier matches the
// same strings as a greedy one.
#include "text/grammar/grammar.h"
#include "text/grammar/regular.h"
#include "text/utf8.h"

enum { MAX_DEPTH = 32, MAX_CLASS = 256, MAX_UNROLLED = 64, MAX_RESOLVED = 1 << 16 };

struct class
{
    struct regular_range at[MAX_CLASS];
    uint32_t n;
};

struct regular_pattern {
    struct regular *r;
    const char *at, *end;
    struct err *err;
    uint32_t depth, n_resolved;
};

static bool refuse(const struct regular_pattern *p, const char *what)
{
    return err_set(p->err, ERR_UNSUPPORTED, "schema: pattern: %s", what);
}

static bool next_is(const struct regular_pattern *p, const char *text)
{
    return str_starts((struct str){ p->at, (size_t)(p->end - p->at) }, str_from(text));
}

static bool next_is_one_of(const struct regular_pattern *p, const char *list)
{
    return p->at < p->end && *p->at && strchr(list, *p->at);
}

// ---- classes

static bool class_add(const struct regular_pattern *p, struct class *c, uint32_t first, uint32_t last)
{
    if (c->n == MAX_CLASS)
        return refuse(p, "a class has more than 256 ranges");
    c->at[c->n++] = (struct regular_range){ first, last };
    return true;
}

static bool class_negate(const struct regular_pattern *p, struct class *c)
{
    struct class all = { .n = 0 };
    uint32_t from = 0;

    while (from <= REGULAR_LAST_CODE) { // the next gap begins after the ranges that contain `from`
        uint32_t to = REGULAR_LAST_CODE, held = UINT32_MAX;
        for (uint32_t i = 0; i < c->n; i++) {
            if (from >= c->at[i].first && from <= c->at[i].last)
                held = held == UINT32_MAX || c->at[i].last > held ? c->at[i].last : held;
            else if (c->at[i].first > from && c->at[i].first - 1 < to)
                to = c->at[i].first - 1;
        }
        if (held == UINT32_MAX && !class_add(p, &all, from, to))
            return false;
        from = (held == UINT32_MAX ? to : held) + 1;
    }
    *c = all;
    return true;
}

// \d \w \s and their opposites: the letter is one of them.
static bool class_named(const struct regular_pattern *p, char letter, struct class *c)
{
    static const struct regular_range digits[] = { { '0', '9' } },
                                      words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } },
                                      blanks[] = { { '\t', '\r' },     { ' ', ' ' },       { 0xa0, 0xa0 },
                                                   { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
                                                   { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
                                                   { 0xfeff, 0xfeff } };
    const char kind = (char)(letter | 32);
    const struct regular_range *at = kind == 'd' ? digits : kind == 'w' ? words : blanks;
    uint32_t n = kind == 'd' ? 1 : kind == 'w' ? 4 : 10;
    struct class named = { .n = 0 };

    for (uint32_t i = 0; i < n; i++)
        named.at[named.n++] = at[i];
    if (!(letter & 32) && !class_negate(p, &named))
        return false;
    for (uint32_t i = 0; i < named.n; i++)
        if (!class_add(p, c, named.at[i].first, named.at[i].last))
            return false;
    return true;
}

static bool read_hex(struct regular_pattern *p, uint32_t n, uint32_t *cp)
{
    for (*cp = 0; n > 0; n--, p->at++) {
        char c = p->at < p->end ? *p->at : 0;
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            return refuse(p, "an escape lacks hexadecimal digits");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return true;
}

// After \u: four digits, a surrogate pair of two such escapes, or any number of digits in braces.
static bool read_unicode(struct regular_pattern *p, uint32_t *cp)
{
    uint32_t low, n = 0;

    if (p->at < p->end && *p->at == '{') {
        p->at++;
        while (n < 6 && p->at + n < p->end && p->at[n] != '}')
            n++;
        if (n == 0 || !read_hex(p, n, cp) || !next_is(p, "}") || *cp > REGULAR_LAST_CODE)
            return refuse(p, "an escape \\u{...} is not closed, or no character");
        p->at++;
    } else if (!read_hex(p, 4, cp)) {
        return false;
    }
    if (*cp >= 0xd800 && *cp < 0xdc00 && next_is(p, "\\u")) {
        p->at += 2;
        if (!read_hex(p, 4, &low))
            return false;
        *cp = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((*cp & 0x3ff) << 10 | (low & 0x3ff)) : *cp;
    }
    return (*cp < 0xd800 || *cp > 0xdfff) || refuse(p, "half a surrogate pair");
}

// After a backslash, and not a named class.
static bool read_escape(struct regular_pattern *p, uint32_t *cp)
{
    static const char control[] = "f\fn\nr\rt\tv\v";
    char c = p->at < p->end ? *p->at++ : 0;

    if (c == 'u')
        return read_unicode(p, cp);
    if (c == 'x')
        return read_hex(p, 2, cp);
    for (size_t i = 0; i + 1 < sizeof control - 1; i += 2)
        if (control[i] == c) {
            *cp = (uint32_t)control[i + 1];
            return true;
        }
    *cp = c == '0' ? 0 : (uint32_t)(unsigned char)c;
    if (c &&
        (strchr("^$\\.*+?()[]{}|/-\"'#,:;<>=!%&@~`_ ", c) || (c == '0' && !next_is_one_of(p, "0123456789"))))
        return true;
    char text[80];
    snprintf(text, sizeof text, "the escape \\%c is not supported", c > 0x20 && c < 0x7f ? c : '?');
    return refuse(p, text);
}

static bool read_character(struct regular_pattern *p, uint32_t *cp)
{
    p->at += utf8_read(p->at, (size_t)(p->end - p->at), cp);
    return *cp != UTF8_ILL_FORMED || refuse(p, "it is not valid UTF-8");
}

// One character or named class within [...]. *single: whether it was a character.
static bool read_member(struct regular_pattern *p, struct class *c, uint32_t *cp, bool *single)
{
    *single = true;
    if (*p->at != '\\')
        return read_character(p, cp);
    p->at++;
    if (next_is(p, "b")) {
        p->at++;
        *cp = '\b';
        return true;
    }
    *single = !next_is_one_of(p, "dDwWsS");
    return *single ? read_escape(p, cp) : class_named(p, *p->at++, c);
}

static bool read_class(struct regular_pattern *p, uint32_t *term)
{
    struct class c = { .n = 0 };
    uint32_t first, last;
    bool negated, single;

    p->at++;
    negated = p->at < p->end && *p->at == '^';
    p->at += negated;
    while (p->at < p->end && *p->at != ']') {
        if (!read_member(p, &c, &first, &single))
            return false;
        last = first;
        if (single && p->end - p->at > 1 && *p->at == '-' && p->at[1] != ']') {
            p->at++;
            if (!read_member(p, &c, &last, &single) || !single || last < first)
                return refuse(p, "a class has a range that is none");
        }
        if (single && !class_add(p, &c, first, last))
            return false;
    }
    if (p->at == p->end)
        return refuse(p, "a class is not closed");
    p->at++;
    if (negated && !class_negate(p, &c))
        return false;
    *term = regular_set(p->r, c.at, c.n);
    return true;
}

// ---- expressions

static bool read_choice(struct regular_pattern *p, uint32_t *term);

static bool read_group(struct regular_pattern *p, uint32_t *term)
{
    enum regular_kind ahead = REGULAR_NOTHING;

    if (++p->depth > MAX_DEPTH)
        return refuse(p, "groups are nested more than 32 deep");
    p->at++;
    if (next_is(p, "?<=") || next_is(p, "?<!"))
        return refuse(p, "look-behind is not supported");
    if (next_is(p, "?<")) { // the name of a group has no effect
        while (p->at < p->end && *p->at != '>')
            p->at++;
        p->at += p->at < p->end;
    } else if (next_is(p, "?:") || next_is(p, "?=") || next_is(p, "?!")) {
        ahead = p->at[1] == '=' ? REGULAR_AHEAD : p->at[1] == '!' ? REGULAR_NOT_AHEAD : REGULAR_NOTHING;
        p->at += 2;
    } else if (next_is(p, "?")) {
        return refuse(p, "flags are not supported");
    }
    if (!read_choice(p, term))
        return false;
    if (!next_is(p, ")"))
        return refuse(p, "a group is not closed");
    p->at++;
    p->depth--;
    *term = ahead ? regular_assertion(p->r, ahead, *term) : *term;
    return true;
}

static bool read_escaped(struct regular_pattern *p, uint32_t *term)
{
    struct class c = { .n = 0 };
    uint32_t cp;

    p->at++;
    if (next_is_one_of(p, "dDwWsS")) {
        if (!class_named(p, *p->at++, &c))
            return false;
    } else if (!read_escape(p, &cp) || !class_add(p, &c, cp, cp)) {
        return false;
    }
    *term = regular_set(p->r, c.at, c.n);
    return true;
}

static bool read_any(struct regular_pattern *p, uint32_t *term)
{
    struct class c = { { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } }, 3 };

    p->at++;
    class_negate(p, &c);
    *term = regular_set(p->r, c.at, c.n);
    return true;
}

static bool read_atom(struct regular_pattern *p, uint32_t *term)
{
    uint32_t cp;

    switch (*p->at) {
    case '(':
        return read_group(p, term);
    case '[':
        return read_class(p, term);
    case '.':
        return read_any(p, term);
    case '^':
    case '$':
        *term = regular_assertion(p->r, *p->at++ == '^' ? REGULAR_BEGIN : REGULAR_END, TERM_EMPTY);
        return true;
    case '*':
    case '+':
    case '?':
        return refuse(p, "there is nothing to repeat");
    case '\\':
        return read_escaped(p, term);
    default:
        if (!read_character(p, &cp))
            return false;
        *term = regular_set(p->r, &(struct regular_range){ cp, cp }, 1);
        return true;
    }
}

// The number at *at, which moves behind its digits.
static bool read_count(const struct regular_pattern *p, const char **at, uint32_t *count)
{
    const char *begin = *at;
    uint64_t n;

    while (**at >= '0' && **at <= '9')
        ++*at;
    if (!str_to_u64((struct str){ begin, (size_t)(*at - begin) }, &n) || n > GRAMMAR_MAX_REPEAT)
        return refuse(p, "a repetition needs numbers from 0 to 65536");
    *count = (uint32_t)n;
    return true;
}

// Whether {m}, {m,} or {m,n} begins here. A brace that begins none of these stands for itself.
static bool braces_begin(const struct regular_pattern *p)
{
    const char *at = p->at + 1;
    uint32_t n_digits = 0, n_commas = 0;

    for (; at < p->end && ((*at >= '0' && *at <= '9') || (*at == ',' && n_digits)); at++) {
        n_digits += *at != ',';
        n_commas += *at == ',';
    }
    return at < p->end && *at == '}' && n_digits && n_commas < 2;
}

static bool read_braces(struct regular_pattern *p, uint32_t *least, uint32_t *most)
{
    const char *at = p->at + 1;

    if (!read_count(p, &at, least))
        return false;
    *most = *least;
    if (*at == ',') {
        at++;
        *most = UINT32_MAX;
        if (*at != '}' && !read_count(p, &at, most))
            return false;
    }
    if (*most < *least)
        return refuse(p, "a repetition {m,n} has n below m");
    p->at = at + 1;
    return true;
}

// What may follow an atom.
static bool read_quantifier(struct regular_pattern *p, uint32_t *term)
{
    uint32_t least = 0, most = UINT32_MAX;

    if (next_is(p, "{") && braces_begin(p)) {
        if (!read_braces(p, &least, &most))
            return false;
    } else if (next_is_one_of(p, "*+?")) {
        least = *p->at == '+';
        most = *p->at++ == '?' ? 1 : UINT32_MAX;
    } else {
        return true;
    }
    p->at += next_is(p, "?"); // lazy
    if (next_is_one_of(p, "*+?"))
        return refuse(p, "a quantifier follows a quantifier");
    *term = regular_repeat(p->r, *term, least, most);
    return true;
}

// Concatenates from the last term on, so that the rest is never copied.
static bool read_sequence(struct regular_pattern *p, uint32_t *term)
{
    struct buf parts = { 0 };
    uint32_t part;
    bool ok = true;

    while (ok && p->at < p->end && *p->at != '|' && *p->at != ')') {
        ok = read_atom(p, &part) && read_quantifier(p, &part);
        buf_append(&parts, &part, sizeof part);
    }
    p->r->full |= parts.failed;
    *term = TERM_EMPTY;
    for (size_t i = parts.n / sizeof part; ok && i-- > 0 && !p->r->full;) {
        memcpy(&part, parts.at + i * sizeof part, sizeof part);
        *term = regular_sequence(p->r, part, *term);
    }
    buf_free(&parts);
    return ok;
}

static bool read_choice(struct regular_pattern *p, uint32_t *term)
{
    uint32_t one;

    for (*term = TERM_NOTHING;;) {
        if (!read_sequence(p, &one))
            return false;
        *term = regular_either(p->r, *term, one);
        if (!next_is(p, "|"))
            return true;
        p->at++;
    }
}

// ---- assertions

enum atom_place { AT_BEGIN, INSIDE, EITHER_PLACE }; // of the string

// `term` followed by `next`, without assertions.
static bool resolve(struct regular_pattern *p, uint32_t term, uint32_t next, enum atom_place place,
                    uint32_t *out);

static enum atom_place place_after(const struct regular *r, uint32_t term, enum atom_place place)
{
    const struct regular_term *t = &r->terms[term];

    if (t->kind >= REGULAR_BEGIN || place == INSIDE)
        return place;
    return t->nullable ? EITHER_PLACE : INSIDE;
}

// Expands a repetition of a part with look-ahead, since each copy is followed by other text.
static bool resolve_repeat(struct regular_pattern *p, struct regular_term t, uint32_t next,
                           enum atom_place place, uint32_t *out)
{
    if (t.most > MAX_UNROLLED)
        return refuse(
            p, "an assertion within a repetition without end, or of more than 64 times, is not supported");
    for (uint32_t i = t.most, one; i-- > 0;) {
        if (!resolve(p, t.a, i + 1 == t.most ? next : *out, i == 0 ? place : place_after(p->r, t.a, place),
                     &one))
            return false;
        *out = i < t.least ? one : regular_either(p->r, next, one);
    }
    return true;
}

static bool resolve_ahead(struct regular_pattern *p, struct regular_term t, enum atom_place place,
                          uint32_t *out)
{
    if (!resolve(p, t.a, TERM_ALL, place, out))
        return false;
    *out = t.kind == REGULAR_AHEAD ? *out : regular_not(p->r, *out);
    return true;
}

static bool resolve(struct regular_pattern *p, uint32_t term, uint32_t next, enum atom_place place,
                    uint32_t *out)
{
    const struct regular_term t = p->r->terms[term];
    uint32_t other;

    if (p->n_resolved++ == MAX_RESOLVED)
        return refuse(p, "it is too large");
    if (!t.asserts) {
        *out = regular_sequence(p->r, term, next);
        return true;
    }
    switch ((enum regular_kind)t.kind) {
    case REGULAR_SEQUENCE:
        return resolve(p, t.b, next, place_after(p->r, t.a, place), &other) &&
               resolve(p, t.a, other, place, out);
    case REGULAR_EITHER:
        if (!resolve(p, t.a, next, place, &other) || !resolve(p, t.b, next, place, out))
            return false;
        *out = regular_either(p->r, other, *out);
        return true;
    case REGULAR_REPEAT:
        return resolve_repeat(p, t, next, place, out);
    case REGULAR_BEGIN:
        *out = place == AT_BEGIN ? next : TERM_NOTHING;
        return place != EITHER_PLACE || refuse(p, "^ is supported at the beginning only");
    case REGULAR_END:
        *out = regular_both(p->r, next, TERM_EMPTY);
        return true;
    default:
        if (!resolve_ahead(p, t, place, &other))
            return false;
        *out = regular_both(p->r, other, next);
        return true;
    }
}

bool regular_pattern(struct regular *r, struct str pattern, uint32_t *term, struct err *err)
{
    struct regular_pattern p = { .r = r, .at = pattern.at, .end = pattern.at + pattern.n, .err = err };
    uint32_t first, later;

    if (pattern.n > REGULAR_MAX_PATTERN)
        return err_set(err, ERR_UNSUPPORTED, "schema: pattern: it has %zu bytes; at most %d are supported",
                       pattern.n, REGULAR_MAX_PATTERN);
    if (!read_choice(&p, term))
        return false;
    if (p.at < p.end)
        return refuse(&p, "a group is closed that was not open");
    if (!resolve(&p, *term, TERM_ALL, AT_BEGIN, &first) || !resolve(&p, *term, TERM_ALL, INSIDE, &later))
        return false;
    // A match at the beginning or later; one term for both if the place makes no difference.
    *term =
        first == later
            ? regular_sequence(r, TERM_ALL, later)
            : regular_either(r, first, regular_sequence(r, TERM_ANY, regular_sequence(r, TERM_ALL, later)));
    return !r->full || refuse(&p, "it is too large");
}
