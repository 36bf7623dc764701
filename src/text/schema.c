// schema.c - see schema.h. Every schema becomes a rule; a schema that $ref names becomes one rule however often it is named.
//
// A keyword is looked for in a list per kind of schema, so that what is not there is refused. Kinds have files of their own: scalars,
// objects and arrays, references.
#include "text/schema.h"
#include <math.h>
#include "base/mem.h"
#include "text/schema_writer.h"

bool schema_refuse(const struct writer *w, const char *what)
{
    return err_set(w->err, ERR_UNSUPPORTED, "schema: %s", what);
}

static const char common[] =
    "ws ::= (\" \" | \"\\n\" [ ]{0,32})?\n"
    "gap ::= \" \"?\n"
    "char ::= [^\"\\\\\\x00-\\x1f\\x7f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" escaped)\n"
    "escaped ::= [0-9a-ce-fA-CE-F] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2}\n"
    "hex ::= [0-9a-fA-F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "object ::= \"{\" ws (string \":\" gap value (\",\" ws string \":\" gap value)* ws)? \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n";

bool schema_write_common(struct buf *gbnf)
{
    return buf_text(gbnf, common);
}

bool gbnf_literal(struct buf *out, struct str text)
{
    buf_text(out, "\"");
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\x%02x", c);
        else
            buf_append(out, &c, 1);
    }
    return buf_text(out, "\"");
}

static int append(const char *bytes, size_t n, void *arg)
{
    return buf_append(arg, bytes, n) ? 0 : -1;
}

void gbnf_json(struct buf *to, const json_t *value)
{
    struct buf text = { 0 };

    json_dump_callback(value, append, &text, JSON_COMPACT | JSON_ENCODE_ANY);
    gbnf_literal(to, buf_as_str(&text));
    to->failed |= text.failed;
    buf_free(&text);
}

// ---- keywords

bool word_is_listed(const char *word, const char *list)
{
    size_t n = strlen(word);

    for (const char *at = strstr(list, word); at && n; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

static const char annotations[] =
    "title description default examples example $schema $id $comment $defs definitions $anchor deprecated "
    "readOnly writeOnly nullable strict contentMediaType contentEncoding discriminator markdownDescription";

bool schema_describes(const char *keyword)
{
    return word_is_listed(keyword, annotations) || !strncmp(keyword, "x-", 2);
}

bool schema_only(const struct writer *w, json_t *schema, const char *list)
{
    const char *name;
    json_t *value;

    json_object_foreach(schema, name, value)
    {
        if (word_is_listed(name, list) || schema_describes(name))
            continue;
        if (json_is_false(value) && word_is_listed(name, "uniqueItems unevaluatedProperties"))
            continue;
        return err_set(w->err, ERR_UNSUPPORTED, "schema: the keyword '%.60s' is not supported here", name);
    }
    return true;
}

bool schema_count(const struct writer *w, json_t *schema, const char *name, uint32_t otherwise, uint32_t *count)
{
    json_t *value = json_object_get(schema, name);
    double n = json_number_value(value);

    *count = otherwise;
    if (!value)
        return true;
    if (!json_is_number(value) || n < 0 || n != floor(n) || n > GRAMMAR_MAX_REPEAT)
        return err_set(w->err, ERR_INPUT, "schema: %s: want a whole number from 0 to %d", name, GRAMMAR_MAX_REPEAT);
    *count = (uint32_t)n;
    return true;
}

void gbnf_times(struct buf *to, uint32_t least, uint32_t most)
{
    if (most == UINT32_MAX)
        buf_printf(to, "{%u,}", least);
    else
        buf_printf(to, "{%u,%u}", least, most);
}

// ---- rules

bool schema_rule_write(struct writer *w, uint32_t rule, struct buf *body)
{
    buf_printf(w->out, "%s-%u ::= ", w->name, rule);
    buf_str(w->out, buf_as_str(body));
    buf_text(w->out, "\n");
    bool ok = (!body->failed && !w->out->failed && w->out->n < GRAMMAR_MAX_BYTES) || schema_refuse(w, "it is too large");
    buf_free(body);
    return ok;
}

bool schema_rule_new(struct writer *w, uint32_t *rule)
{
    *rule = ++w->n_rules;
    return w->n_rules < SCHEMA_MAX_RULES || schema_refuse(w, "it has more than 20000 parts");
}

bool schema_rule(struct writer *w, json_t *schema, uint32_t *rule)
{
    struct buf body = { 0 };

    if (!schema_rule_new(w, rule))
        return false;
    if (schema_expression(w, schema, &body))
        return schema_rule_write(w, *rule, &body);
    buf_free(&body);
    return false;
}

bool name_is_required(json_t *required, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach(required, i, item)
    {
        if (json_is_string(item) && !strcmp(json_string_value(item), name))
            return true;
    }
    return false;
}

// ---- values

static bool has_type(const json_t *value, const char *type)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return !strcmp(type, "object");
    case JSON_ARRAY:
        return !strcmp(type, "array");
    case JSON_STRING:
        return !strcmp(type, "string");
    case JSON_INTEGER:
        return !strcmp(type, "integer") || !strcmp(type, "number");
    case JSON_REAL:
        return !strcmp(type, "number");
    case JSON_NULL:
        return !strcmp(type, "null");
    default:
        return !strcmp(type, "boolean");
    }
}

