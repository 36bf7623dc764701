// tool_call_markup.c - see tool_call_markup.h.
#include "text/parsers/tool_call_markup.h"
#include <string.h>
#include "base/buf_json.h"
#include "text/parsers/tool_call_braces.h"

enum { MAX_KEY = 127, MAX_NAME = 64 };

static struct str trimmed(struct str text)
{
    while (text.n && strchr(" \n\t\r", text.at[0]))
        text = str_from_to(text, 1, text.n);
    while (text.n && strchr(" \n\t\r", text.at[text.n - 1]))
        text.n--;
    return text;
}

bool tool_call_name_is_valid(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", name.at[i]) ||
            !name.at[i])
            return false;
    return name.n > 0 && name.n <= MAX_NAME;
}

const json_t *tool_call_find_tool(const json_t *tools, struct str name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *found = json_string_value(json_object_get(function, "name"));
        if (found && str_is(name, found))
            return function;
    }
    return NULL;
}

// ---- types from the schema

static bool allows_type(const json_t *schema, const char *type, int depth)
{
    const json_t *types = json_object_get(schema, "type"), *list = json_object_get(schema, "anyOf");

    list = list ? list : json_object_get(schema, "oneOf");
    for (size_t i = 0; depth < 8 && i < json_array_size(list); i++)
        if (allows_type(json_array_get(list, i), type, depth + 1))
            return true;
    if (list || json_is_string(types))
        return types && !strcmp(json_string_value(types), type);
    for (size_t i = 0; i < json_array_size(types); i++)
        if (json_is_string(json_array_get(types, i)) &&
            !strcmp(json_string_value(json_array_get(types, i)), type))
            return true;
    return !types;
}

static bool allows_value(const json_t *schema, const json_t *value)
{
    static const char *const names[] = { "object", "array",   "string",  "integer",
                                         "number", "boolean", "boolean", "null" };

    return allows_type(schema, names[json_typeof(value)], 0) ||
           (json_is_integer(value) && allows_type(schema, "number", 0));
}

static bool is_string_only(const json_t *schema)
{
    static const char *const others[] = { "object", "array", "integer", "number", "boolean", "null" };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (allows_type(schema, others[i], 0))
            return false;
    return allows_type(schema, "string", 0);
}

// ---- writing JSON

void tool_call_write_escaped(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_text(out, "\\n");
        else if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_append(out, &text.at[i], 1);
    }
}

void tool_call_write_value(struct buf *out, const json_t *schema, struct str text)
{
    json_t *value = json_loadb(text.at, text.n, JSON_DECODE_ANY, NULL);

    if (value && (schema ? allows_value(schema, value) : !json_is_string(value))) {
        buf_json(out, value, JSON_ENCODE_ANY);
    } else {
        buf_text(out, "\"");
        tool_call_write_escaped(out, text);
        buf_text(out, "\"");
    }
    json_decref(value);
}

// ---- steps

static enum tool_call_markup_step take(struct tool_call_markup_text *in, size_t n,
                                       enum tool_call_markup_step step)
{
    in->taken = n;
    return step;
}

static enum tool_call_markup_step named(struct tool_call_markup *m, const json_t *tools,
                                        struct tool_call_markup_text *in, struct str name)
{
    m->tool = tool_call_find_tool(tools, name);
    m->state = MARKUP_NEXT;
    return take(in, (size_t)(name.at + name.n - in->text.at), MARKUP_NAMED);
}

static bool may_become(struct str text, const char *mark)
{
    return text.n < strlen(mark) && !memcmp(text.at, mark, text.n);
}

static enum tool_call_markup_step read_name(struct tool_call_markup *m, const json_t *tools,
                                            struct tool_call_markup_text *in, struct buf *out)
{
    static const char function[] = "<function=";
    struct str text = in->text, name = text, rest;
    enum tool_call_markup_step more = in->finished ? MARKUP_NO_CALL : MARKUP_WAIT;

    if (may_become(text, function))
        return more;
    m->functions = str_starts(text, str_from(function));
    if (m->functions)
        name = str_from_to(text, strlen(function), text.n);
    size_t n = 0;
    while (n < name.n && !strchr(m->functions ? ">" : "< \n\t\r", name.at[n]))
        n++;
    rest = str_from_to(name, n, name.n);
    name = trimmed(str_from_to(name, 0, n));
    if (name.n > MAX_NAME || (name.n && !tool_call_name_is_valid(name)) || (!name.n && rest.n))
        return MARKUP_NO_CALL;
    if (!m->functions) { // only the text behind it tells a name from a word
        rest = trimmed(rest);
        if (may_become(rest, "<arg_key>") || may_become(rest, "</tool_call>"))
            return more;
        if (!str_starts(rest, STR("<arg_key>")) && !str_starts(rest, STR("</tool_call>")))
            return MARKUP_NO_CALL;
    }
    if (rest.n == 0)
        return more;
    buf_str(out, name);
    return named(m, tools, in, name);
}

