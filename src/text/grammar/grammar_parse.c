// grammar_parse.c - GBNF text to expressions.
//
// A rule is `name ::= choice`; it ends with the line unless a parenthesis is open or a "|" came last.
// Literals "..." and classes [...] take \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH; "." is any
// character; <[m]> is a control token; repetition is * + ? {m} {m,} {m,n}; # begins a comment. Recursion is
// as deep as the nesting of parentheses, at most GRAMMAR_MAX_DEPTH.
#include "base/hash_index.h"
#include "base/mem.h"
#include "text/grammar/grammar_node.h"
#include "text/utf8.h"

enum { MAX_CLASS_RANGES = 1024, LAST_CODE = 0x10ffff };

struct reader {
    struct grammar_source *source;
    const char *at, *end;
    uint32_t line, depth;
    struct hash_index by_name; // of rules
    struct err *err;
};

static bool refuse(struct reader *r, const char *what)
{
    return err_set(r->err, ERR_INPUT, "grammar, line %u: %s", r->line, what);
}

static void *no_memory(struct reader *r)
{
    err_set(r->err, ERR_INPUT, "grammar: it is too large");
    return NULL;
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// Blanks and comments; with `lines` the ends of lines too.
static void skip(struct reader *r, bool lines)
{
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#') {
            while (r->at + 1 < r->end && r->at[1] != '\n')
                r->at++;
            continue;
        }
        if (*r->at == '\n' && lines)
            r->line++;
        else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r')
            return;
    }
}

static bool next_is(const struct reader *r, char c)
{
    return r->at < r->end && *r->at == c;
}

// ---- rules by name

