// tool_call_braces.c - see tool_call_braces.h.
//
// Keys and strings in JSON's quotes are taken too: forced calls have them. A bracket that does not match, or
// one too many inside another, ends the call: what is open is closed, so that the arguments are JSON, and
// what follows is content.
#include "text/parsers/tool_call_braces.h"
#include <string.h>

static const char quote[] = "<|\"|>", call[] = "call:";
enum { MAX_DEPTH = 32, MAX_BARE = 127 };

struct braces_reader {
    struct tool_call_markup *m;
    struct tool_call_markup_text *in;
    struct buf *out;
};

static struct str left(const struct braces_reader *b)
{
    return str_from_to(b->in->text, b->in->taken, b->in->text.n);
}

static bool in_object(const struct tool_call_markup *m)
{
    return m->objects >> (m->depth - 1) & 1;
}

// A key that has no value gets one.
static void close_all(const struct braces_reader *b)
{
    buf_text(b->out, b->m->begun ? "null" : "");
    for (b->m->begun = false; b->m->depth > 0; b->m->depth--)
        buf_text(b->out, in_object(b->m) ? "}" : "]");
}

static enum tool_call_markup_step end_call(const struct braces_reader *b)
{
    close_all(b);
    return MARKUP_ENDED;
}

static enum tool_call_markup_step wait_here(const struct braces_reader *b)
{
    return b->out->n > 0 ? MARKUP_ARGUMENTS : MARKUP_WAIT;
}

// Before a key or a value. false: none may stand here.
static bool begin_item(const struct braces_reader *b)
{
    struct tool_call_markup *m = b->m;

    if (m->any)
        return false;
    if (m->comma)
        buf_text(b->out, ", ");
    m->comma = false;
    m->any = !m->is_key;
    m->begun = m->is_key;
    return true;
}

// Text of a string up to its end, or to what may be the beginning of that.
static enum tool_call_markup_step read_string(const struct braces_reader *b)
{
    struct str text = left(b);
    size_t end = str_find(text, str_from(quote)), n = end != SIZE_MAX ? end
                                                      : b->in->finished
                                                          ? text.n
                                                          : text.n - tool_call_mark_held(text, quote);

    tool_call_write_escaped(b->out, str_from_to(text, 0, n));
    b->in->taken += n;
    if (end == SIZE_MAX)
        return b->in->finished ? MARKUP_ENDED : wait_here(b);
    b->in->taken += strlen(quote);
    b->m->in_string = false;
    buf_text(b->out, b->m->begun ? "\": " : "\"");
    return MARKUP_ARGUMENTS;
}

// A string in JSON's quotes stays as it is.
static enum tool_call_markup_step read_json_string(const struct braces_reader *b)
{
    struct str text = left(b);
    size_t n = 0;

    while (n < text.n && text.at[n] != '"' && (text.at[n] != '\\' || n + 1 < text.n || b->in->finished))
        n += text.at[n] == '\\' && n + 1 < text.n ? 2 : 1;
    buf_append(b->out, text.at, n);
    b->in->taken += n;
    if (n == text.n || text.at[n] != '"')
        return b->in->finished ? MARKUP_ENDED : wait_here(b);
    b->in->taken++;
    b->m->in_string = b->m->functions = false;
    buf_text(b->out, b->m->begun ? "\": " : "\"");
    return MARKUP_ARGUMENTS;
}

// A key, or a value without quotes: up to one of the ends.
static enum tool_call_markup_step read_bare(const struct braces_reader *b, const char *ends)
{
    struct str text = left(b);
    size_t n = 0;

    while (n < text.n && n <= MAX_BARE && !(text.at[n] && strchr(ends, text.at[n])))
        n++;
    if (n == text.n && n <= MAX_BARE && !b->in->finished)
        return wait_here(b);
    if (n > MAX_BARE || !begin_item(b))
        return end_call(b);
    struct str word = str_from_to(text, 0, n);
    while (word.n && strchr(" \n\t\r", word.at[word.n - 1]))
        word.n--;
    b->in->taken += n;
    if (!b->m->begun) {
        tool_call_write_value(b->out, NULL, word);
        return MARKUP_ARGUMENTS;
    }
    buf_text(b->out, "\"");
    tool_call_write_escaped(b->out, word);
    buf_text(b->out, "\": ");
    return MARKUP_ARGUMENTS;
}

