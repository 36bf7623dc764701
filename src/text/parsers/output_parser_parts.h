// output_parser_parts.h - shared by the files of the output parser. Each mode of the parser has a function:
// it reads the text that is not parsed yet and emits a piece, changes the mode, or waits for more.
#pragma once
#include "text/parsers/output_parser.h"

enum parse_step { PARSE_PIECE, PARSE_GO_ON, PARSE_WAIT };

static inline bool parse_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The text that is not parsed yet.
struct str output_parser_rest(const struct output_parser *p);
// Returns the number of blanks skipped.
size_t output_parser_skip_blanks(struct output_parser *p);
// Whether the rest begins with the mark. *unknown: more text may complete it.
bool output_parser_at_mark(const struct output_parser *p, const char *mark, bool *unknown);
// Emits n bytes of the rest.
enum parse_step output_parser_emit(struct output_parser *p, struct output_piece *piece, enum piece_kind kind,
                                   size_t n);

enum parse_step reasoning_parser_start(struct output_parser *p);
enum parse_step reasoning_parser_step(struct output_parser *p, struct output_piece *piece);

enum parse_step channel_parser_header(struct output_parser *p, struct output_piece *piece);
enum parse_step channel_parser_message(struct output_parser *p, struct output_piece *piece);

enum parse_step tool_call_parser_begin(struct output_parser *p);
// A call without a mark, which can only stand at the beginning of the content.
enum parse_step tool_call_parser_begin_naked(struct output_parser *p);
enum parse_step tool_call_parser_step(struct output_parser *p, struct output_piece *piece);
enum parse_step tool_call_parser_markup(struct output_parser *p, struct output_piece *piece);
enum parse_step tool_call_parser_after(struct output_parser *p);
enum parse_step tool_call_parser_end(struct output_parser *p, struct output_piece *piece);
// Text that began like a call but is none: emits it as content.
enum parse_step tool_call_parser_reject(struct output_parser *p, struct output_piece *piece);

// A call's JSON object, emitted as it streams.
enum parse_step tool_call_json_step(struct output_parser *p, struct output_piece *piece);
// One more byte of the object; at: its place in raw.
void tool_call_json_byte(struct output_parser *p, char byte, size_t at);
