// schema.c - see schema.h. Every conjunction of schemas (schema_writer.h) becomes one rule.
//
// Strings, numbers, arrays, objects, listed values and alternatives have their own files.
#include "text/grammar/schema.h"
#include <math.h>
#include "base/buf_json.h"
#include "base/hash_index.h"
#include "base/mem.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/schema_writer.h"
#include "text/json_memory.h"

bool schema_refuse(const struct writer *w, const char *what)
{
    return err_set(w->err, ERR_UNSUPPORTED, "schema: %s", what);
}

bool schema_refuse_keyword(const struct writer *w, const char *keyword)
{
    return err_set(w->err, ERR_UNSUPPORTED, "schema: the keyword '%.60s' is not supported here", keyword);
}

bool schema_nothing(struct writer *w, const char *why)
{
    w->nothing = true;
    return err_set(w->err, ERR_INPUT, "schema: %s", why);
}

bool schema_is_nothing(struct writer *w)
{
    bool nothing = w->nothing;

    if (nothing)
        *w->err = (struct err){ 0 };
    w->nothing = false;
    return nothing;
}

// Numbers have at most the precision of a double.
static const char common[] =
    "ws ::= (\" \" | \"\\n\" [ ]{0,32})?\n"
    "gap ::= \" \"?\n"
    "char ::= [^\"\\\\\\x00-\\x1f\\x7f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" escaped)\n"
    "escaped ::= [0-9a-ce-fA-CE-F] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] "
    "hex{2}\n"
    "hex ::= [0-9a-fA-F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? ([0-9]{1,2} | [12] [0-8] [0-9]))?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "object ::= \"{\" ws (string \":\" gap value (\",\" ws string \":\" gap value)* ws)? \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n";

bool schema_write_common(struct buf *gbnf)
{
    return buf_text(gbnf, common);
}

void schema_json_text(struct buf *to, const json_t *value)
{
    if (value)
        buf_json(to, value, JSON_COMPACT | JSON_ENCODE_ANY);
}

void schema_put_json(struct buf *to, const json_t *value)
{
    struct buf text = { 0 };

    schema_json_text(&text, value);
    gbnf_literal(to, buf_as_str(&text));
    to->failed |= text.failed;
    buf_free(&text);
}

void schema_put_rule(const struct writer *w, struct buf *to, uint32_t rule)
{
    if (rule)
        buf_printf(to, "%s-%u", w->name, rule);
    else
        buf_text(to, "value");
}

// ---- keywords

bool schema_word_is_listed(const char *word, const char *list)
{
    size_t n = strlen(word);

    for (const char *at = strstr(list, word); at && n; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

bool schema_name_is_listed(const json_t *names, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)names, i, item)
    {
        if (json_is_string(item) && !strcmp(json_string_value(item), name))
            return true;
    }
    return false;
}

bool schema_count(struct writer *w, const json_t *schema, const char *name, bool up, uint32_t *count)
{
    json_t *value = json_object_get(schema, name);
    double n = json_number_value(value);

    if (!value)
        return true;
    if (!json_is_number(value) || n < 0 || n != floor(n) || (up && n > GRAMMAR_MAX_REPEAT))
        return err_set(w->err, ERR_INPUT, "schema: %s: want a whole number from 0 to %d", name,
                       GRAMMAR_MAX_REPEAT);
    n = n < GRAMMAR_MAX_REPEAT ? n : GRAMMAR_MAX_REPEAT; // the writer never writes more
    if (up ? n > *count : n < *count)
        *count = (uint32_t)n;
    return true;
}

// ---- types

static const struct {
    const char *type, *keywords;
    unsigned bits;
} types[] = {
    { "string", "minLength maxLength pattern format", STRINGS },
    { "integer", "", INTEGERS },
    { "number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf", INTEGERS | REALS },
    { "array", "items prefixItems additionalItems minItems maxItems uniqueItems contains unevaluatedItems",
      ARRAYS },
    { "object",
      "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
      "unevaluatedProperties dependentRequired dependentSchemas dependencies",
      OBJECTS },
    { "boolean", "", BOOLEANS },
    { "null", "", NULLS },
};

