// speech.h - what a model says, taken apart while it comes: reasoning, content, and calls of tools.
//
// Families write calls in their own ways (enum call_style). A reader is told the family, and takes every form that its members write.
// Reasoning stands in <think>...</think>. Text that might be the beginning of a mark is held back until it is known. What begins like a
// call and is none comes out as content: no byte is lost, save the marks and white space around calls. Arguments are handed on piece by
// piece, as they are written; marked up ones become JSON on the way (speech_markup.h). Only a Python call is told when it is complete.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "text/parsers/speech_markup.h"

enum call_style {
    CALLS_NONE,      // no tools were offered: everything is content
    CALLS_TAGS,      // <tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen2.5, Qwen3
    CALLS_FUNCTIONS, // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen3-Coder, Qwen3.5
    CALLS_KEYS,      // <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>: GLM-4.x
    CALLS_LIST,      // [TOOL_CALLS][{"name", "arguments"}, ...]: Mistral
    CALLS_ARGS,      // [TOOL_CALLS]NAME[ARGS]{...}: Mistral, later
    CALLS_ARGS_ID,   // [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}: in between
    CALLS_FENCED, // <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, {...} in a fence, <｜tool▁call▁end｜>: DeepSeek R1, V3
    CALLS_SEPARATED, // <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>: DeepSeek V3.1
    CALLS_NAKED,     // {"name", "parameters"} at the beginning, or [NAME(KEY=VALUE)] in Python: Llama 3.x
    N_CALL_STYLES
};

// DeepSeek's marks.
#define CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define CALLS_END   "<｜tool▁calls▁end｜>"
#define CALL_BEGIN  "<｜tool▁call▁begin｜>"
#define CALL_END    "<｜tool▁call▁end｜>"
#define CALL_SEP    "<｜tool▁sep｜>"

enum piece_kind { PIECE_REASONING, PIECE_CONTENT, PIECE_CALL, PIECE_ARGUMENTS, PIECE_CALL_END };

struct speech_piece {
    enum piece_kind kind;
    uint32_t call;   // the call's number, from 0
    struct str text; // PIECE_CALL: the tool's name. Valid until the next call of a speech function
};

struct call_reader { // of one JSON object
    enum { CALL_BEFORE, CALL_KEY, CALL_COLON, CALL_VALUE, CALL_COMMA, CALL_ENDED, CALL_BROKEN } state;
    enum { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS } value;
    uint32_t depth; // of brackets within the value
    bool in_string, escaped;
    size_t value_at, value_end; // within raw
};

struct speech { // zero-initialise, then speech_begin
    enum call_style style;
    const json_t *tools;          // of the request
    uint32_t most_calls, n_calls; // further ones are left out
    enum { SPEECH_START, SPEECH_REASONING, SPEECH_CONTENT, SPEECH_CALL, SPEECH_MARKUP, SPEECH_AFTER_CALL } mode;
    struct buf text, raw, name; // not yet told; of the call so far; the call's tool
    size_t at;                  // told of text
    size_t arguments_at, told;  // within raw: where arguments begin (0: not yet), and how far they were told
    struct call_reader call;
    struct markup markup;
    bool begun, named, decoded, told_name, said_anything, after_reasoning, finished;
    bool in_list, in_python; // between the brackets of a list; its calls are Python
};

struct speech_options {
    enum call_style style;
    bool reasoning_open; // the prompt ends within <think>
    uint32_t most_calls; // 0: any number
    const json_t *tools; // as chat completions write them, kept by the caller; NULL: not known
};
void speech_begin(struct speech *s, const struct speech_options *options);
void speech_release(struct speech *s);
bool speech_push(struct speech *s, struct str text); // false without memory
void speech_finish(struct speech *s);                // nothing more comes: what was held back is certain now
// The next piece; false: none for now.
bool speech_next(struct speech *s, struct speech_piece *piece);

// The style of calls in which this chat template is written; CALLS_TAGS when it shows none.
enum call_style speech_style_of(struct str chat_template);
