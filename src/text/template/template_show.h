// template_show.h - values as text: as Python's str() and repr() print them, as JSON, and through % and {}
// formats.
#pragma once
#include "text/template/template_value.h"

// str(v) appended; undefined prints as nothing.
bool show_value(struct builder *b, struct value v);
bool show_repr(struct builder *b, struct value v);
// str(v) as a string value; a string is returned as it is.
bool show_string(struct render *r, struct value v, struct value *out);
// Python's repr of a float, at most 32 bytes with the NUL.
void show_float(double f, char *out);

struct json_style {
    struct str indent; // of one level; at = NULL: on one line
    struct str item_separator, key_separator;
    bool ensure_ascii, sort_keys;
};
bool show_json(struct builder *b, struct value v, const struct json_style *style);

// format % values: values is a tuple, a dict, or one value.
bool format_percent(struct render *r, struct value format, struct value values, struct value *out);
// format.format(...): {} {0} {name} with !r, !s and a format specification.
bool format_braces(struct render *r, struct value format, const struct call_arguments *arguments,
                   struct value *out);
