// speech.c - see speech.h.
//
// One function per mode looks at the text that was not told yet and either tells a piece, changes the mode, or waits for more. A call's
// JSON is not parsed but followed, so that arguments can be told before they are complete.
#include "text/speech.h"
#include <jansson.h>
#include "text/speech_markup.h"

enum step { STEP_PIECE, STEP_GO_ON, STEP_WAIT };

static const char think_open[] = "<think>", think_close[] = "</think>";

void speech_begin(struct speech *s, const struct speech_options *o)
{
    s->style = o->style;
    s->most_calls = o->most_calls ? o->most_calls : UINT32_MAX;
    s->mode = o->reasoning_open ? SPEECH_REASONING : o->call_open ? SPEECH_CALL : SPEECH_START;
}

void speech_release(struct speech *s)
{
    buf_free(&s->text);
    buf_free(&s->raw);
    buf_free(&s->name);
}

bool speech_push(struct speech *s, struct str text)
{
    if (s->at == s->text.n)
        s->at = s->text.n = 0;
    return buf_str(&s->text, text);
}

void speech_finish(struct speech *s)
{
    s->finished = true;
}

static struct str untold(const struct speech *s)
{
    return str_from_to(buf_as_str(&s->text), s->at, s->text.n);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_blanks(struct speech *s)
{
    size_t from = s->at;
    while (s->at < s->text.n && is_blank(s->text.at[s->at]))
        s->at++;
    return s->at - from;
}

static enum step tell(struct speech *s, struct speech_piece *piece, enum piece_kind kind, size_t n)
{
    *piece = (struct speech_piece){ kind, s->n_calls, { s->text.at + s->at, n } };
    s->at += n;
    s->said_anything |= kind == PIECE_CONTENT;
    return STEP_PIECE;
}

// How much of the end of the text may be the beginning of the mark.
static size_t held_for(struct str text, const char *mark)
{
    size_t n = strlen(mark) - 1;

    for (n = n < text.n ? n : text.n; n > 0; n--)
        if (!memcmp(text.at + text.n - n, mark, n))
            break;
    return n;
}

// Whether the text begins with the mark. *unknown: it may, once there is more.
static bool begins_with(const struct speech *s, const char *mark, bool *unknown)
{
    struct str text = untold(s);
    size_t n = strlen(mark);

    *unknown = text.n < n && !s->finished && !memcmp(text.at, mark, text.n);
    return text.n >= n && !memcmp(text.at, mark, n);
}

// ---- the beginning, and reasoning

static enum step at_start(struct speech *s)
{
    size_t from = s->at, n_blanks = skip_blanks(s);
    bool unknown, thinks = begins_with(s, think_open, &unknown);

    if (unknown) {
        s->at = from;
        return STEP_WAIT;
    }
    if (thinks)
        s->at += strlen(think_open);
    else if (s->style == CALLS_NONE || s->at == s->text.n)
        s->at -= n_blanks; // they belong to the content
    s->mode = thinks ? SPEECH_REASONING : SPEECH_CONTENT;
    return STEP_GO_ON;
}

static enum step in_reasoning(struct speech *s, struct speech_piece *piece)
{
    if (!s->after_reasoning && !s->begun) { // blanks before the first word
        skip_blanks(s);
        s->begun = s->at < s->text.n;
    }
    struct str text = untold(s);
    size_t end = str_find(text, str_from(think_close)), n;

    if (end == 0) {
        s->at += strlen(think_close);
        s->mode = SPEECH_CONTENT;
        s->after_reasoning = true;
        return STEP_GO_ON;
    }
    n = end != SIZE_MAX ? end : s->finished ? text.n : text.n - held_for(text, think_close);
    while (end == SIZE_MAX && !s->finished && n > 0 && is_blank(text.at[n - 1]))
        n--; // blanks before the mark are left out, and whether it comes is not known
    if (end != SIZE_MAX) {
        size_t kept = n;
        while (kept > 0 && is_blank(text.at[kept - 1]))
            kept--;
        if (kept == 0) {
            s->at += n;
            return STEP_GO_ON;
        }
        n = kept;
    }
    return n > 0 ? tell(s, piece, PIECE_REASONING, n) : STEP_WAIT;
}

// ---- content

static const char *mark_of(enum call_style style)
{
    return style == CALLS_TAGS ? "<tool_call>" : style == CALLS_LIST ? "[TOOL_CALLS]" : NULL;
}

static enum step begin_call(struct speech *s)
{
    s->mode = SPEECH_CALL;
    s->raw.n = s->name.n = s->arguments_at = s->told = 0;
    s->named = s->decoded = false;
    s->call = (struct call_reader){ 0 };
    s->told_name = false;
    return STEP_GO_ON;
}

// A bare call can only stand at the beginning.
static enum step naked_content(struct speech *s)
{
    static const char tag[] = "<|python_tag|>";
    size_t from = s->at;
    bool unknown;

