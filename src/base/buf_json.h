// buf_json.h - the text of a JSON value, behind what a buffer has.
#pragma once
#include <jansson.h>
#include "base/str.h"

// flags: jansson's. False: no memory, no value, or one that has no text.
bool buf_json(struct buf *b, const json_t *value, size_t flags);
