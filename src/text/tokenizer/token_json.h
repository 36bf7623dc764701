// token_json.h - a token's text as JSON, for what lists tokens to a program.
#pragma once
#include <jansson.h>
#include "text/tokenizer/tokenizer.h"

// The token's text, or a list of its bytes where they are no whole characters. The caller owns it.
json_t *token_json(const struct tokenizer *t, uint32_t id);