    skip_blanks(s);
    if (begins_with(s, tag, &unknown))
        s->at += strlen(tag);
    if (unknown || (s->at == s->text.n && !s->finished)) {
        s->at = from;
        return STEP_WAIT;
    }
    if (s->at < s->text.n && s->text.at[s->at] == '{')
        return begin_call(s);
    s->at = from;
    s->said_anything = true; // from here on it is content
    return STEP_GO_ON;
}

static enum step in_content(struct speech *s, struct speech_piece *piece)
{
    const char *mark = mark_of(s->style);

    if (s->after_reasoning && !s->said_anything)
        skip_blanks(s);
    if (s->style == CALLS_NAKED && !s->said_anything && s->n_calls == 0)
        return naked_content(s);
    struct str text = untold(s);
    if (s->style == CALLS_NONE || (!mark && s->said_anything) || s->finished) {
        size_t at = mark ? str_find(text, str_from(mark)) : SIZE_MAX;
        if (at == SIZE_MAX)
            return text.n ? tell(s, piece, PIECE_CONTENT, text.n) : STEP_WAIT;
    }
    size_t at = str_find(text, str_from(mark ? mark : "\n{"));
    size_t n = at != SIZE_MAX ? at : text.n - held_for(text, mark ? mark : "\n{");
    while (n > 0 && is_blank(text.at[n - 1]))
        n--;
    if (n > 0)
        return tell(s, piece, PIECE_CONTENT, n);
    if (at == SIZE_MAX)
        return STEP_WAIT;
    s->at += at + (mark ? strlen(mark) : 1);
    return begin_call(s);
}

// ---- a call

static bool key_is(const struct speech *s, size_t from, size_t to, const char *name)
{
    return str_is(str_from_to(buf_as_str(&s->raw), from, to), name);
}

static void note_value(struct speech *s, size_t end)
{
    struct call_reader *c = &s->call;

    if (c->value == VALUE_NAME && end > c->value_at + 2 && s->raw.at[c->value_at] == '"')
        buf_append(&s->name, s->raw.at + c->value_at + 1, end - c->value_at - 2);
    if (c->value == VALUE_ARGUMENTS)
        c->value_end = end;
    c->state = CALL_COMMA;
}

static void read_key(struct speech *s, char byte, size_t at)
{
    struct call_reader *c = &s->call;

    if (c->in_string && byte == '"' && !c->escaped) {
        c->in_string = false;
        c->value = key_is(s, c->value_at + 1, at, "name")                                                        ? VALUE_NAME
                   : key_is(s, c->value_at + 1, at, "arguments") || key_is(s, c->value_at + 1, at, "parameters") ? VALUE_ARGUMENTS
                                                                                                                 : VALUE_OTHER;
        c->state = CALL_COLON;
    } else if (c->in_string) {
        c->escaped = byte == '\\' && !c->escaped;
    } else if (byte == '"') {
        c->in_string = true;
        c->value_at = at;
    } else if (byte == '}') {
        c->state = CALL_ENDED;
    } else if (!is_blank(byte)) {
        c->state = CALL_BROKEN;
    }
}

static void read_value(struct speech *s, char byte, size_t at)
{
    struct call_reader *c = &s->call;

    if (c->in_string) {
        if (byte == '"' && !c->escaped) {
            c->in_string = false;
            if (c->depth == 0)
                note_value(s, at + 1);
        }
        c->escaped = byte == '\\' && !c->escaped;
    } else if (byte == '"') {
        c->in_string = true;
    } else if (byte == '{' || byte == '[') {
        c->depth++;
    } else if ((byte == '}' || byte == ']') && c->depth > 0) {
        if (--c->depth == 0)
            note_value(s, at + 1);
    } else if ((byte == ',' || byte == '}') && c->depth == 0) {
        note_value(s, at);
        c->state = byte == ',' ? CALL_KEY : CALL_ENDED;
    }
}

// One byte more of the object.
static void read_byte(struct speech *s, char byte, size_t at)
{
    struct call_reader *c = &s->call;

    switch (c->state) {
    case CALL_BEFORE:
        c->state = byte == '{' ? CALL_KEY : is_blank(byte) ? CALL_BEFORE : CALL_BROKEN;
        return;
    case CALL_KEY:
        read_key(s, byte, at);
        return;
    case CALL_COLON:
        if (byte == ':')
            c->state = CALL_VALUE, c->value_at = SIZE_MAX;
        else if (!is_blank(byte))
            c->state = CALL_BROKEN;
        return;
    case CALL_VALUE:
        if (c->value_at == SIZE_MAX && is_blank(byte))
            return;
        c->value_at = c->value_at == SIZE_MAX ? at : c->value_at;
        if (c->value == VALUE_ARGUMENTS && s->arguments_at == 0)
            s->arguments_at = s->told = at;
        read_value(s, byte, at);
        return;
    case CALL_COMMA:
        if (byte == ',' || byte == '}')
            c->state = byte == ',' ? CALL_KEY : CALL_ENDED;
        else if (!is_blank(byte))
            c->state = CALL_BROKEN;
        return;
    case CALL_ENDED:
    case CALL_BROKEN:
        return;
    }
}

// [TOOL_CALLS]name[ARGS]{...}: made into the object that the others write.
static enum step named_arguments(struct speech *s)
{
    static const char mark[] = "[ARGS]";
    struct str text = untold(s);
    size_t at = str_find(text, str_from(mark)), brace = str_find(text, STR("{"));
    size_t end = at < brace ? at : brace;

