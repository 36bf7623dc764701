// tool_call_python.h - a call in Python: NAME(KEY=VALUE, ...).
#pragma once
#include <jansson.h>
#include "base/str.h"

enum tool_call_python_step { PYTHON_WAIT, PYTHON_CALL, PYTHON_NO_CALL };
struct tool_call_python {       // the caller frees name and arguments
    struct buf name, arguments; // arguments: one JSON object
    size_t taken;               // bytes of the call
};
// Reads one call at the beginning of the text. It must name one of the tools.
enum tool_call_python_step tool_call_python_read(struct str text, const json_t *tools,
                                                 struct tool_call_python *call);
