// sse.c - see sse.h.
#include "server/http/sse.h"
#include "base/buf_json.h"

void sse_json(struct buf *out, json_t *value)
{
    if (!buf_json(out, value, JSON_COMPACT | JSON_REAL_PRECISION(9)))
        out->failed = true;
    json_decref(value);
}

void sse_event(struct buf *out, const char *name, json_t *value)
{
    if (name)
        buf_printf(out, "event: %s\n", name);
    buf_text(out, "data: ");
    sse_json(out, value);
    buf_text(out, "\n\n");
}

json_t *sse_text(const char *text)
{
    json_t *value = json_string(text);
    struct buf plain = { 0 };

    for (; !value && *text; text++)
        buf_append(&plain, *text > 0 ? text : "?", 1);
    if (!value)
        value = json_string(buf_as_str(&plain).at);
    buf_free(&plain);
    return value;
}

void sse_escape(struct buf *out, struct str text)
{
    static const char letters[0x80] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\'
    };
    size_t from = 0;

    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c >= 0x80 || (c >= 0x20 && !letters[c]))
            continue;
        buf_append(out, text.at + from, i - from);
        from = i + 1;
        if (letters[c])
            buf_printf(out, "\\%c", letters[c]);
        else
            buf_printf(out, "\\u%04X", c);
    }
    buf_append(out, text.at + from, text.n - from);
}
