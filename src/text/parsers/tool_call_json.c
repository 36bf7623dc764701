// tool_call_json.c - a call that is a JSON object {"name", "arguments"}. The object is not parsed but
// followed byte by byte, so that its arguments can be emitted before they are complete.
#include "text/parsers/output_parser_parts.h"

static bool key_is(const struct output_parser *p, size_t from, size_t to, const char *name)
{
    return str_is(str_from_to(buf_as_str(&p->raw), from, to), name);
}

static void note_value(struct output_parser *p, size_t end)
{
    struct tool_call_reader *c = &p->call;

    if (c->value == VALUE_NAME && end > c->value_at + 2 && p->raw.at[c->value_at] == '"')
        buf_append(&p->name, p->raw.at + c->value_at + 1, end - c->value_at - 2);
    if (c->value == VALUE_ARGUMENTS)
        c->value_end = end;
    c->state = CALL_COMMA;
}

static void read_key(struct output_parser *p, char byte, size_t at)
{
    struct tool_call_reader *c = &p->call;

    if (c->in_string && byte == '"' && !c->escaped) {
        c->in_string = false;
        c->value =
            key_is(p, c->value_at + 1, at, "name") ? VALUE_NAME
            : key_is(p, c->value_at + 1, at, "arguments") || key_is(p, c->value_at + 1, at, "parameters")
                ? VALUE_ARGUMENTS
                : VALUE_OTHER;
        c->state = CALL_COLON;
    } else if (c->in_string) {
        c->escaped = byte == '\\' && !c->escaped;
    } else if (byte == '"') {
        c->in_string = true;
        c->value_at = at;
    } else if (byte == '}') {
        c->state = CALL_ENDED;
    } else if (!parse_is_blank(byte)) {
        c->state = CALL_BROKEN;
    }
}

static void read_value(struct output_parser *p, char byte, size_t at)
{
    struct tool_call_reader *c = &p->call;

    if (c->in_string) {
        if (byte == '"' && !c->escaped) {
            c->in_string = false;
            if (c->depth == 0)
                note_value(p, at + 1);
        }
        c->escaped = byte == '\\' && !c->escaped;
    } else if (byte == '"') {
        c->in_string = true;
    } else if (byte == '{' || byte == '[') {
        c->depth++;
    } else if ((byte == '}' || byte == ']') && c->depth > 0) {
        if (--c->depth == 0)
            note_value(p, at + 1);
    } else if ((byte == ',' || byte == '}') && c->depth == 0) {
        note_value(p, at);
        c->state = byte == ',' ? CALL_KEY : CALL_ENDED;
    }
}

void tool_call_json_byte(struct output_parser *p, char byte, size_t at)
{
    struct tool_call_reader *c = &p->call;

    switch (c->state) {
    case CALL_BEFORE:
        c->state = byte == '{' ? CALL_KEY : parse_is_blank(byte) ? CALL_BEFORE : CALL_BROKEN;
        return;
    case CALL_KEY:
        read_key(p, byte, at);
        return;
    case CALL_COLON:
        if (byte == ':')
            c->state = CALL_VALUE, c->value_at = SIZE_MAX;
        else if (!parse_is_blank(byte))
            c->state = CALL_BROKEN;
        return;
    case CALL_VALUE:
        if (c->value_at == SIZE_MAX && parse_is_blank(byte))
            return;
        c->value_at = c->value_at == SIZE_MAX ? at : c->value_at;
        if (c->value == VALUE_ARGUMENTS && p->arguments_at == 0)
            p->arguments_at = p->n_sent = at;
        read_value(p, byte, at);
        return;
    case CALL_COMMA:
        if (byte == ',' || byte == '}')
            c->state = byte == ',' ? CALL_KEY : CALL_ENDED;
        else if (!parse_is_blank(byte))
            c->state = CALL_BROKEN;
        return;
    case CALL_ENDED:
    case CALL_BROKEN:
        return;
    }
}

static bool arguments_are_text(const struct output_parser *p)
{
    return p->raw.at[p->arguments_at] == '"';
}

// Replaces arguments that are a JSON string by its content.
static void decode_arguments(struct output_parser *p)
{
    size_t from = p->arguments_at;
    json_t *value = json_loadb(p->raw.at + from, p->call.value_end - from, JSON_DECODE_ANY, NULL);

    p->decoded = true;
    if (!json_is_string(value)) {
        json_decref(value);
        return;
    }
    p->raw.n = from;
    buf_text(&p->raw, " "); // in place of the quote
    buf_append(&p->raw, json_string_value(value), json_string_length(value));
    p->arguments_at = p->n_sent = from + 1;
    p->call.value_end = p->raw.n;
    json_decref(value);
}

static enum parse_step emit_arguments(struct output_parser *p, struct output_piece *piece)
{
    struct tool_call_reader *c = &p->call;
    bool ended = c->state == CALL_ENDED || c->state == CALL_BROKEN;

    if (ended && c->value_end > p->arguments_at && p->arguments_at > 0 && !p->decoded &&
        arguments_are_text(p))
        decode_arguments(p);
    size_t end = c->value_end ? c->value_end : p->arguments_at && c->value == VALUE_ARGUMENTS ? p->raw.n : 0;
    if (end > p->n_sent && (ended || !arguments_are_text(p))) {
        *piece =
            (struct output_piece){ PIECE_ARGUMENTS, p->n_calls, { p->raw.at + p->n_sent, end - p->n_sent } };
        p->n_sent = end;
        return PARSE_PIECE;
    }
    if (!ended)
        return PARSE_WAIT;
    return tool_call_parser_end(p, piece);
}

// A call is certain once the tool has a name, and arguments begin or the object has ended.
static bool is_certain(const struct output_parser *p)
{
    return p->name.n > 0 && (p->arguments_at > 0 || p->call.state == CALL_ENDED);
}

enum parse_step tool_call_json_step(struct output_parser *p, struct output_piece *piece)
{
    while (p->at < p->text.n && p->call.state != CALL_ENDED && p->call.state != CALL_BROKEN &&
           (p->sent_name || !is_certain(p))) {
        char byte = p->text.at[p->at++];
        buf_append(&p->raw, &byte, 1);
        tool_call_json_byte(p, byte, p->raw.n - 1);
        if (p->named && p->call.state == CALL_COMMA) // no object encloses the arguments
            p->call.state = CALL_ENDED;
    }
    if (p->raw.failed)
        return PARSE_WAIT;
    bool ended = p->call.state == CALL_ENDED;
    if (!p->sent_name && !is_certain(p))
        return ended || p->call.state == CALL_BROKEN || p->finished ? tool_call_parser_reject(p, piece)
                                                                    : PARSE_WAIT;
    if (!p->sent_name) {
        p->sent_name = true;
        *piece = (struct output_piece){ PIECE_CALL, p->n_calls, buf_as_str(&p->name) };
        return PARSE_PIECE;
    }
    return emit_arguments(p, piece);
}
