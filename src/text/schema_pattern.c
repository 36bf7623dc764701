// schema_pattern.c - a regular expression as GBNF, over the characters of a JSON string: a quote, a backslash and control characters
// stand there as escapes.
//
// The subset that JSON Schema recommends: literals, classes, \d \w \s, groups, alternatives, quantifiers, anchors at the ends. What the
// subset lacks is refused by name. Recursion is as deep as groups are nested, at most MAX_DEPTH. A lazy quantifier matches the same texts.
#include "text/grammar.h"
#include "text/schema.h"
#include "text/schema_parts.h"
#include "text/schema_writer.h"
#include "text/unicode.h"

enum { MAX_DEPTH = 32, MAX_RANGES = 64, LAST_CODE = 0x10ffff };

struct range {
    uint32_t first, last;
};

struct class
{
    struct range at[MAX_RANGES];
    uint32_t n;
};

struct pattern {
    const char *at, *end;
    struct buf *out;
    struct err *err;
    uint32_t depth;
    bool alternatives; // outside of any group
};

static bool refuse(const struct pattern *p, const char *what)
{
    return err_set(p->err, ERR_UNSUPPORTED, "schema: pattern: %s", what);
}

static bool next_is(const struct pattern *p, const char *text)
{
    return str_starts((struct str){ p->at, (size_t)(p->end - p->at) }, str_from(text));
}

// ---- characters as they stand in a JSON string

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

static bool class_has(const struct class *c, uint32_t cp)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (cp >= c->at[i].first && cp <= c->at[i].last)
            return true;
    return false;
}

static void write_plain_range(struct buf *out, struct range r)
{
    static const struct range plain[] = {
        { 0x20, 0x21 }, { 0x23, 0x5b }, { 0x5d, 0x7e }, { 0x80, 0xd7ff }, { 0xe000, LAST_CODE }
    };

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct range both = { r.first > plain[i].first ? r.first : plain[i].first,
                              r.last < plain[i].last ? r.last : plain[i].last };
        if (both.first > both.last)
            continue;
        write_code(out, both.first);
        buf_text(out, "-");
        write_code(out, both.last);
    }
}

static void write_class(struct buf *out, const struct class *c)
{
    struct buf plain = { 0 };
    const char *between = "";
    char room[24];

    buf_text(out, "(");
    for (uint32_t i = 0; i < c->n; i++)
        write_plain_range(&plain, c->at[i]);
    if (plain.n > 0) {
        buf_printf(out, "[%s]", plain.at);
        between = " | ";
    }
    for (uint32_t cp = 0; cp < 0x80; cp++) {
        const char *escape = class_has(c, cp) ? json_escape(cp, room) : NULL;
        if (!escape)
            continue;
        buf_printf(out, "%s%s", between, escape);
        between = " | ";
    }
    buf_text(out, between[0] ? ")" : "[])");
    buf_free(&plain);
}

// ---- classes

static bool class_add(const struct pattern *p, struct class *c, uint32_t first, uint32_t last)
{
    if (c->n == MAX_RANGES)
        return refuse(p, "a class has more than 64 ranges");
    c->at[c->n++] = (struct range){ first, last };
    return true;
}

