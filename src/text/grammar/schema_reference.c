// schema_reference.c - resolves $ref, and builds the conjunction of a schema and all schemas that it refers
// to.
#include "text/grammar/schema_writer.h"

// ---- $ref

// One step of a JSON pointer, decoded; the step ends at a slash.
static bool pointer_step(const char **at, char *name, size_t room)
{
    size_t n = 0;

    for (; **at && **at != '/'; (*at)++) {
        char c = **at;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1'))
            c = *++*at == '0' ? '~' : '/';
        if (n + 1 == room)
            return false;
        name[n++] = c;
    }
    name[n] = 0;
    return true;
}

json_t *schema_target(const struct writer *w, json_t *reference)
{
    const char *text = json_string_value(reference), *at = text;
    json_t *target = w->root;
    char name[256];
    uint64_t index;

    if (!text || *at++ != '#') {
        err_set(w->err, ERR_UNSUPPORTED,
                "schema: $ref '%.80s' leaves the schema; want #/...: nothing is fetched", text ? text : "?");
        return NULL;
    }
    while (target && *at == '/') {
        at++;
        if (!pointer_step(&at, name, sizeof name))
            target = NULL;
        else if (json_is_array(target))
            target = str_to_u64(str_from(name), &index) ? json_array_get(target, index) : NULL;
        else
            target = json_object_get(target, name);
    }
    if (!target || *at)
        err_set(w->err, ERR_INPUT, "schema: $ref '%.80s' names nothing", text);
    return *at ? NULL : target;
}

// ---- conjunctions

// Keywords that add other schemas, which then become parts of their own.
static const char adding[] = "$ref allOf not";

static bool keyword_asserts(const char *name, const json_t *value, uint32_t flags)
{
    static const char asserting[] = "type enum const anyOf oneOf minLength maxLength pattern format minimum "
                                    "maximum exclusiveMinimum exclusiveMaximum "
                                    "multipleOf items prefixItems additionalItems minItems maxItems "
                                    "uniqueItems contains unevaluatedItems properties "
                                    "required "
                                    "additionalProperties patternProperties propertyNames minProperties "
                                    "maxProperties unevaluatedProperties "
                                    "dependentRequired "
                                    "dependentSchemas dependencies";

    if ((!strcmp(name, "anyOf") && flags & PART_ANY_CHOSEN) ||
        (!strcmp(name, "oneOf") && flags & PART_ONE_CHOSEN))
        return false;
    return !json_is_null(value) && schema_word_is_listed(name, asserting);
}

bool schema_asserts(const json_t *schema, uint32_t flags)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)schema, name, value)
    {
        if (keyword_asserts(name, value, flags))
            return true;
    }
    return false;
}

json_t *schema_inner_scope(const struct schema_part *part)
{
    bool own = json_object_get(part->schema, "unevaluatedProperties") ||
               json_object_get(part->schema, "unevaluatedItems");
    return own ? part->schema : part->scope;
}

bool schema_in_scope(const struct conjunction *c, uint32_t part, uint32_t of)
{
    json_t *scope = c->at[part].scope;

    for (uint32_t steps = 0; part != of && scope && steps < c->n; steps++) {
        if (scope == c->at[of].schema)
            return true;
        uint32_t i = 0;
        while (i < c->n && c->at[i].schema != scope)
            i++;
        scope = i < c->n ? c->at[i].scope : NULL;
    }
    return part == of;
}

static bool push(struct writer *w, struct conjunction *c, struct schema_part part)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i].schema == part.schema && c->at[i].scope == part.scope && c->at[i].flags == part.flags)
            return true;
    if (c->n == SCHEMA_MAX_PARTS)
        return schema_refuse(w, "more than 32 schemas hold for one value");
    c->at[c->n++] = part;
    return true;
}

// Keywords that a grammar cannot express.
static bool check_keywords(const struct writer *w, const json_t *schema)
{
    if (json_object_get(schema, "if") && (json_object_get(schema, "then") || json_object_get(schema, "else")))
        return schema_refuse_keyword(w, "if");
    if (json_object_get(schema, "$dynamicRef") || json_object_get(schema, "$recursiveRef"))
        return schema_refuse_keyword(w, json_object_get(schema, "$dynamicRef") ? "$dynamicRef"
                                                                               : "$recursiveRef");
    return true;
}

