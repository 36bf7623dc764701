// reasoning_parser.c - the reasoning of an output: <think>...</think>, or what precedes </think> when the
// prompt opened it.
//
// White space around the reasoning is dropped; a blank before the closing mark is therefore held back until
// the next word.
#include "text/parsers/output_parser_parts.h"

static const char think_open[] = "<think>", think_close[] = "</think>";

enum parse_step reasoning_parser_start(struct output_parser *p)
{
    size_t from = p->at, n_blanks = output_parser_skip_blanks(p);
    bool unknown, thinks = output_parser_at_mark(p, think_open, &unknown);

    if (unknown) {
        p->at = from;
        return PARSE_WAIT;
    }
    if (thinks)
        p->at += strlen(think_open);
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

enum parse_step reasoning_parser_step(struct output_parser *p, struct output_piece *piece)
{
    if (!p->after_reasoning && !p->begun) {
        output_parser_skip_blanks(p);
        p->begun = p->at < p->text.n;
    }
    struct str text = output_parser_rest(p);
    size_t end = str_find(text, str_from(think_close)), n;

    if (end == 0) {
        p->at += strlen(think_close);
        p->mode = OUTPUT_CONTENT;
        p->after_reasoning = true;
        return PARSE_GO_ON;
    }
    if (end != SIZE_MAX) {
        n = without_blanks(text, end);
        if (n == 0) {
            p->at += end;
            return PARSE_GO_ON;
        }
    } else {
        n = p->finished ? text.n : without_blanks(text, text.n - tool_call_mark_held(text, think_close));
    }
    return n > 0 ? output_parser_emit(p, piece, PIECE_REASONING, n) : PARSE_WAIT;
}