static enum tool_call_markup_step end_call(const struct tool_call_markup *m, struct tool_call_markup_text *in,
                                           size_t n, struct buf *out)
{
    buf_text(out, m->any ? "}" : "{}");
    return take(in, n, MARKUP_ENDED);
}

// The key of the next argument, or the end.
static enum tool_call_markup_step read_key(struct tool_call_markup *m, struct tool_call_markup_text *in,
                                           struct buf *out)
{
    const char *open = m->functions ? "<parameter=" : "<arg_key>", *close = m->functions ? ">" : "</arg_key>";
    struct str text = in->text, rest;
    size_t at = str_find(text, str_from(open)), end = str_find(text, STR("</tool_call>"));
    size_t inner = m->functions ? str_find(text, STR("</function>")) : SIZE_MAX;

    if (inner < at && inner < end)
        return end_call(m, in, inner + strlen("</function>"), out);
    if (end < at)
        return end_call(m, in, end, out);
    if (at == SIZE_MAX)
        return in->finished ? take(in, text.n, MARKUP_ENDED) : MARKUP_WAIT;
    size_t from = at + strlen(open), to = str_find(str_from_to(text, from, text.n), str_from(close));
    if (to == SIZE_MAX)
        return in->finished ? take(in, text.n, MARKUP_ENDED) : MARKUP_WAIT;
    struct str key = trimmed(str_from_to(text, from, from + to));
    from += to + strlen(close);
    if (!m->functions) {
        static const char value[] = "<arg_value>";
        rest = str_from_to(text, from, text.n);
        size_t skipped = str_find(rest, str_from(value));
        if (skipped == SIZE_MAX)
            return in->finished ? take(in, text.n, MARKUP_ENDED) : MARKUP_WAIT;
        from += skipped + strlen(value);
    }
    char name[MAX_KEY + 1] = "";
    if (key.n <= MAX_KEY)
        memcpy(name, key.at, key.n);
    m->schema = json_object_get(json_object_get(json_object_get(m->tool, "parameters"), "properties"), name);
    m->streamed = m->schema && is_string_only(m->schema);
    m->begun = false;
    m->state = MARKUP_VALUE;
    buf_text(out, m->any ? ", \"" : "{\"");
    tool_call_write_escaped(out, key);
    buf_text(out, m->streamed ? "\": \"" : "\": ");
    m->any = true;
    return take(in, from, MARKUP_ARGUMENTS);
}

size_t tool_call_mark_held(struct str text, const char *mark)
{
    size_t n = strlen(mark) - 1;

    for (n = n < text.n ? n : text.n; n > 0; n--)
        if (!memcmp(text.at + text.n - n, mark, n))
            break;
    return n;
}

// <parameter=...> puts a line's end after and before the value, which <arg_value> does not.
static enum tool_call_markup_step read_value(struct tool_call_markup *m, struct tool_call_markup_text *in,
                                             struct buf *out)
{
    const char *close = m->functions ? "</parameter>" : "</arg_value>",
               *line_close = m->functions ? "\n</parameter>" : close;
    struct str text = in->text;
    size_t skipped = m->functions && !m->begun && text.n && text.at[0] == '\n',
           end = str_find(text, str_from(close)), n;

    if (end == SIZE_MAX && (!m->streamed || in->finished)) {
        if (!in->finished)
            return MARKUP_WAIT;
        if (m->streamed)
            tool_call_write_escaped(out, str_from_to(text, skipped, text.n));
        else if (text.n > skipped)
            tool_call_write_value(out, m->schema, str_from_to(text, skipped, text.n));
        m->state = MARKUP_NEXT;
        return take(in, text.n, MARKUP_ARGUMENTS);
    }
    if (end == SIZE_MAX) {
        size_t held = tool_call_mark_held(text, line_close), shorter = tool_call_mark_held(text, close);
        n = text.n - (held > shorter ? held : shorter);
        if (n <= skipped)
            return MARKUP_WAIT;
    } else {
        n = end > skipped && m->functions && text.at[end - 1] == '\n' ? end - 1 : end;
    }
    struct str value = str_from_to(text, skipped, n < skipped ? skipped : n);
    m->begun = true;
    if (m->streamed)
        tool_call_write_escaped(out, value);
    else
        tool_call_write_value(out, m->schema, value);
    if (end == SIZE_MAX)
        return take(in, n, MARKUP_ARGUMENTS);
    if (m->streamed)
        buf_text(out, "\"");
    m->state = MARKUP_NEXT;
    return take(in, end + strlen(close), MARKUP_ARGUMENTS);
}

enum tool_call_markup_step tool_call_markup_read(struct tool_call_markup *m, const json_t *tools,
                                                 struct tool_call_markup_text *in, struct buf *out)
{
    in->taken = 0;
    if (m->braces)
        return tool_call_braces_read(m, in, out);
    switch (m->state) {
    case MARKUP_NAME:
        return read_name(m, tools, in, out);
    case MARKUP_NEXT:
        return read_key(m, in, out);
    case MARKUP_VALUE:
        break;
    }
    return read_value(m, in, out);
}
