// out_json.h - a JSON value on stdout.
#pragma once
#include <jansson.h>

// Prints the value without a newline and frees it. NULL, which jansson returns without memory, prints
// nothing.
void out_json(json_t *value, size_t flags); // JSON_COMPACT, JSON_INDENT(2), ...
