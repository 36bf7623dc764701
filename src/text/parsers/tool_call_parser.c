// tool_call_parser.c - the beginning, the forms and the end of tool calls in an output.
//
// A call is a JSON object (tool_call_json.c), a name followed by the object of its arguments, markup
// (tool_call_markup.c) or Python (tool_call_python.c). The style says which of these may follow a mark.
#include "text/parsers/output_parser_parts.h"
#include "text/parsers/tool_call_python.h"

enum { MAX_HEAD = 512 }; // of a name and what stands before its arguments

enum parse_step tool_call_parser_begin(struct output_parser *p)
{
    p->mode = OUTPUT_CALL;
    p->raw.n = p->name.n = p->arguments_at = p->n_sent = 0;
    p->named = p->decoded = p->sent_name = false;
    p->call = (struct tool_call_reader){ 0 };
    p->markup = (struct tool_call_markup){ 0 };
    return PARSE_GO_ON;
}

enum parse_step tool_call_parser_end(struct output_parser *p, struct output_piece *piece)
{
    *piece = (struct output_piece){ PIECE_CALL_END, p->n_calls++, { "", 0 } };
    p->mode = OUTPUT_AFTER_CALL;
    return PARSE_PIECE;
}

enum parse_step tool_call_parser_reject(struct output_parser *p, struct output_piece *piece)
{
    p->mode = OUTPUT_CONTENT;
    p->has_content = true;
    *piece = (struct output_piece){ PIECE_CONTENT, 0, buf_as_str(&p->raw) };
    return p->raw.n ? PARSE_PIECE : PARSE_GO_ON;
}

// Whether a Python call begins at this place, behind "[" or Llama's tag. *unknown: more text decides.
static bool may_be_python(const struct output_parser *p, size_t at, bool *unknown)
{
    struct tool_call_python call = { 0 };
    enum tool_call_python_step step =
        tool_call_python_read(str_from_to(buf_as_str(&p->text), at, p->text.n), p->tools, &call);

    buf_free(&call.name);
    buf_free(&call.arguments);
    *unknown = step == PYTHON_WAIT && !p->finished;
    return step == PYTHON_CALL;
}

enum parse_step tool_call_parser_begin_naked(struct output_parser *p)
{
    static const char tag[] = "<|python_tag|>";
    size_t from = p->at;
    bool unknown, tagged;

    output_parser_skip_blanks(p);
    tagged = output_parser_at_mark(p, tag, &unknown);
    p->at += tagged ? strlen(tag) : 0;
    if (unknown || (p->at == p->text.n && !p->finished)) {
        p->at = from;
        return PARSE_WAIT;
    }
    if (p->at < p->text.n && p->text.at[p->at] == '{')
        return tool_call_parser_begin(p);
    bool bracket = p->at < p->text.n && p->text.at[p->at] == '[';
    if ((bracket || tagged) && may_be_python(p, p->at + bracket, &unknown)) {
        p->at += bracket;
        p->in_python = true;
        p->in_list = bracket;
        return tool_call_parser_begin(p);
    }
    p->at = from;
    if ((bracket || tagged) && unknown)
        return PARSE_WAIT;
    p->has_content = true; // from here on it is content
    return PARSE_GO_ON;
}

// The tool's name within the text before the arguments: NAME[CALL_ID]ID[ARGS], NAME<sep>, or TYPE<sep>NAME
// and a fence.
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

// Rewrites a name and the object of its arguments as the object {"name", "arguments"}.
static enum parse_step named_arguments(struct output_parser *p, struct output_piece *piece)
{
    struct str text = output_parser_rest(p);
    size_t brace = str_find(text, STR("{"));
    struct str name = name_in(str_from_to(text, 0, brace == SIZE_MAX ? text.n : brace));

    if (brace == SIZE_MAX && !p->finished && text.n < MAX_HEAD)
        return PARSE_WAIT;
    if (brace == SIZE_MAX || brace >= MAX_HEAD || !tool_call_name_is_valid(name)) {
        size_t n = brace == SIZE_MAX || brace > MAX_HEAD ? (text.n < MAX_HEAD ? text.n : MAX_HEAD) : brace;
        buf_append(&p->raw, text.at, n);
        p->at += n;
        return tool_call_parser_reject(p, piece);
    }
    buf_printf(&p->raw, "{\"name\":\"%.*s\",\"arguments\":", STR_ARG(name));
    p->at += brace;
    p->named = true;
    for (size_t i = 0; i < p->raw.n; i++)
        tool_call_json_byte(p, p->raw.at[i], i);
    return PARSE_GO_ON;
}