static unsigned bits_of_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, name))
            return types[i].bits;
    return 0;
}

unsigned schema_type_of_value(const json_t *value)
{
    static const unsigned bits[] = { OBJECTS, ARRAYS, STRINGS, INTEGERS, REALS, BOOLEANS, BOOLEANS, NULLS };
    double x = json_number_value(value);

    return json_is_real(value) && fabs(x) < 1e15 && x == floor(x) ? INTEGERS : bits[json_typeof(value)];
}

unsigned schema_types(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = 0;

    for (size_t i = 0; i < json_array_size(type); i++)
        bits |= bits_of_name(json_string_value(json_array_get(type, i)));
    if (!type)
        return ANY_TYPE;
    bits = json_is_string(type) ? bits_of_name(json_string_value(type)) : bits;
    return json_is_true(json_object_get(schema, "nullable")) ? bits | NULLS : bits;
}

unsigned schema_types_told(const json_t *schema)
{
    const char *name;
    json_t *value;
    unsigned bits = 0;

    json_object_foreach((json_t *)(uintptr_t)schema, name, value)
    {
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            bits |= schema_word_is_listed(name, types[i].keywords) ? types[i].bits : 0;
    }
    return bits;
}

static bool check_type(const struct writer *w, const json_t *type)
{
    const json_t *item = type;

    for (size_t i = 0; type && i < (json_is_array(type) ? json_array_size(type) : 1); i++) {
        item = json_is_array(type) ? json_array_get(type, i) : type;
        if (!json_is_string(item) || !bits_of_name(json_string_value(item)))
            return err_set(
                w->err, ERR_INPUT,
                "schema: type '%.40s' is none of object, array, string, number, integer, boolean, null",
                json_is_string(item) ? json_string_value(item) : "?");
    }
    return !json_is_array(type) || json_array_size(type) > 0 || schema_refuse(w, "type: the list is empty");
}

// The types that `not` excludes.
static unsigned types_excluded(const json_t *schema)
{
    unsigned told = schema_types_told(schema);

    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return 0;
    if (told == 0)
        return schema_types(schema);
    return schema_types(schema) & ~told; // keywords of a type say nothing about the other types: these fit,
                                         // and are excluded
}

bool schema_types_written(struct writer *w, const struct conjunction *c, unsigned *out)
{
    unsigned allowed = ANY_TYPE, told = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct schema_part *part = &c->at[i];
        if (!check_type(w, json_object_get(part->schema, "type")))
            return false;
        allowed &= part->flags & PART_NOT ? ~types_excluded(part->schema) : schema_types(part->schema);
        told |= part->flags & PART_NOT ? 0 : schema_types_told(part->schema);
    }
    *out = allowed == ANY_TYPE && told ? told : allowed;
    if (*out == 0)
        return schema_nothing(w, "no type fits all that is asked");
    return (*out & (INTEGERS | REALS)) != REALS ||
           schema_refuse(w, "numbers that are no integers cannot be asked for");
}

// The values true, false and null that `not` may exclude.
static bool write_constants(struct writer *w, const struct conjunction *c, unsigned type, struct buf *to)
{
    json_t *values[] = { type == NULLS ? json_null() : json_true(), type == NULLS ? NULL : json_false() };
    bool any = false;

    for (int i = 0; i < 2 && values[i]; i++) {
        bool excluded = false;
        for (uint32_t k = 0; k < c->n; k++)
            excluded |= c->at[k].flags & PART_NOT && schema_lists(c->at[k].schema, values[i]);
        if (excluded)
            continue;
        buf_text(to, any ? " | " : "");
        schema_put_json(to, values[i]);
        any = true;
    }
    return any || schema_nothing(w, "not: it excludes all values of the type");
}