    if (end == SIZE_MAX) {
        s->mode = s->finished ? SPEECH_CONTENT : SPEECH_CALL; // no call comes any more
        return s->finished ? STEP_GO_ON : STEP_WAIT;
    }
    buf_text(&s->raw, "{\"name\":\"");
    buf_append(&s->raw, text.at, end);
    buf_text(&s->raw, "\",\"arguments\":");
    s->at += end + (end == at ? strlen(mark) : 0);
    s->named = true;
    for (size_t i = 0; i < s->raw.n; i++)
        read_byte(s, s->raw.at[i], i);
    return STEP_GO_ON;
}

static bool arguments_are_text(const struct speech *s)
{
    return s->raw.at[s->arguments_at] == '"';
}

// Arguments that were written as a JSON string: its content.
static void decode_arguments(struct speech *s)
{
    size_t from = s->arguments_at;
    json_t *value = json_loadb(s->raw.at + from, s->call.value_end - from, JSON_DECODE_ANY, NULL);

    s->decoded = true;
    if (!json_is_string(value)) {
        json_decref(value);
        return;
    }
    s->raw.n = from;
    buf_text(&s->raw, " "); // no quote any more
    buf_append(&s->raw, json_string_value(value), json_string_length(value));
    s->arguments_at = s->told = from + 1;
    s->call.value_end = s->raw.n;
    json_decref(value);
}

static enum step tell_arguments(struct speech *s, struct speech_piece *piece)
{
    struct call_reader *c = &s->call;
    bool ended = c->state == CALL_ENDED || c->state == CALL_BROKEN;

    if (ended && c->value_end > s->arguments_at && s->arguments_at > 0 && !s->decoded && arguments_are_text(s))
        decode_arguments(s);
    size_t end = c->value_end ? c->value_end : s->arguments_at && c->value == VALUE_ARGUMENTS ? s->raw.n : 0;
    if (end > s->told && (ended || !arguments_are_text(s))) {
        *piece = (struct speech_piece){ PIECE_ARGUMENTS, s->n_calls, { s->raw.at + s->told, end - s->told } };
        s->told = end;
        return STEP_PIECE;
    }
    if (!ended)
        return STEP_WAIT;
    *piece = (struct speech_piece){ PIECE_CALL_END, s->n_calls++, { "", 0 } };
    s->mode = SPEECH_AFTER_CALL;
    return STEP_PIECE;
}

// It began like a call and is none.
static enum step give_back(struct speech *s, struct speech_piece *piece)
{
    s->mode = SPEECH_CONTENT;
    s->said_anything = true;
    *piece = (struct speech_piece){ PIECE_CONTENT, 0, buf_as_str(&s->raw) };
    return s->raw.n ? STEP_PIECE : STEP_GO_ON;
}

// It is a call: the tool has a name, and arguments begin or the object has ended.
static bool is_certain(const struct speech *s)
{
    return s->name.n > 0 && (s->arguments_at > 0 || s->call.state == CALL_ENDED);
}

// What stands between the tags and is no JSON: known when the tag is closed.
static enum step marked_up(struct speech *s, struct speech_piece *piece)
{
    struct str body = untold(s);
    size_t end = str_find(body, STR("</tool_call>"));
    struct buf arguments = { 0 };

