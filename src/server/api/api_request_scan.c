// api_request_scan.c - see api_request_scan.h.
#include "server/api/api_request_scan.h"

// The byte behind the string that begins at `at`.
static size_t string_end(struct str text, size_t at)
{
    for (at++; at < text.n && text.at[at] != '"'; at++)
        at += text.at[at] == '\\';
    return at < text.n ? at + 1 : text.n;
}

// The byte behind the list or object that begins at `at`.
static size_t container_end(struct str text, size_t at)
{
    size_t depth = 0;

    while (at < text.n) {
        char c = text.at[at];
        at = c == '"' ? string_end(text, at) : at + 1;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0)
            break;
    }
    return at;
}

// Copies the text without the values of unknown names. `room` stays empty if there are none.
static void leave_out(struct str text, const struct api_request_names *names, struct buf *room)
{
    struct str name = { 0 };
    size_t depth = 0, kept = 0;

    for (size_t at = 0; at < text.n;) {
        char c = text.at[at];
        bool opens = c == '{' || c == '[';
        size_t end = c == '"' ? string_end(text, at) : at + 1;
        if (c == '"' && depth == 1 && end - at >= 2)
            name = str_from_to(text, at + 1, end - 1);
        if (opens && depth == 1 && name.n > 0 && !memchr(name.at, '\\', name.n) &&
            !names->known(names->dialect, name)) {
            end = container_end(text, at);
            buf_str(room, str_from_to(text, kept, at));
            buf_text(room, "false");
            kept = end;
            opens = false;
        }
        depth += opens;
        depth -= depth > 0 && (c == '}' || c == ']');
        at = end;
    }
    if (kept > 0)
        buf_str(room, str_from_to(text, kept, text.n));
}

static size_t count_values(struct str text)
{
    size_t n = 1;

    for (size_t at = 0; at < text.n;) {
        char c = text.at[at];
        n += c == '{' || c == '[' ? 2 : c == ',';
        at = c == '"' ? string_end(text, at) : at + 1;
    }
    return n;
}

struct str api_request_scan(struct str text, const struct api_request_names *names, struct buf *room,
                            struct err *err)
{
    if (names)
        leave_out(text, names, room);
    if (room->failed) {
        err_memory(err, "the body");
        return STR("");
    }
    text = room->n ? buf_as_str(room) : text;
    size_t n = count_values(text);
    if (n <= API_REQUEST_MAX_VALUES)
        return text;
    err_set(err, ERR_INPUT, "the body has %zu values, objects and lists counted twice; at most %d", n,
            API_REQUEST_MAX_VALUES);
    return STR("");
}
