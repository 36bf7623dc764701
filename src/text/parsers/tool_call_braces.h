// tool_call_braces.h - streams a call of Gemma 4 as JSON: call:NAME{key:VALUE,...}.
//
// Strings stand between <|"|>, with whatever is in them; keys and other values are bare, objects and lists
// nest. A bare value that is no JSON becomes a string.
#pragma once
#include "text/parsers/tool_call_markup.h"

// As tool_call_markup_read, which calls it for that form.
enum tool_call_markup_step tool_call_braces_read(struct tool_call_markup *m, struct tool_call_markup_text *in,
                                                 struct buf *out);
