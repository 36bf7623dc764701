// token_json.h - a token's text as JSON, for listings of tokens.
#pragma once
#include <jansson.h>
#include "base/str.h"

// The token's text, or the list of its bytes when they are not whole characters. The caller owns it.
json_t *token_json(struct str bytes);