static size_t blanks_end(struct str text, size_t at)
{
    while (at < text.n && parse_is_blank(text.at[at]))
        at++;
    return at;
}

// Whether a tool's name, a line break and the beginning of an object stand here. *unknown: more text decides.
static bool at_named_object(const struct output_parser *p, bool *unknown)
{
    struct str rest = output_parser_rest(p),
               text = str_from_to(rest, 0, rest.n < MAX_HEAD ? rest.n : MAX_HEAD);
    size_t line = str_find(text, STR("\n")), n = line == SIZE_MAX ? text.n : line;

    while (n > 0 && parse_is_blank(text.at[n - 1]))
        n--;
    struct str name = str_from_to(text, 0, n);
    bool named = line != SIZE_MAX && tool_call_find_tool(p->tools, name);
    size_t brace = named ? blanks_end(text, line) : text.n, key = blanks_end(text, brace + 1);
    bool object = brace < text.n && text.at[brace] == '{';
    bool may_be = named ? brace == text.n || (object && key == text.n)
                        : line == SIZE_MAX && (n == 0 || tool_call_name_is_valid(name));
    *unknown = may_be && !p->finished && text.n < MAX_HEAD;
    return object && key < text.n && (text.at[key] == '"' || text.at[key] == '}');
}

// Text that begins no call keeps its blanks, which may part it from the text of the turn before.
static enum parse_step enter_turn(struct output_parser *p, struct output_piece *piece)
{
    size_t from = p->at;
    bool unknown;

    output_parser_skip_blanks(p);
    if (at_named_object(p, &unknown))
        return named_arguments(p, piece);
    p->at = p->has_content ? from : p->at;
    return unknown ? PARSE_WAIT : tool_call_parser_reject(p, piece);
}

static enum parse_step end_markup(struct output_parser *p, struct output_piece *piece)
{
    if (!p->markup.ended && p->raw.n > 0) { // the last of the arguments comes first
        *piece = (struct output_piece){ PIECE_ARGUMENTS, p->n_calls, buf_as_str(&p->raw) };
        p->markup.ended = true;
        return PARSE_PIECE;
    }
    return tool_call_parser_end(p, piece);
}

enum parse_step tool_call_parser_markup(struct output_parser *p, struct output_piece *piece)
{
    struct tool_call_markup_text in = { .text = output_parser_rest(p), .finished = p->finished };
    enum tool_call_markup_step step;

    if (p->markup.ended)
        return end_markup(p, piece);
    p->raw.n = 0;
    step = tool_call_markup_read(&p->markup, p->tools, &in, &p->raw);
    p->at += in.taken;
    switch (step) {
    case MARKUP_WAIT:
        return PARSE_WAIT;
    case MARKUP_NAMED:
        *piece = (struct output_piece){ PIECE_CALL, p->n_calls, buf_as_str(&p->raw) };
        return PARSE_PIECE;
    case MARKUP_ARGUMENTS:
        *piece = (struct output_piece){ PIECE_ARGUMENTS, p->n_calls, buf_as_str(&p->raw) };
        return p->raw.n ? PARSE_PIECE : PARSE_GO_ON;
    case MARKUP_ENDED:
        return end_markup(p, piece);
    case MARKUP_NO_CALL:
        break;
    }
    p->mode = OUTPUT_CONTENT;
    p->has_content = true;
    if (str_starts(in.text, STR(CALL_FUNCTION_MARK))) // emitted here: content would find the mark again
        return output_parser_emit(p, piece, PIECE_CONTENT, strlen(CALL_FUNCTION_MARK));
    return PARSE_GO_ON;
}

static enum parse_step read_python(struct output_parser *p, struct output_piece *piece)
{
    struct tool_call_python call = { 0 };
    enum tool_call_python_step step = tool_call_python_read(output_parser_rest(p), p->tools, &call);

