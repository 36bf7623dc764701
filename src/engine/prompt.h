// prompt.h - a request's prompt as tokens.
#pragma once
#include "engine/engine.h"
#include "text/chat.h"

// From the one source that the options set: messages through the model's template, text, or tokens.
bool prompt_tokens(struct engine *e, const struct ingot_request_options *o, struct token_ids *ids, struct err *err);

// From messages as JSON ({role, content, ...}): control tokens are recognised only in what the template wrote.
bool prompt_from_messages(struct engine *e, json_t *messages, const struct chat_options *options, struct token_ids *ids,
                          struct err *err);
