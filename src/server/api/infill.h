// infill.h - prompts around a gap: the model is told what stands before and behind it, and answers with what
// belongs between.
#pragma once
#include "server/api/api_request.h"
#include "text/tokenizer/tokenizer.h"

// Appends the prompt of an ask with a prefix or a suffix. An error when the model was not trained to fill
// gaps.
bool infill_prompt(const struct ingot_engine *engine, const struct api_request *request,
                   struct token_ids *ids, struct err *err);