static bool write_type(struct writer *w, const struct conjunction *c, unsigned type, struct buf *to)
{
    switch (type) {
    case STRINGS:
        return schema_string(w, c, to);
    case INTEGERS:
    case INTEGERS | REALS:
        return schema_number(w, c, type == INTEGERS, to);
    case ARRAYS:
        return schema_array(w, c, to);
    case OBJECTS:
        return schema_object(w, c, to);
    default:
        return write_constants(w, c, type, to);
    }
}

// Writes each type with its keywords; types that allow no value are left out.
static bool write_types(struct writer *w, const struct conjunction *c, struct buf *to)
{
    static const unsigned each[] = { STRINGS, INTEGERS | REALS, ARRAYS, OBJECTS, BOOLEANS, NULLS };
    struct err why = { 0 };
    bool any = false;
    unsigned written;

    if (!schema_types_written(w, c, &written))
        return false;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct buf one = { 0 };
        bool ok = (written & each[i]) && write_type(w, c, written & each[i], &one);
        if (ok)
            buf_printf(to, "%s%s", any ? " | " : "", buf_as_str(&one).at);
        to->failed |= one.failed;
        any |= ok;
        buf_free(&one);
        why = w->nothing ? *w->err : why;
        if (!ok && (written & each[i]) && !schema_is_nothing(w))
            return false;
    }
    if (any)
        return true;
    w->nothing = true;
    *w->err = why;
    return false;
}

static bool write_expression(struct writer *w, const struct conjunction *c, struct buf *to)
{
    bool listed = false;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct schema_part *part = &c->at[i];
        if (part->flags & PART_NOT)
            continue;
        if (json_object_get(part->schema, "anyOf") && !(part->flags & PART_ANY_CHOSEN))
            return schema_choice(w, c, i, "anyOf", to);
        if (json_object_get(part->schema, "oneOf") && !(part->flags & PART_ONE_CHOSEN))
            return schema_choice(w, c, i, "oneOf", to);
        listed |= json_object_get(part->schema, "enum") || json_object_get(part->schema, "const");
    }
    return listed ? schema_values(w, c, to) : write_types(w, c, to);
}

// ---- rules

struct rule_entry {
    uint32_t first, n; // in parts
    uint32_t rule;
    enum { RULE_BEGUN, RULE_WRITTEN, RULE_NOTHING } state;
    bool is_named; // called while it is written: it is recursive
};

struct rule_table {
    struct rule_entry *entries;
    uint32_t n, capacity;
    struct buf parts;        // struct schema_part each
    struct hash_index index; // of entries
};

static uint64_t hash_parts(const struct schema_part *parts, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t words[] = { (uintptr_t)parts[i].schema, (uintptr_t)parts[i].scope, parts[i].flags };
        for (size_t k = 0; k < 3; k++) {
            h = (h ^ words[k]) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
    }
    return h;
}

static const struct schema_part *parts_of(const struct rule_table *t, const struct rule_entry *e)
{
    return (const struct schema_part *)(const void *)t->parts.at + e->first;
}

static bool table_make_room(struct rule_table *t)
{
    if (t->n == t->capacity) {
        uint32_t capacity = t->capacity ? 2 * t->capacity : 64;
        struct rule_entry *entries = mem_realloc(t->entries, capacity * sizeof *entries);
        if (!entries)
            return false;
        t->entries = entries;
        t->capacity = capacity;
    }
    return hash_index_reserve(&t->index);
}

// The entry of a conjunction, and whether it is new. UINT32_MAX: out of memory.
static uint32_t entry_of(struct rule_table *t, const struct conjunction *c, bool *is_new)
{
    *is_new = false;
    if (!table_make_room(t))
        return UINT32_MAX;
    uint64_t hash = hash_parts(c->at, c->n);
    for (struct hash_probe p = { 0 }; hash_index_next(&t->index, hash, &p);) {
        const struct rule_entry *e = &t->entries[p.number];
        if (e->n == c->n && !memcmp(parts_of(t, e), c->at, c->n * sizeof *c->at))
            return p.number;
    }
    *is_new = true;
    t->entries[t->n] = (struct rule_entry){ .first = (uint32_t)(t->parts.n / sizeof *c->at), .n = c->n };
    if (!buf_append(&t->parts, c->at, c->n * sizeof *c->at))
        return UINT32_MAX;
    hash_index_add(&t->index, hash, t->n);
    return t->n++;
}

