// speech.h - what a model says, taken apart while it comes: reasoning, content, and calls of tools.
//
// Families write calls in their own ways: <tool_call>{...}</tool_call> (Hermes, Qwen), [TOOL_CALLS][{...}] or [TOOL_CALLS]name[ARGS]{...}
// (Mistral), marked up arguments within <tool_call> (Qwen3.5, GLM-4.x: see speech_markup.h), a bare {"name": ..., "parameters": ...} (Llama 3). Reasoning stands in <think>...</think>. Text that might be the beginning of
// such a mark is held back until it is known. What begins like a call and is none comes out as content: no byte is lost, save the marks
// and white space around calls. Arguments are handed on as the model writes them, piece by piece.
#pragma once
#include "base/str.h"

enum call_style {
    CALLS_NONE,  // no tools were offered: everything is content
    CALLS_TAGS,  // <tool_call>{"name", "arguments"}</tool_call>
    CALLS_LIST,  // [TOOL_CALLS][{"name", "arguments"}, ...]
    CALLS_NAKED, // {"name", "parameters"}, at the beginning
};

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
    uint32_t most_calls, n_calls; // further ones are left out
    enum { SPEECH_START, SPEECH_REASONING, SPEECH_CONTENT, SPEECH_CALL, SPEECH_AFTER_CALL } mode;
    struct buf text, raw, name; // not yet told; of the call so far; the call's tool
    size_t at;                  // told of text
    size_t arguments_at, told;  // within raw: where arguments begin (0: not yet), and how far they were told
    struct call_reader call;
    bool begun, named, decoded, told_name, said_anything, after_reasoning, finished;
};

struct speech_options {
    enum call_style style;
    bool reasoning_open; // the prompt ends within <think>
    bool call_open;      // the prompt ends behind the mark that begins calls
    uint32_t most_calls; // 0: any number
};
void speech_begin(struct speech *s, const struct speech_options *options);
void speech_release(struct speech *s);
bool speech_push(struct speech *s, struct str text); // false without memory
void speech_finish(struct speech *s);                // nothing more comes: what was held back is certain now
// The next piece; false: none for now.
bool speech_next(struct speech *s, struct speech_piece *piece);

// The style of calls in which this chat template is written; CALLS_TAGS when it shows none.
enum call_style speech_style_of(struct str chat_template);
