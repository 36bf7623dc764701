// schema_parts.h - what schema.c leaves to others: patterns and numbers as expressions of GBNF.
#pragma once
#include <jansson.h>
#include "base/str.h"

// The characters between the quotes of a JSON string that this regular expression matches. Look-around, back references, word borders
// and Unicode properties are refused. Not anchored: anything may stand before and after.
bool schema_pattern(struct str pattern, struct buf *gbnf, struct err *err);

struct number_bounds {
    bool has_least, has_most, open_least, open_most; // open: the bound itself is not allowed
    int64_t least, most;
};
// Integers, or numbers with a fraction, within the bounds.
bool schema_integer(const struct number_bounds *b, struct buf *gbnf, struct err *err);
bool schema_number(const struct number_bounds *b, struct buf *gbnf, struct err *err);
