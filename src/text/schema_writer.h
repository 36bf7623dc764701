// schema_writer.h - what the files that write a schema's grammar share: the writer, its rules, and the check of keywords.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "text/grammar.h"

enum { SCHEMA_MAX_DEPTH = 64, SCHEMA_MAX_RULES = 20000, SCHEMA_MAX_NAME = 64 };

struct reference {
    json_t *target;
    uint32_t rule;
};

struct writer {
    json_t *root;
    const char *name;
    struct buf *out;
    struct err *err;
    uint32_t n_rules, depth;
    struct reference *references;
    uint32_t n_references, capacity;
};

// Writes the schema's expression. Alternatives are not in parentheses: it is the whole body of a rule.
bool schema_expression(struct writer *w, json_t *schema, struct buf *to);
// The same as a rule of its own.
bool schema_rule(struct writer *w, json_t *schema, uint32_t *rule);
bool schema_rule_new(struct writer *w, uint32_t *rule);
// Puts the expression in `body` into the rule. Frees body.
bool schema_rule_write(struct writer *w, uint32_t rule, struct buf *body);

bool schema_refuse(const struct writer *w, const char *what);
// Whether every keyword is in the list or only describes; else an error with its name.
bool schema_only(const struct writer *w, json_t *schema, const char *list);
bool schema_describes(const char *keyword); // it cannot make a text invalid
bool word_is_listed(const char *word, const char *list);
bool name_is_required(json_t *required, const char *name);
// A count such as minItems.
bool schema_count(const struct writer *w, json_t *schema, const char *name, uint32_t otherwise, uint32_t *count);
void gbnf_times(struct buf *to, uint32_t least, uint32_t most); // {m,n}
void gbnf_json(struct buf *to, const json_t *value);            // the value's compact JSON text as a literal

// What $ref names; NULL after an error.
json_t *schema_target(const struct writer *w, json_t *reference);

// One kind of schema each.
bool schema_string(struct writer *w, json_t *schema, struct buf *to);
bool schema_numeric(struct writer *w, json_t *schema, bool integers, struct buf *to);
bool schema_array(struct writer *w, json_t *schema, struct buf *to);
bool schema_object(struct writer *w, json_t *schema, struct buf *to);
bool schema_choice(struct writer *w, json_t *schema, const char *keyword, struct buf *to); // anyOf, oneOf
bool schema_reference(struct writer *w, json_t *schema, struct buf *to);
bool schema_all_of(struct writer *w, json_t *schema, struct buf *to);