bool schema_rule_write(struct writer *w, uint32_t rule, struct buf *body)
{
    buf_printf(w->out, "%s-%u ::= ", w->name, rule);
    buf_str(w->out, buf_as_str(body));
    buf_text(w->out, "\n");
    bool ok = (!body->failed && !w->out->failed && w->out->n < GRAMMAR_MAX_BYTES) ||
              schema_refuse(w, "it is too large");
    buf_free(body);
    return ok;
}

bool schema_rule_new(struct writer *w, uint32_t *rule)
{
    *rule = ++w->n_rules;
    return w->n_rules < SCHEMA_MAX_RULES || schema_refuse(w, "it has more than 50000 parts");
}

static bool write_rule(struct writer *w, const struct conjunction *c, uint32_t entry)
{
    struct buf body = { 0 };
    uint32_t rule;

    if (!schema_rule_new(w, &rule))
        return false;
    w->table->entries[entry].rule = rule;
    if (++w->depth > SCHEMA_MAX_DEPTH)
        return schema_refuse(w, "it is nested more than 64 deep, or without end");
    bool ok = write_expression(w, c, &body);
    w->depth--;
    struct rule_entry *e = &w->table->entries[entry]; // it may have moved
    e->state = ok ? RULE_WRITTEN : RULE_NOTHING;
    w->nothing = w->nothing && !e->is_named; // a rule that others call must exist
    if (ok)
        return schema_rule_write(w, rule, &body);
    buf_free(&body);
    return false;
}

bool schema_rule(struct writer *w, const struct conjunction *c, uint32_t *rule)
{
    bool is_new;

    *rule = 0;
    if (c->n == 0)
        return true;
    uint32_t entry = entry_of(w->table, c, &is_new);
    if (entry == UINT32_MAX)
        return err_memory(w->err, "a schema");
    if (is_new && !write_rule(w, c, entry))
        return false;
    struct rule_entry *e = &w->table->entries[entry];
    e->is_named |= e->state == RULE_BEGUN;
    *rule = e->rule;
    return e->state != RULE_NOTHING || schema_nothing(w, "no value fits it");
}

bool schema_write(json_t *schema, const char *name, struct buf *gbnf, struct err *err)
{
    struct rule_table table = { 0 };
    struct writer w = {
        .root = schema, .name = name, .out = gbnf, .err = err, .table = &table, .strings = json_object()
    };
    struct conjunction c = { .n = 0 };
    uint32_t rule = 0;

    CHECK(strlen(name) < SCHEMA_MAX_NAME);
    *err = (struct err){ 0 };
    bool ok = w.strings ? schema_add(&w, &c, schema, NULL, 0) && schema_rule(&w, &c, &rule)
                        : err_memory(err, "a schema");
    if (ok) {
        buf_printf(gbnf, "%s ::= ", name);
        schema_put_rule(&w, gbnf, rule);
        ok = buf_text(gbnf, "\n");
    }
    if (!ok && err->code == ERR_NONE) // a buffer had no room
        err_memory(err, "a schema's grammar");
    mem_free(table.entries);
    hash_index_free(&table.index);
    buf_free(&table.parts);
    json_decref(w.strings);
    return ok;
}

bool schema_to_grammar(struct str json, struct buf *gbnf, struct err *err)
{
    json_error_t where;
    json_t *schema = json_memory_read(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);

    if (!schema && json_memory_failed())
        return err_memory(err, "a schema");
    if (!schema)
        return err_set(err, ERR_INPUT, "schema: it is not JSON: %.150s at byte %d", where.text,
                       where.position);
    bool ok = schema_write_common(gbnf) ? schema_write(schema, "root", gbnf, err)
                                        : err_memory(err, "a schema's grammar");
    json_decref(schema);
    return ok;
}