static uint64_t hash_of(struct str name)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < name.n; i++)
        h = (h ^ (uint8_t)name.at[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static bool rules_grow(struct grammar_source *s)
{
    uint32_t capacity = s->capacity ? 2 * s->capacity : 32;
    struct rule_source *rules = mem_realloc(s->rules, capacity * sizeof *rules);

    if (!rules)
        return false;
    s->rules = rules;
    s->capacity = capacity;
    return true;
}

static bool rule_named(struct reader *r, struct str name, uint32_t *rule)
{
    struct grammar_source *s = r->source;

    uint64_t hash = hash_of(name);
    for (struct hash_probe p = { 0 }; hash_index_next(&r->by_name, hash, &p);)
        if (str_eq(s->rules[p.number].name, name)) {
            *rule = p.number;
            return true;
        }
    if (s->n_rules == GRAMMAR_MAX_RULES)
        return refuse(r, "more rules than a grammar may have (65536)");
    if ((s->n_rules == s->capacity && !rules_grow(s)) || !hash_index_reserve(&r->by_name))
        return err_memory(r->err, "a grammar");
    s->rules[s->n_rules] = (struct rule_source){ .name = name, .line = r->line };
    *rule = s->n_rules++;
    hash_index_add(&r->by_name, hash, *rule);
    return true;
}

static struct str read_name(struct reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && is_name_byte(*r->at))
        r->at++;
    return (struct str){ begin, (size_t)(r->at - begin) };
}

// ---- characters

static bool read_hex(struct reader *r, uint32_t n, uint32_t *cp)
{
    *cp = 0;
    for (; n > 0; n--, r->at++) {
        char c = r->at < r->end ? *r->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return refuse(r, "an escape lacks hexadecimal digits");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    if (*cp > LAST_CODE || (*cp >= 0xd800 && *cp < 0xe000))
        return refuse(r, "an escape is no Unicode character");
    return true;
}

static bool read_escape(struct reader *r, uint32_t *cp)
{
    static const char plain[] = "\\\"[]-^/.'{}()|*+?$";
    char c = r->at < r->end ? *r->at++ : 0;

    switch (c) {
    case 'n':
        *cp = '\n';
        return true;
    case 'r':
        *cp = '\r';
        return true;
    case 't':
        *cp = '\t';
        return true;
    case 'x':
        return read_hex(r, 2, cp);
    case 'u':
        return read_hex(r, 4, cp);
    case 'U':
        return read_hex(r, 8, cp);
    default:
        *cp = (uint32_t)c;
        return (c && strchr(plain, c)) ||
               refuse(r, "an escape that is not known; want \\n \\r \\t \\\\ \\\" \\] \\xHH \\uHHHH");
    }
}

// One character of a literal or class that `closing` ends.
static bool read_character(struct reader *r, uint32_t *cp)
{
    if (r->at == r->end || *r->at == '\n')
        return refuse(r, "a literal or class is not closed");
    if (*r->at == '\\') {
        r->at++;
        return read_escape(r, cp);
    }
    r->at += utf8_read(r->at, (size_t)(r->end - r->at), cp);
    return *cp != UTF8_ILL_FORMED || refuse(r, "a character is not valid UTF-8");
}

static struct expr *new_expr(struct reader *r, enum expr_kind kind)
{
    struct expr *e = arena_alloc(r->source->arena, sizeof *e);

    if (!e)
        return no_memory(r);
    e->kind = kind;
    return e;
}

static struct expr *read_literal(struct reader *r)
{
    struct expr *e = new_expr(r, EXPR_TEXT);
    struct buf bytes = { 0 };
    uint32_t cp;

    for (r->at++; e && !next_is(r, '"');) {
        if (!read_character(r, &cp))
            e = NULL;
        else
            utf8_append(&bytes, cp);
    }
    r->at++;
    if (e) {
        e->text = arena_str(r->source->arena, buf_as_str(&bytes));
        e = e->text.at && !bytes.failed ? e : no_memory(r);
    }
    buf_free(&bytes);
    return e;
}

static int by_first(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Sorts ranges, joins adjacent ones, and complements a negated set.
static uint32_t ranges_settle(struct code_range *ranges, uint32_t n, bool negated)
{
    uint32_t n_joined = 0, from = 0;

    qsort(ranges, n, sizeof *ranges, by_first);
    for (uint32_t i = 0; i < n; i++) {
        if (n_joined && ranges[i].first <= ranges[n_joined - 1].last + 1) {
            if (ranges[i].last > ranges[n_joined - 1].last)
                ranges[n_joined - 1].last = ranges[i].last;
        } else {
            ranges[n_joined++] = ranges[i];
        }
    }
    if (!negated)
        return n_joined;
    n = 0;
    for (uint32_t i = 0; i < n_joined; i++) {
        struct code_range gap = { from, ranges[i].first - 1 };
        from = ranges[i].last + 1;
        if (ranges[i].first > 0 && gap.first <= gap.last)
            ranges[n++] = gap;
    }
    if (from <= LAST_CODE)
        ranges[n++] = (struct code_range){ from, LAST_CODE };
    return n;
}

static bool read_range(struct reader *r, struct code_range *range)
{
    if (!read_character(r, &range->first))
        return false;
    range->last = range->first;
    if (!next_is(r, '-') || r->at + 1 == r->end || r->at[1] == ']')
        return true;
    r->at++;
    return read_character(r, &range->last) &&
           (range->last >= range->first || refuse(r, "a class has a range that runs backwards"));
}

static struct expr *class_of(struct reader *r, const struct code_range *ranges, uint32_t n)
{
    struct expr *e = new_expr(r, EXPR_CLASS);

    if (!e)
        return NULL;
    e->range = arena_alloc_array(r->source->arena, n, sizeof *ranges);
    if (!e->range)
        return no_memory(r);
    memcpy(e->range, ranges, n * sizeof *ranges);
    e->n_ranges = n;
    return e;
}

static struct expr *read_class(struct reader *r)
{
    struct code_range ranges[MAX_CLASS_RANGES + 1];
    uint32_t n = 0;
    bool negated;

    r->at++;
    negated = next_is(r, '^');
    r->at += negated;
    while (!next_is(r, ']')) {
        if (n == MAX_CLASS_RANGES) {
            refuse(r, "a class has more than 1024 ranges");
            return NULL;
        }
        if (!read_range(r, &ranges[n++]))
            return NULL;
    }
    r->at++;
    n = ranges_settle(ranges, n, negated);
    if (n == 0) {
        refuse(r, "a class is empty");
        return NULL;
    }
    return class_of(r, ranges, n);
}

// ---- expressions

static struct expr *read_choice(struct reader *r);

static struct expr *read_group(struct reader *r)
{
    if (++r->depth > GRAMMAR_MAX_DEPTH) {
        refuse(r, "parentheses are nested more than 128 deep");
        return NULL;
    }
    r->at++;
    struct expr *e = read_choice(r);
    if (e && !next_is(r, ')')) {
        refuse(r, "a parenthesis is not closed");
        return NULL;
    }
    r->at++;
    r->depth--;
    return e;
}

static struct expr *read_reference(struct reader *r)
{
    struct expr *e = new_expr(r, EXPR_RULE);
    struct str name = read_name(r);
    return e && rule_named(r, name, &e->rule) ? e : NULL;
}

void grammar_token(uint32_t token, char bytes[GRAMMAR_TOKEN_BYTES])
{
    bytes[0] = (char)0xff;
    for (int i = 1; i < GRAMMAR_TOKEN_BYTES; i++)
        bytes[i] = (char)(token >> (8 * (GRAMMAR_TOKEN_BYTES - 1 - i)) & 0xff);
}

static struct expr *read_token(struct reader *r)
{
    const char *begin = r->at + 2;
    struct expr *e = new_expr(r, EXPR_TEXT);
    char bytes[GRAMMAR_TOKEN_BYTES];
    uint64_t token;

    for (r->at = begin; r->at < r->end && *r->at >= '0' && *r->at <= '9';)
        r->at++;
    if (!str_to_u64((struct str){ begin, (size_t)(r->at - begin) }, &token) || token >= UINT32_MAX ||
        r->end - r->at < 2 || memcmp(r->at, "]>", 2) != 0) {
        refuse(r, "a token needs its number: <[1234]>");
        return NULL;
    }
    r->at += 2;
    grammar_token((uint32_t)token, bytes);
    if (e)
        e->text = arena_str(r->source->arena, (struct str){ bytes, sizeof bytes });
    return e && e->text.at ? e : no_memory(r);
}

static struct expr *read_atom(struct reader *r)
{
    static const struct code_range any = { 0, LAST_CODE };

    switch (*r->at) {
    case '"':
        return read_literal(r);
    case '[':
        return read_class(r);
    case '(':
        return read_group(r);
    case '.':
        r->at++;
        return class_of(r, &any, 1);
    default:
        break;
    }
    if (is_name_byte(*r->at))
        return read_reference(r);
    if (r->end - r->at > 2 && !memcmp(r->at, "<[", 2))
        return read_token(r);
    err_set(r->err, ERR_INPUT, "grammar, line %u: '%c' has no place here%s", r->line,
            *r->at > 0x20 && *r->at < 0x7f ? *r->at : '?',
            strchr("*+?{", *r->at) ? ": there is nothing before it to repeat"
            : *r->at == '<'        ? ": only control tokens can be named, as <[1234]>"
                                   : "");
    return NULL;
}

static bool read_count(struct reader *r, uint32_t *n)
{
    const char *begin = r->at;
    uint64_t value;

    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    if (!str_to_u64((struct str){ begin, (size_t)(r->at - begin) }, &value) || value > GRAMMAR_MAX_REPEAT)
        return refuse(r, "a repetition needs numbers from 0 to 65536: {m}, {m,} or {m,n}");
    *n = (uint32_t)value;
    return true;
}

static bool read_braces(struct reader *r, struct expr *repeat)
{
    r->at++;
    skip(r, false);
    if (!read_count(r, &repeat->min))
        return false;
    repeat->max = repeat->min;
    skip(r, false);
    if (next_is(r, ',')) {
        r->at++;
        skip(r, false);
        repeat->max = UINT32_MAX;
        if (!next_is(r, '}') && !read_count(r, &repeat->max))
            return false;
        skip(r, false);
    }
    if (!next_is(r, '}'))
        return refuse(r, "a repetition is not closed by }");
    r->at++;
    return repeat->max >= repeat->min || refuse(r, "a repetition {m,n} has n below m");
}

// The repetitions after an atom. At most a repetition of a repetition: more levels would multiply.
static struct expr *read_repeated(struct reader *r)
{
    struct expr *e = read_atom(r), *repeat;

    if (!e || r->at == r->end || !strchr("*+?{", *r->at) || !*r->at)
        return e;
    repeat = new_expr(r, EXPR_REPEAT);
    if (!repeat)
        return NULL;
    repeat->parts = e;
    repeat->min = *r->at == '+';
    repeat->max = *r->at == '?' ? 1 : UINT32_MAX;
    if (*r->at == '{')
        return read_braces(r, repeat) ? repeat : NULL;
    r->at++;
    return repeat;
}

static bool ends_sequence(const struct reader *r)
{
    return r->at == r->end || *r->at == '|' || *r->at == ')' || *r->at == '\n';
}

static struct expr *read_sequence(struct reader *r)
{
    struct expr *e = new_expr(r, EXPR_SEQUENCE);

    skip(r, r->depth > 0);
    while (e && !ends_sequence(r)) {
        struct expr *part = read_repeated(r);
        if (!part)
            return NULL;
        part->next = e->parts;
        e->parts = part;
        skip(r, r->depth > 0);
    }
    return e;
}

static struct expr *read_choice(struct reader *r)
{
    struct expr *e = new_expr(r, EXPR_CHOICE);

    for (bool more = true; e && more;) {
        struct expr *part = read_sequence(r);
        if (!part)
            return NULL;
        part->next = e->parts;
        e->parts = part;
        more = next_is(r, '|');
        if (more) {
            r->at++;
            skip(r, true);
        }
    }
    return e;
}

static bool read_rule(struct reader *r)
{
    struct str name = read_name(r);
    uint32_t rule;

    if (name.n == 0)
        return refuse(r, "want a rule: name ::= ...");
    if (!rule_named(r, name, &rule))
        return false;
    skip(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0)
        return refuse(r, "a rule's name is not followed by ::=");
    if (r->source->rules[rule].body)
        return err_set(r->err, ERR_INPUT, "grammar, line %u: the rule '%.*s' is defined twice", r->line,
                       STR_ARG(name));
    r->at += 3;
    skip(r, true);
    struct expr *body = read_choice(r);
    r->source->rules[rule].body = body;
    return body &&
           (r->at == r->end || *r->at == '\n' || refuse(r, "a parenthesis is closed that was not open"));
}

static bool all_defined(const struct grammar_source *s, struct err *err)
{
    for (uint32_t i = 0; i < s->n_rules; i++)
        if (!s->rules[i].body)
            return err_set(err, ERR_INPUT, "grammar, line %u: the rule '%.*s' is not defined",
                           s->rules[i].line, STR_ARG(s->rules[i].name));
    return true;
}

bool grammar_parse(struct grammar_source *s, struct str text, struct err *err)
{
    struct reader r = { .source = s, .at = text.at, .end = text.at + text.n, .line = 1, .err = err };
    bool ok = text.n <= GRAMMAR_MAX_BYTES ||
              err_set(err, ERR_INPUT, "the grammar has %zu bytes; at most 4 MiB", text.n);

    if (ok)
        skip(&r, true);
    while (ok && r.at < r.end) {
        ok = read_rule(&r);
        skip(&r, true);
    }
    hash_index_free(&r.by_name);
    return ok && all_defined(s, err);
}
