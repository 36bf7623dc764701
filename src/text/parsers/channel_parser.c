// channel_parser.c - outputs made of messages, each on a channel, as gpt-oss writes them (OpenAI's harmony
// format, 2025):
//
//   <|channel|>analysis<|message|>REASONING<|end|>
//   <|start|>assistant<|channel|>final<|message|>ANSWER<|return|>
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
//
// The prompt ends behind "<|start|>assistant". The recipient may also stand before the channel. What is said
// on any channel but analysis is content, and so is a message to somebody who is no tool of the request. Text
// without a header is content too.
#include <string.h>
#include "text/parsers/output_parser_parts.h"

enum { MAX_HEADER = 512 };

static const char channel_mark[] = "<|channel|>", message_mark[] = "<|message|>", start_mark[] = "<|start|>";
// A message ends with one of the first three; a new one begins with one of the others.
static const char *const borders[] = { "<|end|>", "<|return|>", "<|call|>", start_mark, channel_mark };
enum { N_ENDS = 3, N_BORDERS = sizeof borders / sizeof *borders };

// The word behind the mark, up to a blank or another mark; empty: there is none.
static struct str word_behind(struct str header, const char *mark)
{
    size_t at = str_find(header, str_from(mark)), end;

    if (at == SIZE_MAX)
        return (struct str){ 0 };
    at += strlen(mark);
    for (end = at; end < header.n && !parse_is_blank(header.at[end]) && header.at[end] != '<'; end++)
        ;
    return str_from_to(header, at, end);
}

// The tool that the message is for; empty: none.
static struct str tool_of(const struct output_parser *p, struct str header)
{
    struct str to = word_behind(header, "to="), name = to;

    if (str_starts(to, STR("functions.")))
        name = str_from_to(to, strlen("functions."), to.n);
    bool known = name.n != to.n || tool_call_find_tool(p->tools, name);
    return p->tools && known && tool_call_name_is_valid(name) ? name : (struct str){ 0 };
}

static enum parse_step begin_call(struct output_parser *p, struct output_piece *piece, struct str name)
{
    p->message = p->n_calls < p->most_calls ? PIECE_ARGUMENTS : PIECE_CALL_END; // the latter: dropped
    p->raw.n = p->name.n = 0;
    if (p->message == PIECE_CALL_END)
        return PARSE_GO_ON;
    buf_str(&p->name, name);
    *piece = (struct output_piece){ PIECE_CALL, p->n_calls, buf_as_str(&p->name) };
    return PARSE_PIECE;
}

static enum parse_step begin_message(struct output_parser *p, struct output_piece *piece, struct str header)
{
    struct str name = tool_of(p, header);

    p->mode = OUTPUT_MESSAGE;
    if (name.n)
        return begin_call(p, piece, name);
    p->message = str_is(word_behind(header, channel_mark), "analysis") ? PIECE_REASONING : PIECE_CONTENT;
    if (p->message == PIECE_REASONING || !p->has_content)
        return PARSE_GO_ON;
    *piece = (struct output_piece){ PIECE_CONTENT, p->n_calls, STR("\n\n") }; // between two messages
    return PARSE_PIECE;
}

// Does the rest begin with a header? *unknown: more text decides.
static bool at_header(const struct output_parser *p, bool *unknown)
{
    static const char *const beginnings[] = { channel_mark, start_mark, " to=" };
    bool there = false;

    *unknown = false;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        bool more;
        there |= output_parser_at_mark(p, beginnings[i], &more);
        *unknown |= more;
    }
    return there;
}

enum parse_step channel_parser_header(struct output_parser *p, struct output_piece *piece)
{
    struct str text = output_parser_rest(p);
    bool unknown, there = at_header(p, &unknown);
    size_t end = str_find(text, str_from(message_mark));

    if (unknown || (there && end == SIZE_MAX && text.n < MAX_HEADER && !p->finished))
        return PARSE_WAIT;
    if (!there || end == SIZE_MAX || end > MAX_HEADER - strlen(message_mark)) {
        p->mode = OUTPUT_MESSAGE;
        p->message = PIECE_CONTENT;
        // "<" of no header
        return there && text.n ? output_parser_emit(p, piece, PIECE_CONTENT, 1) : PARSE_GO_ON;
    }
    struct str header = str_from_to(text, 0, end);
    p->at += end + strlen(message_mark);
    return begin_message(p, piece, header);
}

static enum parse_step end_message(struct output_parser *p, struct output_piece *piece)
{
    bool call = p->message == PIECE_ARGUMENTS;

    p->mode = OUTPUT_HEADER;
    p->message = PIECE_CONTENT;
    if (!call)
        return PARSE_GO_ON;
    *piece = (struct output_piece){ PIECE_CALL_END, p->n_calls++, { "", 0 } };
    return PARSE_PIECE;
}

// The last call's end is no text where <|call|> ended the output: its arguments are complete or were cut.
static bool arguments_complete(const struct output_parser *p)
{
    json_t *arguments = json_loadb(p->raw.at ? p->raw.at : "", p->raw.n, 0, NULL);
    bool complete = json_is_object(arguments);

    json_decref(arguments);
    return complete;
}

enum parse_step channel_parser_message(struct output_parser *p, struct output_piece *piece)
{
    struct str text = output_parser_rest(p);
    size_t n = text.n, held = 0;

    for (size_t i = 0; i < N_BORDERS; i++) {
        size_t at = str_find(text, str_from(borders[i])), part = tool_call_mark_held(text, borders[i]);
        held = part > held ? part : held;
        n = at < n ? at : n;
        if (at != 0)
            continue;
        p->at += i < N_ENDS ? strlen(borders[i]) : 0;
        return end_message(p, piece);
    }
    n = n == text.n && !p->finished ? n - held : n;
    if (n == 0)
        return p->finished && p->message == PIECE_ARGUMENTS && arguments_complete(p) ? end_message(p, piece)
                                                                                     : PARSE_WAIT;
    if (p->message == PIECE_CALL_END) {
        p->at += n;
        return PARSE_GO_ON;
    }
    if (p->message == PIECE_ARGUMENTS)
        buf_append(&p->raw, text.at, n);
    return output_parser_emit(p, piece, p->message, n);
}