// The one keyword with meaning of a schema under `not`, apart from its type; NULL: none, or several.
static const char *only_keyword(const json_t *schema)
{
    const char *name, *only = NULL;
    json_t *value;
    uint32_t n = 0;

    json_object_foreach((json_t *)(uintptr_t)schema, name, value)
    {
        if (strcmp(name, "type") != 0 &&
            (keyword_asserts(name, value, 0) || schema_word_is_listed(name, adding))) {
            only = name;
            n++;
        }
    }
    return n == 1 ? only : NULL;
}

// Takes `not` apart where possible; types, values, strings and a required name stay as they are.
static bool add_negated(struct writer *w, struct conjunction *c, json_t *schema, json_t *scope)
{
    const char *only = only_keyword(schema);
    json_t *value = json_object_get(schema, only ? only : ""), *item, *type = json_object_get(schema, "type");
    size_t i;

    if (!only && !type && !schema_asserts(schema, 0) && !json_object_get(schema, "not"))
        return schema_nothing(w, "'not': {} allows nothing");
    if (only && !type && !strcmp(only, "not"))
        return schema_add(w, c, value, scope, 0);
    if (only && !type && !strcmp(only, "$ref"))
        return (value = schema_target(w, value)) && schema_add(w, c, value, scope, PART_NOT);
    if (only && !type && !strcmp(only, "anyOf")) {
        json_array_foreach(value, i, item)
        {
            if (!schema_add(w, c, item, scope, PART_NOT))
                return false;
        }
        return true;
    }
    bool strings = true;
    const char *name;
    json_object_foreach(schema, name, item)
    {
        strings = strings && (!strcmp(name, "type") || !keyword_asserts(name, item, 0) ||
                              schema_word_is_listed(name, "minLength maxLength pattern"));
        strings = strings && !schema_word_is_listed(name, adding);
    }
    bool one_name = only && !strcmp(only, "required") && json_array_size(value) == 1;
    if ((only && schema_word_is_listed(only, "enum const")) || one_name || strings)
        return push(w, c, (struct schema_part){ schema, scope, PART_NOT });
    return schema_refuse(w,
                         "'not' is supported with type, enum, const, strings' keywords or one required name");
}

static bool add_all(struct writer *w, struct conjunction *c, const struct schema_part *part)
{
    json_t *reference = json_object_get(part->schema, "$ref"), *all = json_object_get(part->schema, "allOf"),
           *item;
    json_t *negated = json_object_get(part->schema, "not"), *scope = schema_inner_scope(part), *target;
    size_t i;

    if (all && !json_is_array(all))
        return schema_refuse(w, "allOf: want a list of schemas");
    if (reference && (!(target = schema_target(w, reference)) || !schema_add(w, c, target, scope, 0)))
        return false;
    json_array_foreach(all, i, item)
    {
        if (!schema_add(w, c, item, scope, 0))
            return false;
    }
    return !negated || schema_add(w, c, negated, NULL, PART_NOT);
}

bool schema_add(struct writer *w, struct conjunction *c, json_t *schema, json_t *scope, uint32_t flags)
{
    struct schema_part part = { schema, scope, flags };

    if (json_is_boolean(schema))
        return json_is_true(schema) != (flags & PART_NOT) || schema_nothing(w, "false allows nothing");
    if (!json_is_object(schema))
        return err_set(w->err, ERR_INPUT, "schema: want an object or true where a schema stands");
    if (++w->depth > SCHEMA_MAX_DEPTH)
        return schema_refuse(w, "it is nested more than 64 deep, or without end");
    bool ok = check_keywords(w, schema);
    if (flags & PART_NOT)
        ok = ok && add_negated(w, c, schema, scope);
    else
        ok = ok && (!schema_asserts(schema, 0) || push(w, c, part)) && add_all(w, c, &part);
    w->depth--;
    return ok;
}