static bool fits_type(json_t *types, const json_t *value)
{
    json_t *item;
    size_t i;

    if (!types || (json_is_string(types) && has_type(value, json_string_value(types))))
        return true;
    json_array_foreach(types, i, item)
    {
        if (json_is_string(item) && has_type(value, json_string_value(item)))
            return true;
    }
    return false;
}

static bool is_listed(json_t *list, const json_t *value)
{
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        if (json_equal(item, value))
            return true;
    }
    return false;
}

static bool write_values(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *list = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const"), *item;
    bool any = false;
    size_t i;

    if (!schema_only(w, schema, "type enum const"))
        return false;
    if (constant && (!fits_type(json_object_get(schema, "type"), constant) || (list && !is_listed(list, constant))))
        return schema_refuse(w, "const: the value is not of the type, or not in enum");
    if (constant) {
        gbnf_json(to, constant);
        return true;
    }
    json_array_foreach(list, i, item)
    {
        if (!fits_type(json_object_get(schema, "type"), item))
            continue;
        buf_text(to, any ? " | " : "");
        gbnf_json(to, item);
        any = true;
    }
    return any || schema_refuse(w, "enum: want a list with at least one value of the type");
}

// ---- types

#define STRING_KEYS "minLength maxLength pattern format"
#define NUMBER_KEYS "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"
#define ARRAY_KEYS  "items prefixItems additionalItems minItems maxItems"
#define OBJECT_KEYS "properties required additionalProperties"

static const struct {
    const char *type, *keywords;
} types[] = {
    { "string", "type " STRING_KEYS },
    { "integer", "type format " NUMBER_KEYS },
    { "number", "type format " NUMBER_KEYS },
    { "array", "type " ARRAY_KEYS },
    { "object", "type " OBJECT_KEYS },
    { "boolean", "type" },
    { "null", "type" },
};

static const char *keywords_of(const char *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, type))
            return types[i].keywords;
    return NULL;
}

static bool write_type(struct writer *w, json_t *schema, const char *type, struct buf *to)
{
    const char *keywords = keywords_of(type);

    if (!keywords)
        return err_set(w->err, ERR_INPUT, "schema: type '%.40s' is none of object, array, string, number, integer, boolean, null",
                       type);
    if (!schema_only(w, schema, keywords))
        return false;
    switch (type[0]) {
    case 's':
        return schema_string(w, schema, to);
    case 'i':
        return schema_numeric(w, schema, true, to);
    case 'a':
        return schema_array(w, schema, to);
    case 'o':
        return schema_object(w, schema, to);
    default:
        return type[0] == 'n' && type[2] == 'm' ? schema_numeric(w, schema, false, to) : buf_text(to, type);
    }
}

