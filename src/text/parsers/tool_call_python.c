// tool_call_python.c - a call in Python, as Llama's templates show it: get_weather(city="Rome", days=3).
//
// The parser accepts arguments by name, with strings, numbers, True, False, None, lists and dicts as values.
// Anything else is no call. The name must be one of the request's tools, so that ordinary text with
// parentheses stays text.
#include <string.h>
#include "text/parsers/tool_call_markup.h"
#include "text/parsers/tool_call_python.h"

// MAX_BYTES bounds the cost: a call is parsed again with every token until it is complete.
enum { MAX_DEPTH = 32, MAX_BYTES = 16384 };

struct python {
    const char *at, *end;
    struct buf *out;
    int depth;
};

static void skip_blanks(struct python *p)
{
    while (p->at < p->end && strchr(" \n\t\r", *p->at) && *p->at)
        p->at++;
}

static bool take(struct python *p, char c)
{
    skip_blanks(p);
    bool there = p->at < p->end && *p->at == c;
    p->at += there;
    return there;
}

static bool take_word(struct python *p, const char *word)
{
    size_t n = strlen(word);
    bool there = (size_t)(p->end - p->at) >= n && !memcmp(p->at, word, n);
    p->at += there ? n : 0;
    return there;
}

static bool read_string(struct python *p)
{
    char quote = *p->at++;

    buf_text(p->out, "\"");
    for (; p->at < p->end && *p->at != quote; p->at++) {
        char c = *p->at;
        if (c == '\\' && p->at + 1 < p->end) {
            c = *++p->at;
            if (c == '\'')
                buf_text(p->out, "'");
            else if (strchr("nrt\"\\", c) && c)
                buf_printf(p->out, "\\%c", c);
            else
                return false;
        } else if (c == '"') {
            buf_text(p->out, "\\\"");
        } else if ((unsigned char)c < 0x20) {
            buf_printf(p->out, "\\u%04x", c);
        } else {
            buf_append(p->out, &c, 1);
        }
    }
    buf_text(p->out, "\"");
    return p->at++ < p->end;
}

static bool read_number(struct python *p)
{
    const char *from = p->at;

    while (p->at < p->end && strchr("+-.0123456789eE", *p->at) && *p->at)
        p->at++;
    json_t *number = json_loadb(from, (size_t)(p->at - from), JSON_DECODE_ANY, NULL);
    bool ok = json_is_number(number);
    json_decref(number);
    return ok && buf_append(p->out, from, (size_t)(p->at - from));
}

static bool read_value(struct python *p);

// Items up to the bracket that closes them, with keys in a dict.
static bool read_items(struct python *p, char close, bool keys)
{
    buf_text(p->out, keys ? "{" : "[");
    for (bool first = true; !take(p, close); first = false) {
        if (!first && !take(p, ','))
            return false;
        if (!first && take(p, close)) // a comma may be last
            break;
        buf_text(p->out, first ? "" : ", ");
        skip_blanks(p);
        if (keys) {
            if (p->at == p->end || (*p->at != '"' && *p->at != '\'') || !read_string(p) || !take(p, ':'))
                return false;
            buf_text(p->out, ": ");
        }
        if (!read_value(p))
            return false;
    }
    return buf_text(p->out, keys ? "}" : "]");
}

static bool read_value(struct python *p)
{
    static const char *const words[][2] = { { "True", "true" },   { "true", "true" }, { "False", "false" },
                                            { "false", "false" }, { "None", "null" }, { "null", "null" } };

    skip_blanks(p);
    if (p->at == p->end || p->depth == MAX_DEPTH)
        return false;
    if (*p->at == '"' || *p->at == '\'')
        return read_string(p);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (take_word(p, words[i][0]))
            return buf_text(p->out, words[i][1]);
    if (*p->at != '[' && *p->at != '{')
        return read_number(p);
    bool keys = *p->at++ == '{';
    p->depth++;
    bool ok = read_items(p, keys ? '}' : ']', keys);
    p->depth--;
    return ok;
}

static struct str read_name(struct python *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at != '.' && tool_call_name_is_valid((struct str){ p->at, 1 }))
        p->at++;
    return (struct str){ from, (size_t)(p->at - from) };
}

static bool read_arguments(struct python *p)
{
    buf_text(p->out, "{");
    for (bool first = true; !take(p, ')'); first = false) {
        if (!first && !take(p, ','))
            return false;
        skip_blanks(p);
        struct str key = read_name(p);
        if (key.n == 0 || !take(p, '='))
            return false;
        buf_printf(p->out, "%s\"%.*s\": ", first ? "" : ", ", STR_ARG(key));
        if (!read_value(p))
            return false;
    }
    return buf_text(p->out, "}");
}

// Where the parenthesis that opens at text[0] closes; SIZE_MAX: not yet.
static size_t closing(struct str text)
{
    char quote = 0;
    int depth = 0;

    for (size_t i = 0; i < text.n; i++) {
        char c = text.at[i];
        if (quote) {
            i += c == '\\';
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && --depth == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

enum tool_call_python_step tool_call_python_read(struct str text, const json_t *tools,
                                                 struct tool_call_python *call)
{
    struct python p = { text.at, text.at + text.n, &call->arguments, 0 };
    struct str name = read_name(&p);

    if (p.at == p.end)
        return name.n > 64 ? PYTHON_NO_CALL : PYTHON_WAIT;
    if (!tool_call_find_tool(tools, name))
        return PYTHON_NO_CALL;
    if (*p.at == '.' && (size_t)(p.end - p.at) < strlen(".call("))
        return PYTHON_WAIT;
    take_word(&p, ".call");
    if (p.at == p.end)
        return PYTHON_WAIT;
    if (*p.at != '(')
        return PYTHON_NO_CALL;
    size_t n = closing((struct str){ p.at, (size_t)(p.end - p.at) });
    if (n == SIZE_MAX)
        return text.n > MAX_BYTES ? PYTHON_NO_CALL : PYTHON_WAIT;
    p.end = p.at + n + 1;
    p.at++;
    if (!read_arguments(&p) || p.at != p.end)
        return PYTHON_NO_CALL;
    call->taken = (size_t)(p.end - text.at);
    return buf_str(&call->name, name) ? PYTHON_CALL : PYTHON_NO_CALL;
}