static bool class_negate(const struct pattern *p, struct class *c)
{
    struct class all = { .n = 0 };
    uint32_t from = 0;

    while (from <= LAST_CODE) { // the next gap begins where no range holds `from`
        uint32_t to = LAST_CODE, held = UINT32_MAX;
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

// \d \w \s and their opposites. False without an error: the letter is none of them.
static bool class_named(const struct pattern *p, char letter, struct class *c)
{
    static const struct range digits[] = { { '0', '9' } }, words[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } },
                              blanks[] = { { '\t', '\r' }, { ' ', ' ' } };
    const struct range *at = (letter | 32) == 'd' ? digits : (letter | 32) == 'w' ? words : (letter | 32) == 's' ? blanks : NULL;
    uint32_t n = at == digits ? 1 : at == words ? 4 : 2;
    struct class named = { .n = 0 };

    if (!at)
        return false;
    for (uint32_t i = 0; i < n; i++)
        named.at[named.n++] = at[i];
    if (!(letter & 32) && !class_negate(p, &named))
        return false;
    for (uint32_t i = 0; i < named.n; i++)
        if (!class_add(p, c, named.at[i].first, named.at[i].last))
            return false;
    return true;
}

static bool read_hex(struct pattern *p, uint32_t n, uint32_t *cp)
{
    for (*cp = 0; n > 0; n--, p->at++) {
        char c = p->at < p->end ? *p->at : 0;
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return refuse(p, "an escape lacks hexadecimal digits");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return (*cp < 0xd800 || *cp > 0xdfff) || refuse(p, "half a surrogate pair");
}

// After a backslash, and not a named class.
static bool read_escape(struct pattern *p, uint32_t *cp)
{
    static const char control[] = "f\fn\nr\rt\tv\v";
    char c = p->at < p->end ? *p->at++ : 0;

    if (c == 'u' || c == 'x')
        return read_hex(p, c == 'u' ? 4 : 2, cp);
    for (size_t i = 0; i + 1 < sizeof control - 1; i += 2)
        if (control[i] == c) {
            *cp = (uint32_t)control[i + 1];
            return true;
        }
    *cp = (uint32_t)(unsigned char)c;
    if (c && strchr("^$\\.*+?()[]{}|/-\"'#,:;<>=!%&@~` ", c))
        return true;
    char text[80];
    snprintf(text, sizeof text, "the escape \\%c is not supported", c > 0x20 && c < 0x7f ? c : '?');
    return refuse(p, text);
}

static bool read_character(struct pattern *p, uint32_t *cp)
{
    p->at += utf8_read(p->at, (size_t)(p->end - p->at), cp);
    return *cp != UTF8_ILL_FORMED || refuse(p, "it is not valid UTF-8");
}

// One character or named class within [...]. *single: it was a character.
static bool read_member(struct pattern *p, struct class *c, uint32_t *cp, bool *single)
{
    *single = true;
    if (*p->at != '\\')
        return read_character(p, cp);
    p->at++;
    *single = p->at == p->end || !strchr("dDwWsS", *p->at);
    return *single ? read_escape(p, cp) : class_named(p, *p->at++, c);
}

static bool read_class(struct pattern *p)
{
    struct class c = { .n = 0 };
    uint32_t first, last;
    bool negated, single;

    p->at++;
    negated = p->at < p->end && *p->at == '^';
    p->at += negated;
    for (bool begin = true; begin || (p->at < p->end && *p->at != ']'); begin = false) {
        if (p->at == p->end || (begin && *p->at == ']'))
            return refuse(p, "a class is empty or not closed");
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
    write_class(p->out, &c);
    return true;
}

// ---- expressions

static bool read_choice(struct pattern *p);

static bool read_group(struct pattern *p)
{
    if (++p->depth > MAX_DEPTH)
        return refuse(p, "groups are nested more than 32 deep");
    p->at++;
    if (next_is(p, "?<") && !next_is(p, "?<=") && !next_is(p, "?<!")) { // a name changes nothing
        while (p->at < p->end && *p->at != '>')
            p->at++;
        p->at += p->at < p->end;
    } else if (next_is(p, "?:")) {
        p->at += 2;
    } else if (next_is(p, "?")) {
        return refuse(p, "look-around and flags are not supported");
    }
    buf_text(p->out, "(");
    if (!read_choice(p))
        return false;
    if (!next_is(p, ")"))
        return refuse(p, "a group is not closed");
    p->at++;
    p->depth--;
    buf_text(p->out, ")");
    return true;
}

static void write_one(struct pattern *p, uint32_t cp)
{
    write_class(p->out, &(struct class){ { { cp, cp } }, 1 });
}

static bool read_atom(struct pattern *p)
{
    struct class c = { .n = 0 };
    uint32_t cp;

    switch (*p->at) {
    case '(':
        return read_group(p);
    case '[':
        return read_class(p);
    case '.':
        p->at++;
        class_add(p, &c, '\n', '\n');
        class_add(p, &c, '\r', '\r');
        class_negate(p, &c);
        write_class(p->out, &c);
        return true;
    case '^':
    case '$':
        return refuse(p, "^ and $ are supported at its ends only");
    case '*':
    case '+':
    case '?':
        return refuse(p, "there is nothing to repeat");
    case '\\':
        p->at++;
        if (p->at < p->end && strchr("dDwWsS", *p->at)) {
            if (!class_named(p, *p->at++, &c))
                return false;
            write_class(p->out, &c);
            return true;
        }
        if (!read_escape(p, &cp))
            return false;
        write_one(p, cp);
        return true;
    default:
        if (!read_character(p, &cp))
            return false;
        write_one(p, cp);
        return true;
    }
}

// The number at *at, which moves behind its digits.
static bool read_count(const struct pattern *p, const char **at, uint32_t *count)
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
static bool braces_begin(const struct pattern *p)
{
    const char *at = p->at + 1;
    uint32_t n_digits = 0, n_commas = 0;

    for (; at < p->end && ((*at >= '0' && *at <= '9') || (*at == ',' && n_digits)); at++) {
        n_digits += *at != ',';
        n_commas += *at == ',';
    }
    return at < p->end && *at == '}' && n_digits && n_commas < 2;
}

static bool read_braces(struct pattern *p)
{
    const char *at = p->at + 1;
    uint32_t least = 0, most;

    if (!read_count(p, &at, &least))
        return false;
    most = least;
    if (*at == ',') {
        at++;
        most = UINT32_MAX;
        if (*at != '}' && !read_count(p, &at, &most))
            return false;
    }
    if (most < least)
        return refuse(p, "a repetition {m,n} has n below m");
    p->at = at + 1;
    gbnf_times(p->out, least, most);
    return true;
}

// What may follow an atom.
static bool read_quantifier(struct pattern *p)
{
    if (p->at < p->end && *p->at == '{' && braces_begin(p)) {
        if (!read_braces(p))
            return false;
    } else if (p->at < p->end && (*p->at == '*' || *p->at == '+' || *p->at == '?')) {
        buf_append(p->out, p->at++, 1);
    } else {
        return true;
    }
    p->at += p->at < p->end && *p->at == '?'; // lazy
    if (p->at < p->end && (*p->at == '*' || *p->at == '+'))
        return refuse(p, "a quantifier follows a quantifier");
    return true;
}

static bool read_sequence(struct pattern *p)
{
    bool any = false;

    while (p->at < p->end && *p->at != '|' && *p->at != ')' && !(*p->at == '$' && p->at + 1 == p->end)) {
        if (!read_atom(p) || !read_quantifier(p))
            return false;
        buf_text(p->out, " ");
        any = true;
    }
    if (!any)
        buf_text(p->out, "\"\"");
    return true;
}

static bool read_choice(struct pattern *p)
{
    for (;;) {
        if (!read_sequence(p))
            return false;
        if (p->at == p->end || *p->at != '|')
            return true;
        p->at++;
        p->alternatives |= p->depth == 0;
        buf_text(p->out, "| ");
    }
}

bool schema_pattern(struct str pattern, struct buf *out, struct err *err)
{
    struct pattern p = { .at = pattern.at, .end = pattern.at + pattern.n, .out = out, .err = err };
    bool begins = pattern.n && *p.at == '^';

    p.at += begins;
    buf_text(out, begins ? "(" : "(char* (");
    if (!read_choice(&p))
        return false;
    if (p.at < p.end && *p.at != '$')
        return refuse(&p, "a group is closed that was not open");
    if (p.alternatives && (begins || p.at < p.end))
        return refuse(&p, "^ or $ beside alternatives: put the alternatives in a group");
    buf_text(out, begins ? "" : ")");
    buf_text(out, p.at == p.end ? " char*)" : ")");
    return true;
}
