// schema.h - compiles a JSON Schema to a grammar: every answer is JSON text that the schema allows.
//
// Every text of the grammar is valid, but the grammar does not allow every valid text: properties keep their
// order, numbers have at most 16 digits, long strings may be excluded. A keyword that a grammar cannot
// express is an error that names it; keywords of no draft are ignored. Objects have their properties in the
// schema's order, and others only if additionalProperties allows them or the schema lists none. oneOf is
// supported where no text fits two of its schemas. $ref stays within the schema: nothing is fetched.
// Not here: validating a text against a schema (the grammar makes that unnecessary), default values.
#pragma once
#include <jansson.h>
#include "base/str.h"

// A whole grammar whose root is a text for this schema, given as JSON text.
bool schema_to_grammar(struct str json, struct buf *gbnf, struct err *err);

// In parts, for grammars with more around or between the JSON texts: the rules below once, and then for each
// schema a rule `name` and those it needs, called name-1, name-2 ...
// ws gap char string number integer boolean null value object array
bool schema_write_common(struct buf *gbnf);
bool schema_write(json_t *schema, const char *name, struct buf *gbnf, struct err *err);