    if (step == PYTHON_CALL) {
        p->at += call.taken;
        buf_str(&p->name, buf_as_str(&call.name));
        buf_text(&p->raw, " "); // so that arguments do not begin at 0
        buf_str(&p->raw, buf_as_str(&call.arguments));
        p->arguments_at = p->n_sent = 1;
        p->call = (struct tool_call_reader){ .state = CALL_ENDED, .value_end = p->raw.n };
    }
    buf_free(&call.name);
    buf_free(&call.arguments);
    if (step == PYTHON_WAIT && !p->finished)
        return PARSE_WAIT;
    return step == PYTHON_CALL ? PARSE_GO_ON : tool_call_parser_reject(p, piece);
}

// LFM2: the list's bracket, then a call of it.
static enum parse_step enter_python(struct output_parser *p, struct output_piece *piece, char next)
{
    if (!p->in_list && next != '[')
        return tool_call_parser_reject(p, piece);
    p->in_python = p->in_list;
    p->at += !p->in_list;
    p->in_list = true;
    return PARSE_GO_ON;
}

// Chooses the form of the call by its first character and the style.
static enum parse_step enter_call(struct output_parser *p, struct output_piece *piece)
{
    int form = tool_call_family_of(p->style)->form;

    if (form == CALL_TURN)
        return enter_turn(p, piece);
    output_parser_skip_blanks(p);
    if (p->at == p->text.n && !p->finished)
        return PARSE_WAIT;
    char next = p->at < p->text.n ? p->text.at[p->at] : 0;
    if (p->in_python)
        return read_python(p, piece);
    p->in_list |= form == CALL_LINES; // up to the closer
    if (next == '{' && p->style != CALLS_BRACES)
        return tool_call_json_step(p, piece);
    if (next == ']' && p->in_list) { // of no calls
        p->mode = OUTPUT_AFTER_CALL;
        return PARSE_GO_ON;
    }
    if (form == CALL_LINES)
        return read_python(p, piece);
    if (form == CALL_PYTHON)
        return enter_python(p, piece, next);
    if (form == CALL_NAMED)
        return named_arguments(p, piece);
    if (next == '[' && form != CALL_NAKED && p->style != CALLS_BRACES) {
        p->at++;
        p->in_list = true;
        return PARSE_GO_ON;
    }
    if (form == CALL_LIST)
        return named_arguments(p, piece);
    if (form == CALL_NAKED)
        return tool_call_parser_reject(p, piece);
    p->markup.braces = p->style == CALLS_BRACES;
    p->mode = OUTPUT_MARKUP;
    return PARSE_GO_ON;
}

enum parse_step tool_call_parser_step(struct output_parser *p, struct output_piece *piece)
{
    return p->raw.n == 0 ? enter_call(p, piece) : tool_call_json_step(p, piece);
}

enum parse_step tool_call_parser_after(struct output_parser *p)
{
    const struct tool_call_family *family = tool_call_family_of(p->style);
    bool unknown = false;

    if (p->n_calls >= p->most_calls) { // the rest is dropped
        p->at = p->text.n;
        return PARSE_WAIT;
    }
    output_parser_skip_blanks(p);
    if (p->at == p->text.n)
        return PARSE_WAIT;
    for (size_t i = 0; i < MAX_CALL_CLOSERS && family->closers[i]; i++) {
        bool more, closes = output_parser_at_mark(p, family->closers[i], &more);
        unknown |= more;
        p->at += closes ? strlen(family->closers[i]) : 0;
        p->in_list &= !closes;
        if (closes)
            return PARSE_GO_ON;
    }
    if (unknown)
        return PARSE_WAIT;
    char next = p->text.at[p->at];
    if (family->form == CALL_LINES && p->in_list)
        return tool_call_parser_begin(p);
    bool separated_from_next = (next == ',' && p->in_list) || (next == ';' && p->style == CALLS_NAKED);
    p->at += separated_from_next;
    if (next == ']' && p->in_list) {
        p->at++;
        p->in_list = p->in_python = false;
        return PARSE_GO_ON;
    }
    if (separated_from_next || (next == '{' && (family->form == CALL_LIST || family->form == CALL_NAKED)))
        return tool_call_parser_begin(p);
    p->in_list = p->in_python = false;
    p->mode = OUTPUT_CONTENT;
    p->after_reasoning = true; // blanks after a call are dropped
    p->has_content = p->style == CALLS_NAKED;
    return PARSE_GO_ON;
}
