// speech.c - see speech.h.
//
// One function per mode looks at the text that was not told yet and either tells a piece, changes the mode, or waits for more. A call's
// JSON is not parsed but followed, so that arguments can be told before they are complete. How calls look is in `families`: what begins
// them, and what may stand behind one.
#include "text/parsers/speech.h"

enum step { STEP_PIECE, STEP_GO_ON, STEP_WAIT };

static const char think_open[] = "<think>", think_close[] = "</think>";
#define FUNCTION_MARK "<function="

void speech_begin(struct speech *s, const struct speech_options *o)
{
    CHECK(o->style < N_CALL_STYLES);
    s->style = o->style;
    s->tools = o->tools;
    s->most_calls = o->most_calls ? o->most_calls : UINT32_MAX;
    s->mode = o->reasoning_open ? SPEECH_REASONING : SPEECH_START;
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
    n = end != SIZE_MAX ? end : s->finished ? text.n : text.n - mark_held(text, think_close);
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

enum { MAX_MARKS = 2, MAX_CLOSERS = 4 };

static const struct family {
    const char *marks[MAX_MARKS];     // that begin calls
    const char *closers[MAX_CLOSERS]; // that may stand behind a call
} tags = { { "<tool_call>", NULL }, { "</tool_call>", "</function>", NULL } },
  functions = { { "<tool_call>", FUNCTION_MARK }, { "</tool_call>", "</function>", NULL } },
  list = { { "[TOOL_CALLS]", NULL }, { NULL } },
  separated = { { CALL_BEGIN, CALLS_BEGIN }, { "```", CALL_END, CALLS_END, NULL } }, naked = { { NULL }, { NULL } };

static const struct family *const families[N_CALL_STYLES] = {
    [CALLS_NONE] = &naked,          [CALLS_TAGS] = &tags,   [CALLS_FUNCTIONS] = &functions, [CALLS_KEYS] = &tags,
    [CALLS_LIST] = &list,           [CALLS_ARGS] = &list,   [CALLS_ARGS_ID] = &list,        [CALLS_FENCED] = &separated,
    [CALLS_SEPARATED] = &separated, [CALLS_NAKED] = &naked,
};

static const struct family *family_of(const struct speech *s)
{
    return families[s->style];
}

static enum step begin_call(struct speech *s)
{
    s->mode = SPEECH_CALL;
    s->raw.n = s->name.n = s->arguments_at = s->told = 0;
    s->named = s->decoded = false;
    s->call = (struct call_reader){ 0 };
    s->markup = (struct markup){ 0 };
    s->told_name = false;
    return STEP_GO_ON;
}

// What follows "[" or Llama's tag is looked at as Python, and taken back when it is none.
static bool may_be_python(const struct speech *s, size_t at, bool *unknown)
{
    struct python_call call = { 0 };
    enum python_step step = python_read(str_from_to(buf_as_str(&s->text), at, s->text.n), s->tools, &call);

    buf_free(&call.name);
    buf_free(&call.arguments);
    *unknown = step == PYTHON_WAIT && !s->finished;
    return step == PYTHON_CALL;
}

// A bare call can only stand at the beginning.
static enum step naked_content(struct speech *s)
{
    static const char tag[] = "<|python_tag|>";
    size_t from = s->at;
    bool unknown, tagged;

    skip_blanks(s);
    tagged = begins_with(s, tag, &unknown);
    s->at += tagged ? strlen(tag) : 0;
    if (unknown || (s->at == s->text.n && !s->finished)) {
        s->at = from;
        return STEP_WAIT;
    }
    if (s->at < s->text.n && s->text.at[s->at] == '{')
        return begin_call(s);
    bool bracket = s->at < s->text.n && s->text.at[s->at] == '[';
    if ((bracket || tagged) && may_be_python(s, s->at + bracket, &unknown)) {
        s->at += bracket;
        s->in_python = true;
        s->in_list = bracket;
        return begin_call(s);
    }
    s->at = from;
    if ((bracket || tagged) && unknown)
        return STEP_WAIT;
    s->said_anything = true; // from here on it is content
    return STEP_GO_ON;
}

// Where the first mark stands, SIZE_MAX: nowhere, and how much of the end may be the beginning of one.
static size_t find_mark(const struct family *f, struct str text, const char **mark, size_t *held)
{
    size_t first = SIZE_MAX;

    *held = 0;
    for (size_t i = 0; i < MAX_MARKS && f->marks[i]; i++) {
        size_t at = str_find(text, str_from(f->marks[i])), end = mark_held(text, f->marks[i]);
        if (at < first) {
            first = at;
            *mark = f->marks[i];
        }
        *held = end > *held ? end : *held;
    }
    return first;
}

static enum step in_content(struct speech *s, struct speech_piece *piece)
{
    const char *mark = NULL;
    size_t held;

    if (s->after_reasoning && !s->said_anything)
        skip_blanks(s);
    if (s->style == CALLS_NAKED && !s->said_anything && s->n_calls == 0)
        return naked_content(s);
    struct str text = untold(s);
    size_t at = find_mark(family_of(s), text, &mark, &held), n = at != SIZE_MAX ? at : text.n - held;
    if (at == SIZE_MAX && (s->finished || !family_of(s)->marks[0]))
        return text.n ? tell(s, piece, PIECE_CONTENT, text.n) : STEP_WAIT;
    while (n > 0 && is_blank(text.at[n - 1])) // blanks before a call are left out
        n--;
    if (n > 0)
        return tell(s, piece, PIECE_CONTENT, n);
    if (at == SIZE_MAX)
        return STEP_WAIT;
    s->in_list = false;
    s->at += at + (strcmp(mark, FUNCTION_MARK) != 0 ? strlen(mark) : 0); // that one is part of the markup
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

static enum step give_back(struct speech *s, struct speech_piece *piece);

// A call's name out of what stands before its arguments: NAME[CALL_ID]ID[ARGS], NAME<sep>, or TYPE<sep>NAME and a fence.
static struct str name_in(struct str head)
{
    static const char *const ends[] = { "[CALL_ID]", "[ARGS]", "```", "\n", " " };
    size_t at = str_find(head, STR(CALL_SEP));

    if (str_starts(head, STR(CALL_BEGIN)))
        return name_in(str_from_to(head, strlen(CALL_BEGIN), head.n));
    if (at != SIZE_MAX) {
        struct str after = name_in(str_from_to(head, at + strlen(CALL_SEP), head.n));
        head = after.n ? after : str_from_to(head, 0, at);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if ((at = str_find(head, str_from(ends[i]))) != SIZE_MAX)
            head = str_from_to(head, 0, at);
    return head;
}

// A name and then an object of arguments: made into the object that the others write.
static enum step named_arguments(struct speech *s, struct speech_piece *piece)
{
    enum { MAX_HEAD = 512 };
    struct str text = untold(s);
    size_t brace = str_find(text, STR("{"));
    struct str name = name_in(str_from_to(text, 0, brace == SIZE_MAX ? text.n : brace));

    if (brace == SIZE_MAX && !s->finished && text.n < MAX_HEAD)
        return STEP_WAIT;
    if (brace == SIZE_MAX || brace >= MAX_HEAD || !name_is_tool(name)) {
        size_t n = brace == SIZE_MAX || brace > MAX_HEAD ? (text.n < MAX_HEAD ? text.n : MAX_HEAD) : brace;
        buf_append(&s->raw, text.at, n);
        s->at += n;
        return give_back(s, piece);
    }
    buf_printf(&s->raw, "{\"name\":\"%.*s\",\"arguments\":", STR_ARG(name));
    s->at += brace;
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

static enum step read_object(struct speech *s, struct speech_piece *piece)
{
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

static enum step end_markup(struct speech *s, struct speech_piece *piece)
{
    if (!s->markup.ended && s->raw.n > 0) { // the last of the arguments comes first
        *piece = (struct speech_piece){ PIECE_ARGUMENTS, s->n_calls, buf_as_str(&s->raw) };
        s->markup.ended = true;
        return STEP_PIECE;
    }
    *piece = (struct speech_piece){ PIECE_CALL_END, s->n_calls++, { "", 0 } };
    s->mode = SPEECH_AFTER_CALL;
    return STEP_PIECE;
}

// Arguments in markup, told as JSON while they come.
static enum step in_markup(struct speech *s, struct speech_piece *piece)
{
    struct markup_text in = { .text = untold(s), .finished = s->finished };
    enum markup_step step;

    if (s->markup.ended)
        return end_markup(s, piece);
    s->raw.n = 0;
    step = markup_read(&s->markup, s->tools, &in, &s->raw);
    s->at += in.taken;
    switch (step) {
    case MARKUP_WAIT:
        return STEP_WAIT;
    case MARKUP_NAMED:
        *piece = (struct speech_piece){ PIECE_CALL, s->n_calls, buf_as_str(&s->raw) };
        return STEP_PIECE;
    case MARKUP_ARGUMENTS:
        *piece = (struct speech_piece){ PIECE_ARGUMENTS, s->n_calls, buf_as_str(&s->raw) };
        return s->raw.n ? STEP_PIECE : STEP_GO_ON;
    case MARKUP_ENDED:
        return end_markup(s, piece);
    case MARKUP_NO_CALL:
        break;
    }
    s->mode = SPEECH_CONTENT;
    s->said_anything = true;
    if (str_starts(in.text, STR(FUNCTION_MARK))) // told, or content would take it for a mark again
        return tell(s, piece, PIECE_CONTENT, strlen(FUNCTION_MARK));
    return STEP_GO_ON;
}

static enum step in_python(struct speech *s, struct speech_piece *piece)
{
    struct python_call call = { 0 };
    enum python_step step = python_read(untold(s), s->tools, &call);

    if (step == PYTHON_CALL) {
        s->at += call.taken;
        buf_str(&s->name, buf_as_str(&call.name));
        buf_text(&s->raw, " "); // so that arguments do not begin at 0
        buf_str(&s->raw, buf_as_str(&call.arguments));
        s->arguments_at = s->told = 1;
        s->call = (struct call_reader){ .state = CALL_ENDED, .value_end = s->raw.n };
    }
    buf_free(&call.name);
    buf_free(&call.arguments);
    if (step == PYTHON_WAIT && !s->finished)
        return STEP_WAIT;
    return step == PYTHON_CALL ? STEP_GO_ON : give_back(s, piece);
}

// The beginning of a call: which form it has.
static enum step enter_call(struct speech *s, struct speech_piece *piece)
{
    skip_blanks(s);
    if (s->at == s->text.n && !s->finished)
        return STEP_WAIT;
    char next = s->at < s->text.n ? s->text.at[s->at] : 0;
    if (s->in_python)
        return in_python(s, piece);
    if (next == '{')
        return read_object(s, piece);
    if (family_of(s) == &separated)
        return named_arguments(s, piece);
    if (next == '[' && s->style != CALLS_NAKED) {
        s->at++;
        s->in_list = true;
        return STEP_GO_ON;
    }
    if (family_of(s) == &list)
        return named_arguments(s, piece);
    if (s->style == CALLS_NAKED)
        return give_back(s, piece);
    s->mode = SPEECH_MARKUP;
    return STEP_GO_ON;
}

static enum step in_call(struct speech *s, struct speech_piece *piece)
{
    return s->raw.n == 0 ? enter_call(s, piece) : read_object(s, piece);
}

static enum step after_call(struct speech *s)
{
    const char *const *closers = family_of(s)->closers;
    bool unknown = false;

    if (s->n_calls >= s->most_calls) { // the rest is left out
        s->at = s->text.n;
        return STEP_WAIT;
    }
    skip_blanks(s);
    if (s->at == s->text.n)
        return STEP_WAIT;
    for (size_t i = 0; i < MAX_CLOSERS && closers[i]; i++) {
        bool more, closes = begins_with(s, closers[i], &more);
        unknown |= more;
        s->at += closes ? strlen(closers[i]) : 0;
        if (closes)
            return STEP_GO_ON;
    }
    if (unknown)
        return STEP_WAIT;
    char next = s->text.at[s->at];
    bool separated_from_next = (next == ',' && s->in_list) || (next == ';' && s->style == CALLS_NAKED);
    s->at += separated_from_next;
    if (next == ']' && s->in_list) {
        s->at++;
        s->in_list = s->in_python = false;
        return STEP_GO_ON;
    }
    if (separated_from_next || (next == '{' && (family_of(s) == &list || s->style == CALLS_NAKED)))
        return begin_call(s);
    s->in_list = s->in_python = false;
    s->mode = SPEECH_CONTENT;
    s->after_reasoning = true; // blanks are no content
    s->said_anything = s->style == CALLS_NAKED;
    return STEP_GO_ON;
}

bool speech_next(struct speech *s, struct speech_piece *piece)
{
    enum step step = STEP_GO_ON;

    while (step == STEP_GO_ON) {
        if (s->at == s->text.n && !(s->finished || s->mode == SPEECH_CALL || s->mode == SPEECH_MARKUP))
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
        case SPEECH_MARKUP:
            step = in_markup(s, piece);
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
        const char *mark, *detail; // detail NULL: the mark alone
        enum call_style style;
    } signs[] = { { CALL_BEGIN, "```json", CALLS_FENCED },
                  { CALL_BEGIN, NULL, CALLS_SEPARATED },
                  { "[TOOL_CALLS]", "[CALL_ID]", CALLS_ARGS_ID },
                  { "[TOOL_CALLS]", "[ARGS]", CALLS_ARGS },
                  { "[TOOL_CALLS]", NULL, CALLS_LIST },
                  { "<tool_call>", "<function=", CALLS_FUNCTIONS },
                  { "<tool_call>", "<arg_key>", CALLS_KEYS },
                  { "<tool_call>", NULL, CALLS_TAGS },
                  { "<|python_tag|>", NULL, CALLS_NAKED },
                  { "ipython", NULL, CALLS_NAKED },
                  { "func_name1(", NULL, CALLS_NAKED } };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (str_find(chat_template, str_from(signs[i].mark)) != SIZE_MAX &&
            (!signs[i].detail || str_find(chat_template, str_from(signs[i].detail)) != SIZE_MAX))
            return signs[i].style;
    return CALLS_TAGS;
}
