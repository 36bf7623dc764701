// speech_markup.h - calls whose arguments are marked up instead of written as JSON, made into JSON while they come.
//
// <function=NAME><parameter=KEY>VALUE</parameter>...</function> (Qwen3-Coder, Qwen3.5), or
// NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... </tool_call> (GLM-4.x). Whether a value is a string is for the tool's schema
// to say: strings are handed on as they come, anything else when it is complete. Where the schema says nothing, a value that is JSON
// and no string stays JSON.
#pragma once
#include <jansson.h>
#include "base/str.h"

struct markup { // zero-initialise
    enum { MARKUP_NAME, MARKUP_NEXT, MARKUP_VALUE } state;
    bool functions;              // the first of the two forms
    bool any, streamed;          // an argument was written; its value is a string that is handed on as it comes
    bool begun;                  // and its first byte was seen
    bool ended;                  // for the caller: only the end is left to tell
    const json_t *tool, *schema; // of the call; of the value: NULL when not known
};

enum markup_step {
    MARKUP_WAIT,
    MARKUP_NAMED,     // out: the tool's name
    MARKUP_ARGUMENTS, // out: more of the arguments' JSON
    MARKUP_ENDED,     // the call is complete, or what there is of it
    MARKUP_NO_CALL    // nothing was taken
};

struct markup_text {
    struct str text;
    size_t taken;  // of it, by this step
    bool finished; // nothing more comes
};
size_t mark_held(struct str text, const char *mark); // how much of the text's end may be the beginning of the mark
enum markup_step markup_read(struct markup *m, const json_t *tools, struct markup_text *in, struct buf *out);

// The tool's function object {"name", "parameters", ...} among a request's tools; NULL: there is none of that name.
const json_t *tool_named(const json_t *tools, struct str name);
bool name_is_tool(struct str name); // in its letters: nothing that only text would have

// One call NAME(KEY=VALUE, ...) of Python, where the tools know the name. Values become JSON.
enum python_step { PYTHON_WAIT, PYTHON_CALL, PYTHON_NO_CALL };
struct python_call {
    struct buf name, arguments;
    size_t taken;
};
enum python_step python_read(struct str text, const json_t *tools, struct python_call *call);
