// output_parser.c - see output_parser.h. Here: the parser's state, and content up to the mark of a call.
//
// reasoning_parser.c, tool_call_parser.c and channel_parser.c have the other modes.
#include "text/parsers/output_parser_parts.h"

void output_parser_init(struct output_parser *p, const struct output_parser_options *o)
{
    CHECK(o->style < N_CALL_STYLES);
    p->style = o->style;
    p->tools = o->tools;
    p->marks = o->marks ? o->marks : reasoning_marks_of((struct str){ "", 0 }, NULL);
    p->most_calls = o->most_calls ? o->most_calls : UINT32_MAX;
    p->mode = o->reasoning_open ? OUTPUT_REASONING : OUTPUT_START;
    if (p->style == CALLS_CHANNELS)
        p->mode = o->reasoning_open ? OUTPUT_MESSAGE : OUTPUT_HEADER;
}

void output_parser_release(struct output_parser *p)
{
    buf_free(&p->text);
    buf_free(&p->raw);
    buf_free(&p->name);
}

bool output_parser_push(struct output_parser *p, struct str text)
{
    if (p->at == p->text.n)
        p->at = p->text.n = 0;
    return buf_str(&p->text, text);
}

void output_parser_finish(struct output_parser *p)
{
    p->finished = true;
}

struct str output_parser_rest(const struct output_parser *p)
{
    return str_from_to(buf_as_str(&p->text), p->at, p->text.n);
}

size_t output_parser_skip_blanks(struct output_parser *p)
{
    size_t from = p->at;
    while (p->at < p->text.n && parse_is_blank(p->text.at[p->at]))
        p->at++;
    return p->at - from;
}

enum parse_step output_parser_emit(struct output_parser *p, struct output_piece *piece, enum piece_kind kind,
                                   size_t n)
{
    *piece = (struct output_piece){ kind, p->n_calls, { p->text.at + p->at, n } };
    p->at += n;
    p->has_content |= kind == PIECE_CONTENT;
    return PARSE_PIECE;
}

bool output_parser_at_mark(const struct output_parser *p, const char *mark, bool *unknown)
{
    struct str text = output_parser_rest(p);
    size_t n = strlen(mark);

    *unknown = text.n < n && !p->finished && !memcmp(text.at, mark, text.n);
    return text.n >= n && !memcmp(text.at, mark, n);
}

// The offset of the first mark (SIZE_MAX: none), and how many bytes at the end may be the beginning of one.
static size_t find_mark(const struct tool_call_family *f, struct str text, const char **mark, size_t *held)
{
    size_t first = SIZE_MAX;

    *held = 0;
    for (size_t i = 0; i < MAX_CALL_MARKS && f->marks[i]; i++) {
        size_t at = str_find(text, str_from(f->marks[i])), end = tool_call_mark_held(text, f->marks[i]);
        if (at < first) {
            first = at;
            *mark = f->marks[i];
        }
        *held = end > *held ? end : *held;
    }
    return first;
}

static enum parse_step read_content(struct output_parser *p, struct output_piece *piece)
{
    const struct tool_call_family *family = tool_call_family_of(p->style);
    const char *mark = NULL;
    size_t held;

    if (p->after_reasoning && !p->has_content)
        output_parser_skip_blanks(p);
    if (p->style == CALLS_NAKED && !p->has_content && p->n_calls == 0)
        return tool_call_parser_begin_naked(p);
    if (p->style == CALLS_TURNS && !p->has_content)
        return tool_call_parser_begin(p);
    struct str text = output_parser_rest(p);
    size_t at = find_mark(family, text, &mark, &held), n = at != SIZE_MAX ? at : text.n - held;
    if (at == SIZE_MAX && (p->finished || !family->marks[0]))
        return text.n ? output_parser_emit(p, piece, PIECE_CONTENT, text.n) : PARSE_WAIT;
    while (n > 0 && parse_is_blank(text.at[n - 1])) // blanks before a call are dropped
        n--;
    if (n > 0)
        return output_parser_emit(p, piece, PIECE_CONTENT, n);
    if (at == SIZE_MAX)
        return PARSE_WAIT;
    p->in_list = p->in_python = false;
    p->at += at + (strcmp(mark, CALL_FUNCTION_MARK) != 0 ? strlen(mark) : 0);
    return tool_call_parser_begin(p);
}

bool output_parser_next(struct output_parser *p, struct output_piece *piece)
{
    enum parse_step step = PARSE_GO_ON;

    while (step == PARSE_GO_ON) {
        if (p->at == p->text.n && !(p->finished || p->mode == OUTPUT_CALL || p->mode == OUTPUT_MARKUP))
            return false;
        switch (p->mode) {
        case OUTPUT_START:
            step = reasoning_parser_start(p);
            break;
        case OUTPUT_REASONING:
            step = reasoning_parser_step(p, piece);
            break;
        case OUTPUT_CONTENT:
            step = read_content(p, piece);
            break;
        case OUTPUT_CALL:
            step = tool_call_parser_step(p, piece);
            break;
        case OUTPUT_MARKUP:
            step = tool_call_parser_markup(p, piece);
            break;
        case OUTPUT_AFTER_CALL:
            step = tool_call_parser_after(p);
            break;
        case OUTPUT_HEADER:
            step = channel_parser_header(p, piece);
            break;
        case OUTPUT_MESSAGE:
            step = channel_parser_message(p, piece);
            break;
        }
    }
    return step == PARSE_PIECE;
}
