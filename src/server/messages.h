// messages.h - every dialect's conversation as chat templates know it: a list of {role, content, tool_calls, ...}.
#pragma once
#include "server/ask.h"
#include "text/speech.h"

struct chat;

// A new list, or NULL with what is wrong. Where the template knows no tools, they and what was called are told in words.
json_t *messages_for_template(struct ask *ask, const struct chat *chat, enum call_style style, struct err *err);
