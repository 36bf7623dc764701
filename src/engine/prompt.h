// prompt.h - a request's prompt as tokens.
#pragma once
#include "engine/engine.h"
#include "text/template/chat.h"

// From the one source that the options set: messages through the model's template, text, or tokens.
bool prompt_tokens(struct engine *e, const struct ingot_request_options *o, struct token_ids *ids, struct err *err);
