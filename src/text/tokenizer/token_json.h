// token_json.h - a token's text as JSON, for what lists tokens to a program.
#pragma once
#include <jansson.h>
#include "base/str.h"

// The text of a token's bytes, or a list of them where they are no whole characters. The caller owns it.
json_t *token_json(struct str bytes);
