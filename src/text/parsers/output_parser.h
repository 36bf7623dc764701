// output_parser.h - splits a model's output, while it streams, into reasoning, content and tool calls.
//
// Reasoning stands between its family's marks (text/reasoning_marks.h), or in a message of its own
// (channel_parser.c). Families write calls
// in different forms (tool_call_style.h); the parser is given the style and accepts every form of its family.
// Text that may be the beginning of a mark is held back until that is known. What begins like a call and is
// none is content: no byte is lost, except marks and white space around calls. Arguments stream piece by
// piece; marked up ones become JSON on the way (tool_call_markup.h). Only a Python call is held back until it
// is complete (tool_call_python.h).
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "text/parsers/tool_call_markup.h"
#include "text/parsers/tool_call_style.h"
#include "text/reasoning_marks.h"

enum piece_kind { PIECE_REASONING, PIECE_CONTENT, PIECE_CALL, PIECE_ARGUMENTS, PIECE_CALL_END };

struct output_piece {
    enum piece_kind kind;
    uint32_t call;   // the call's number, from 0
    struct str text; // PIECE_CALL: the tool's name. Valid until the next call of a function of the parser
};

struct tool_call_reader { // state within one JSON object {"name", "arguments"}
    enum { CALL_BEFORE, CALL_KEY, CALL_COLON, CALL_VALUE, CALL_COMMA, CALL_ENDED, CALL_BROKEN } state;
    enum { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS } value;
    uint32_t depth; // of brackets within the value
    bool in_string, escaped;
    size_t value_at, value_end; // within raw
};

struct output_parser { // zero-initialise, then output_parser_init
    enum tool_call_style style;
    const struct reasoning_marks *marks;
    const json_t *tools;          // of the request
    uint32_t most_calls, n_calls; // calls beyond most_calls are dropped
    enum {
        OUTPUT_START,
        OUTPUT_REASONING,
        OUTPUT_CONTENT,
        OUTPUT_CALL,
        OUTPUT_MARKUP,
        OUTPUT_AFTER_CALL,
        OUTPUT_HEADER, // of CALLS_CHANNELS, as the next
        OUTPUT_MESSAGE
    } mode;
    enum piece_kind message;    // what the message's text is
    struct buf text, raw, name; // pushed text; the current call's JSON; its tool
    size_t at;                  // bytes of text that are parsed
    // within raw: start of the arguments (0: unknown), and end of the emitted text
    size_t arguments_at, n_sent;
    struct tool_call_reader call;
    struct tool_call_markup markup;
    bool begun;              // the reasoning has a first word
    bool after_reasoning;    // blanks before the next content are dropped
    bool has_content;        // content was emitted
    bool finished;           // no more text comes
    bool named;              // the name stood before the object, which is now the arguments alone
    bool decoded;            // arguments that were a JSON string are decoded
    bool sent_name;          // PIECE_CALL was emitted
    bool in_list, in_python; // between the brackets of a list; its calls are Python
};

struct output_parser_options {
    enum tool_call_style style;
    bool reasoning_open; // the prompt ends within the reasoning
    uint32_t most_calls; // 0: any number
    const json_t *tools; // as in a chat completion request, owned by the caller; NULL: unknown, with
                         // CALLS_CHANNELS none
    const struct reasoning_marks *marks; // NULL: <think>
};
void output_parser_init(struct output_parser *p, const struct output_parser_options *options);
void output_parser_release(struct output_parser *p);
bool output_parser_push(struct output_parser *p, struct str text); // false: out of memory
void output_parser_finish(struct output_parser *p); // end of the output: releases what was held back
// The next piece; false: none until more text is pushed.
bool output_parser_next(struct output_parser *p, struct output_piece *piece);
