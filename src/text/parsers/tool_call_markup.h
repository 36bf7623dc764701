// tool_call_markup.h - streams a call whose arguments are in markup as JSON.
//
// <function=NAME><parameter=KEY>VALUE</parameter>...</function> (Qwen3-Coder, Qwen3.5), or
// NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... </tool_call> (GLM-4.x). Gemma 4's form is in
// tool_call_braces.h. The tool's schema says
// whether a value is a string: strings stream, any other value is written when it is complete. Where the
// schema says nothing, a value that is JSON and no string stays JSON.
#pragma once
#include <jansson.h>
#include "base/str.h"

struct tool_call_markup { // zero-initialise
    enum { MARKUP_NAME, MARKUP_NEXT, MARKUP_VALUE } state;
    bool functions;                // the first of the two forms; in braces: the string is in quotes of JSON
    bool braces;                   // Gemma 4's
    bool in_string, is_key, comma; // of that: what is read or comes next; a comma is still to be written
    uint32_t depth, objects;       // open brackets; bit i: bracket i is an object's
    bool any, streamed;            // an argument was written; its value is a string that streams
    bool begun;                    // the first byte of the value was read; in braces: a key has no value yet
    bool ended;                    // for the caller: only the call's end is left to emit
    const json_t *tool, *schema;   // of the call; of the value. NULL: unknown
};

enum tool_call_markup_step {
    MARKUP_WAIT,
    MARKUP_NAMED,     // out: the tool's name
    MARKUP_ARGUMENTS, // out: more of the arguments' JSON
    MARKUP_ENDED,     // the call is complete, or the output ended within it
    MARKUP_NO_CALL    // nothing was taken
};

struct tool_call_markup_text {
    struct str text;
    size_t taken;  // bytes of text that this step parsed
    bool finished; // no more text comes
};
enum tool_call_markup_step tool_call_markup_read(struct tool_call_markup *m, const json_t *tools,
                                                 struct tool_call_markup_text *in, struct buf *out);

// The text within a JSON string; and as JSON: as it is, where the schema allows that, else as a string.
void tool_call_write_escaped(struct buf *out, struct str text);
void tool_call_write_value(struct buf *out, const json_t *schema, struct str text);
// Number of bytes at the end of the text that may be the beginning of the mark.
size_t tool_call_mark_held(struct str text, const char *mark);
// The function object {"name", "parameters", ...} of the tool with this name; NULL: the request has none.
const json_t *tool_call_find_tool(const json_t *tools, struct str name);
// Whether the name has only the letters that a tool's name may have, and at most 64.
bool tool_call_name_is_valid(struct str name);