// What a schema without a type speaks of.
static const char *type_from_keywords(json_t *schema)
{
    const char *name;
    json_t *value;

    json_object_foreach(schema, name, value)
    {
        const char *type = word_is_listed(name, OBJECT_KEYS)   ? "object"
                           : word_is_listed(name, ARRAY_KEYS)  ? "array"
                           : word_is_listed(name, STRING_KEYS) ? "string"
                           : word_is_listed(name, NUMBER_KEYS) ? "number"
                                                               : NULL;
        if (type)
            return type;
    }
    return NULL;
}

// Each type of a list with the keywords that concern it.
static bool write_types(struct writer *w, json_t *schema, json_t *list, struct buf *to)
{
    struct buf all = { 0 };
    json_t *item, *value;
    const char *name;
    size_t i;
    bool ok = json_array_size(list) > 0 || schema_refuse(w, "type: the list is empty");

    json_array_foreach(list, i, item)
    {
        const char *type = json_is_string(item) ? json_string_value(item) : "?", *keywords = keywords_of(type);
        json_t *part = json_object();
        buf_printf(&all, "%s ", keywords ? keywords : "");
        json_object_foreach(schema, name, value)
        {
            if (keywords && word_is_listed(name, keywords) && strcmp(name, "type") != 0)
                json_object_set(part, name, value);
        }
        buf_text(to, i ? " | " : "");
        ok = ok && write_type(w, part, type, to);
        json_decref(part);
    }
    ok = ok && schema_only(w, schema, buf_as_str(&all).at);
    buf_free(&all);
    return ok;
}

static bool write_kind(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *type = json_object_get(schema, "type");

    if (json_object_get(schema, "$ref"))
        return schema_reference(w, schema, to);
    if (json_object_get(schema, "allOf"))
        return schema_all_of(w, schema, to);
    if (json_object_get(schema, "anyOf"))
        return schema_choice(w, schema, "anyOf", to);
    if (json_object_get(schema, "oneOf"))
        return schema_choice(w, schema, "oneOf", to);
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return write_values(w, schema, to);
    if (json_is_array(type))
        return write_types(w, schema, type, to);
    const char *name = json_is_string(type) ? json_string_value(type) : type ? "?" : type_from_keywords(schema);
    if (name)
        return write_type(w, schema, name, to);
    return schema_only(w, schema, "") && buf_text(to, "value");
}

bool schema_expression(struct writer *w, json_t *schema, struct buf *to)
{
    if (json_is_true(schema))
        return buf_text(to, "value");
    if (!json_is_object(schema))
        return err_set(w->err, ERR_INPUT, "schema: %s",
                       json_is_false(schema) ? "false allows nothing" : "want an object or true where a schema stands");
    if (++w->depth > SCHEMA_MAX_DEPTH)
        return schema_refuse(w, "it is nested more than 64 deep");
    bool ok = write_kind(w, schema, to);
    if (ok && json_is_true(json_object_get(schema, "nullable")))
        buf_text(to, " | null");
    w->depth--;
    return ok;
}

bool schema_write(json_t *schema, const char *name, struct buf *gbnf, struct err *err)
{
    struct writer w = { .root = schema, .name = name, .out = gbnf, .err = err };
    struct buf body = { 0 };

    CHECK(strlen(name) < SCHEMA_MAX_NAME);
    bool ok = schema_expression(&w, schema, &body);
    buf_printf(gbnf, "%s ::= %s\n", name, buf_as_str(&body).at);
    ok = ok && ((!body.failed && !gbnf->failed) || err_memory(err, "a schema's grammar"));
    buf_free(&body);
    mem_free(w.references);
    return ok;
}

bool schema_to_grammar(struct str json, struct buf *gbnf, struct err *err)
{
    json_error_t where;
    json_t *schema = json_loadb(json.at, json.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);

    if (!schema)
        return err_set(err, ERR_INPUT, "schema: it is not JSON: %.150s at byte %d", where.text, where.position);
    bool ok = schema_write_common(gbnf) && schema_write(schema, "root", gbnf, err);
    json_decref(schema);
    return ok;
}