    if (end == SIZE_MAX && !s->finished)
        return STEP_WAIT;
    body.n = end == SIZE_MAX ? body.n : end;
    s->at += body.n;
    if (!speech_read_markup(body, &s->name, &arguments)) {
        buf_free(&arguments);
        buf_str(&s->raw, body);
        return give_back(s, piece);
    }
    buf_text(&s->raw, " ");
    buf_str(&s->raw, buf_as_str(&arguments));
    buf_free(&arguments);
    s->arguments_at = s->told = 1;
    s->call = (struct call_reader){ .state = CALL_ENDED, .value_end = s->raw.n };
    return STEP_GO_ON;
}

static enum step in_call(struct speech *s, struct speech_piece *piece)
{
    if (s->raw.n == 0) {
        skip_blanks(s);
        if (s->style == CALLS_LIST && s->at < s->text.n && (s->text.at[s->at] == '[' || s->text.at[s->at] == ',')) {
            s->at++;
            return STEP_GO_ON;
        }
        if (s->style == CALLS_LIST && s->at < s->text.n && s->text.at[s->at] != '{')
            return named_arguments(s);
        if (s->style == CALLS_TAGS && s->at < s->text.n && s->text.at[s->at] != '{')
            return marked_up(s, piece);
    }
    while (s->at < s->text.n && s->call.state != CALL_ENDED && s->call.state != CALL_BROKEN && (s->told_name || !is_certain(s))) {
        char byte = s->text.at[s->at++];
        buf_append(&s->raw, &byte, 1);
        read_byte(s, byte, s->raw.n - 1);
        if (s->named && s->call.state == CALL_COMMA) // no object is around them
            s->call.state = CALL_ENDED;
    }
    if (s->raw.failed)
        return STEP_WAIT;
    bool ended = s->call.state == CALL_ENDED;
    if (!s->told_name && !is_certain(s))
        return ended || s->call.state == CALL_BROKEN || s->finished ? give_back(s, piece) : STEP_WAIT;
    if (!s->told_name) {
        s->told_name = true;
        *piece = (struct speech_piece){ PIECE_CALL, s->n_calls, buf_as_str(&s->name) };
        return STEP_PIECE;
    }
    return tell_arguments(s, piece);
}

static enum step after_call(struct speech *s)
{
    static const char close[] = "</tool_call>";
    bool unknown = false;

    if (s->n_calls >= s->most_calls) { // the rest is left out
        s->at = s->text.n;
        return STEP_WAIT;
    }
    skip_blanks(s);
    if (s->at == s->text.n)
        return STEP_WAIT;
    char next = s->text.at[s->at];
    if (s->style == CALLS_LIST && next == ']') {
        s->at++;
        s->mode = SPEECH_CONTENT;
        return STEP_GO_ON;
    }
    if ((s->style == CALLS_LIST && next == ',') || (s->style == CALLS_NAKED && next == ';')) {
        s->at++;
        return STEP_GO_ON;
    }
    if (s->style != CALLS_TAGS && next == '{')
        return begin_call(s);
    if (s->style == CALLS_TAGS && begins_with(s, close, &unknown))
        s->at += strlen(close);
    if (unknown)
        return STEP_WAIT;
    s->mode = SPEECH_CONTENT;
    s->after_reasoning = true; // blanks are no content
    s->said_anything = s->style == CALLS_NAKED;
    return STEP_GO_ON;
}

bool speech_next(struct speech *s, struct speech_piece *piece)
{
    enum step step = STEP_GO_ON;

    while (step == STEP_GO_ON) {
        if (s->at == s->text.n && !(s->finished || s->mode == SPEECH_CALL))
            return false;
        switch (s->mode) {
        case SPEECH_START:
            step = at_start(s);
            break;
        case SPEECH_REASONING:
            step = in_reasoning(s, piece);
            break;
        case SPEECH_CONTENT:
            step = in_content(s, piece);
            break;
        case SPEECH_CALL:
            step = in_call(s, piece);
            break;
        case SPEECH_AFTER_CALL:
            step = after_call(s);
            break;
        }
    }
    return step == STEP_PIECE;
}

enum call_style speech_style_of(struct str chat_template)
{
    static const struct {
        const char *word;
        enum call_style style;
    } signs[] = { { "[TOOL_CALLS]", CALLS_LIST },
                  { "<tool_call>", CALLS_TAGS },
                  { "<|python_tag|>", CALLS_NAKED },
                  { "ipython", CALLS_NAKED } };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (str_find(chat_template, str_from(signs[i].word)) != SIZE_MAX)
            return signs[i].style;
    return CALLS_TAGS;
}
