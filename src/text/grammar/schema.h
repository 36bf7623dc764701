// schema.h - a JSON Schema as a grammar, so that an answer is a JSON text which fulfils it.
//
// Every text of the grammar is valid; not every valid text is in it (properties keep their order, numbers have at most 16 digits, long
// strings may be cut short). A keyword whose meaning a grammar cannot hold is an error with its name, never ignored; keywords that no draft
// knows say nothing. Objects hold their properties in the schema's order, and no others unless additionalProperties says so, or there are
// none. oneOf is taken where no text can fit two of its schemas. $ref stays within the schema: nothing is ever fetched.
// Not here: checking a text against a schema (the grammar makes texts that need no check), default values.
#pragma once
#include <jansson.h>
#include "base/str.h"

// A whole grammar whose root is a text for this schema, given as JSON text.
bool schema_to_grammar(struct str json, struct buf *gbnf, struct err *err);

// In parts, for grammars with more around or between the JSON texts: the rules below once, and then for each schema a rule `name` and
// those it needs, called name-1, name-2 ...
bool schema_write_common(struct buf *gbnf); // ws gap char string number integer boolean null value object array
bool schema_write(json_t *schema, const char *name, struct buf *gbnf, struct err *err);

// A literal of GBNF for these bytes, which are valid UTF-8.
bool gbnf_literal(struct buf *gbnf, struct str text);
