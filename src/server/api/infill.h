// infill.h - fill-in-the-middle prompts: the model gets the text before and after a gap, and generates what
// belongs between.
#pragma once
#include "server/api/api_request.h"
#include "text/tokenizer/tokenizer.h"

// Appends the prompt of a request with a prefix or a suffix. An error if the vocabulary has no tokens for it.
bool infill_prompt(const struct ingot_engine *engine, const struct api_request *request,
                   struct token_ids *ids, struct err *err);