static enum tool_call_markup_step open_bracket(const struct braces_reader *b, char c)
{
    struct tool_call_markup *m = b->m;

    if (m->depth == MAX_DEPTH || (m->depth > 0 && (m->is_key || !begin_item(b))))
        return end_call(b);
    m->objects = (m->objects & ~(1u << m->depth)) | (uint32_t)(c == '{') << m->depth;
    m->depth++;
    m->is_key = c == '{';
    m->any = m->begun = false;
    b->in->taken++;
    buf_append(b->out, &c, 1);
    return MARKUP_ARGUMENTS;
}

static enum tool_call_markup_step close_bracket(const struct braces_reader *b, char c)
{
    struct tool_call_markup *m = b->m;

    if (in_object(m) != (c == '}'))
        return end_call(b);
    buf_text(b->out, m->begun ? "null" : "");
    m->begun = m->comma = m->is_key = false;
    m->any = true;
    m->depth--;
    b->in->taken++;
    buf_append(b->out, &c, 1);
    return m->depth > 0 ? MARKUP_ARGUMENTS : MARKUP_ENDED;
}

static enum tool_call_markup_step separate(const struct braces_reader *b, char c)
{
    struct tool_call_markup *m = b->m;

    if (c == ':' ? !(m->is_key && m->begun) : !m->any)
        return end_call(b);
    b->in->taken++;
    m->is_key = c == ',' && in_object(m);
    m->comma = c == ',';
    m->any = false;
    return MARKUP_ARGUMENTS;
}

// One character of the call's structure, or a key or value.
static enum tool_call_markup_step read_next(const struct braces_reader *b)
{
    struct tool_call_markup *m = b->m;
    struct str text = left(b);
    char c = text.at[0];

    if (c == '"' || str_starts(text, str_from(quote))) {
        if ((m->is_key && m->begun) || !begin_item(b))
            return end_call(b);
        m->in_string = true;
        m->functions = c == '"';
        b->in->taken += c == '"' ? 1 : strlen(quote);
        buf_text(b->out, "\"");
        return MARKUP_ARGUMENTS;
    }
    if (text.n < strlen(quote) && !memcmp(text.at, quote, text.n) && !b->in->finished)
        return wait_here(b);
    if (c == '{' || c == '[')
        return open_bracket(b, c);
    if (c == '}' || c == ']')
        return close_bracket(b, c);
    if (c == ',' || c == ':')
        return separate(b, c);
    if (m->is_key && m->begun) // a colon is missing
        return end_call(b);
    return read_bare(b, m->is_key ? ":}" : ",]}");
}

static void skip_blanks(const struct braces_reader *b)
{
    while (left(b).n && strchr(" \n\t\r", left(b).at[0]) && left(b).at[0])
        b->in->taken++;
}

static enum tool_call_markup_step read_arguments(const struct braces_reader *b)
{
    enum tool_call_markup_step step = MARKUP_ARGUMENTS;

    for (size_t before = SIZE_MAX; step == MARKUP_ARGUMENTS && b->in->taken != before;) {
        if (!b->m->in_string)
            skip_blanks(b);
        if (left(b).n == 0)
            return b->in->finished ? MARKUP_ENDED : wait_here(b);
        before = b->in->taken;
        step = !b->m->in_string ? read_next(b) : b->m->functions ? read_json_string(b) : read_string(b);
    }
    return step;
}

enum tool_call_markup_step tool_call_braces_read(struct tool_call_markup *m, struct tool_call_markup_text *in,
                                                 struct buf *out)
{
    const struct braces_reader b = { m, in, out };
    struct str text = in->text;

    if (m->state != MARKUP_NAME)
        return read_arguments(&b);
    if (text.n <= strlen(call) && !memcmp(text.at, call, text.n))
        return in->finished ? MARKUP_NO_CALL : MARKUP_WAIT;
    if (!str_starts(text, str_from(call)))
        return MARKUP_NO_CALL;
    size_t brace = str_find(text, STR("{"));
    struct str name = str_from_to(text, strlen(call), brace == SIZE_MAX ? text.n : brace);
    if (!tool_call_name_is_valid(name))
        return MARKUP_NO_CALL;
    if (brace == SIZE_MAX)
        return in->finished ? MARKUP_NO_CALL : MARKUP_WAIT;
    buf_str(out, name);
    m->state = MARKUP_NEXT;
    in->taken = brace;
    return MARKUP_NAMED;
}
