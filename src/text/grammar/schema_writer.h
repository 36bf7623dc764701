// schema_writer.h - shared by the files that write a schema's grammar: the writer, its rules, and
// conjunctions of schemas.
//
// A value is described by a conjunction: the schema itself, and the schemas that $ref, allOf, chosen
// alternatives and a parent's allOf add. Each kind of value is written with the keywords of all parts. Equal
// conjunctions share a rule, so that recursion ends.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "text/grammar/grammar.h"
#include "text/grammar/regular.h"

enum { SCHEMA_MAX_DEPTH = 64, SCHEMA_MAX_RULES = 50000, SCHEMA_MAX_NAME = 64, SCHEMA_MAX_PARTS = 32 };

// ---- conjunctions

// ..._CHOSEN: one alternative of anyOf or oneOf has become a part of its own.
enum { PART_NOT = 1, PART_ANY_CHOSEN = 2, PART_ONE_CHOSEN = 4 };

struct schema_part {
    json_t *schema; // an object
    json_t *scope;  // the nearest schema around it, by $ref, allOf and such, with an unevaluated... keyword;
                    // or NULL
    uintptr_t flags;
};

struct conjunction {
    struct schema_part at[SCHEMA_MAX_PARTS];
    uint32_t n;
};

struct rule_table; // the rules of conjunctions

struct writer {
    json_t *root;
    const char *name;
    struct buf *out;
    struct err *err;
    bool nothing; // with an error: no value fits, which one alternative of several may do
    uint32_t n_rules, depth, work;
    struct rule_table *table;
    json_t *strings; // rules of strings by their keywords
};

// Adds a schema and what it refers to. False with `nothing` set: no value fits.
bool schema_add(struct writer *w, struct conjunction *c, json_t *schema, json_t *scope, uint32_t flags);
json_t *schema_inner_scope(const struct schema_part *part); // for schemas that are added on behalf of the
                                                            // part
bool schema_in_scope(const struct conjunction *c, uint32_t part, uint32_t of);
bool schema_asserts(const json_t *schema, uint32_t flags); // has keywords beyond the chosen and added ones

// ---- rules

// The rule of a conjunction, written if it is new; 0: any value.
bool schema_rule(struct writer *w, const struct conjunction *c, uint32_t *rule);
bool schema_rule_new(struct writer *w, uint32_t *rule);
// Puts the expression in `body` into the rule. Frees body.
bool schema_rule_write(struct writer *w, uint32_t rule, struct buf *body);
void schema_put_rule(const struct writer *w, struct buf *to, uint32_t rule);
void schema_put_json(struct buf *to, const json_t *value);  // the value's compact JSON text as a literal
void schema_json_text(struct buf *to, const json_t *value); // the compact JSON text itself; value NULL:
                                                            // nothing

bool schema_refuse(const struct writer *w, const char *what);
bool schema_refuse_keyword(const struct writer *w, const char *keyword);
bool schema_nothing(struct writer *w, const char *why);
bool schema_is_nothing(struct writer *w); // whether the last failure was schema_nothing; clears it
bool schema_word_is_listed(const char *word, const char *list);
bool schema_name_is_listed(const json_t *names, const char *name);
// Narrows *count by a count such as minItems. up: the larger one wins.
bool schema_count(struct writer *w, const json_t *schema, const char *name, bool up, uint32_t *count);

// The schema that $ref names; NULL after an error.
json_t *schema_target(const struct writer *w, json_t *reference);

// ---- types: one bit each

enum {
    NULLS = 1,
    BOOLEANS = 2,
    INTEGERS = 4,
    REALS = 8,
    STRINGS = 16,
    ARRAYS = 32,
    OBJECTS = 64,
    ANY_TYPE = 127
};
unsigned schema_type_of_value(const json_t *value);
unsigned schema_types(const json_t *schema);      // by its keyword type
unsigned schema_types_told(const json_t *schema); // by its other keywords: 0 where they imply none
bool schema_types_written(struct writer *w, const struct conjunction *c, unsigned *types);

// ---- one kind of value each

bool schema_string(struct writer *w, const struct conjunction *c, struct buf *to);
bool schema_number(struct writer *w, const struct conjunction *c, bool integers, struct buf *to);
bool schema_array(struct writer *w, const struct conjunction *c, struct buf *to);
bool schema_object(struct writer *w, const struct conjunction *c, struct buf *to);
bool schema_values(struct writer *w, const struct conjunction *c, struct buf *to); // enum, const
bool schema_lists(const json_t *schema, const json_t *value);                      // by enum, const and type
bool schema_lists_type(const json_t *schema, unsigned types); // enum or const has such a value
bool schema_choice(struct writer *w, const struct conjunction *c, uint32_t part, const char *keyword,
                   struct buf *to);
bool schema_number_fits(struct writer *w, const json_t *schema, const json_t *value, bool *fits);
