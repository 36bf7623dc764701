// reasoning_parser.c - the reasoning of an output: what stands between its marks, or before the closing one
// when the prompt opened it. The mark of a call may end it too.
//
// White space around the reasoning is dropped; a blank before the closing mark is therefore held back until
// the next word.
#include "text/parsers/output_parser_parts.h"

enum parse_step reasoning_parser_start(struct output_parser *p)
{
    size_t from = p->at, n_blanks = output_parser_skip_blanks(p);
    bool unknown, thinks = output_parser_at_mark(p, p->marks->open, &unknown);

    if (unknown) {
        p->at = from;
        return PARSE_WAIT;
    }
    if (thinks)
        p->at += strlen(p->marks->open);
    else if (p->style == CALLS_NONE || p->at == p->text.n)
        p->at -= n_blanks; // the blanks are content
    p->mode = thinks ? OUTPUT_REASONING : OUTPUT_CONTENT;
    return PARSE_GO_ON;
}

static size_t without_blanks(struct str text, size_t n)
{
    while (n > 0 && parse_is_blank(text.at[n - 1]))
        n--;
    return n;
}

// The mark that may end the thought beside its own, where the style of calls has it; or NULL.
static const char *other_end(const struct output_parser *p)
{
    const struct tool_call_family *family = tool_call_family_of(p->style);
    const char *mark = p->marks->other_end;

    for (size_t i = 0; mark && i < MAX_CALL_MARKS && family->marks[i]; i++)
        if (strcmp(family->marks[i], mark) == 0)
            return mark;
    return NULL;
}

static enum parse_step end_thought(struct output_parser *p, size_t n)
{
    p->at += n;
    p->mode = OUTPUT_CONTENT;
    p->after_reasoning = true;
    return PARSE_GO_ON;
}

enum parse_step reasoning_parser_step(struct output_parser *p, struct output_piece *piece)
{
    if (!p->after_reasoning && !p->begun) {
        output_parser_skip_blanks(p);
        p->begun = p->at < p->text.n;
    }
    struct str text = output_parser_rest(p);
    const char *other = other_end(p);
    size_t close = str_find(text, str_from(p->marks->close)),
           called = other ? str_find(text, str_from(other)) : SIZE_MAX, end = close < called ? close : called,
           n;

    if (end == 0)
        return end_thought(p, close == 0 ? strlen(p->marks->close) : 0);
    if (end != SIZE_MAX) {
        n = without_blanks(text, end);
        if (n == 0) {
            p->at += end;
            return PARSE_GO_ON;
        }
    } else {
        size_t held = tool_call_mark_held(text, p->marks->close),
               held_too = other ? tool_call_mark_held(text, other) : 0;
        n = p->finished ? text.n : without_blanks(text, text.n - (held > held_too ? held : held_too));
    }
    return n > 0 ? output_parser_emit(p, piece, PIECE_REASONING, n) : PARSE_WAIT;
}
