// json_values.h - the values of a JSON file, flattened with dots, as values of a model_file. Private to
// format/.
//
// {"a": {"b": 1}, "c": [1, 2], "d": [{"e": true}]} gives a.b = 1, c = array of two, d.0.e = true. null gives
// nothing. An array whose elements are all numbers, all strings or all booleans stays an array; any other is
// flattened by index.
#pragma once
#include "format/directory.h"

enum { JSON_MAX_PATH = 200 }; // bytes of a flattened key, so that nesting cannot multiply the memory used

// prefix: "" or ending in a dot. The text must stay valid as long as file. name is used in messages.
bool json_values_add(struct model_file *file, struct str text, const char *prefix, const char *name,
                     struct err *err);
