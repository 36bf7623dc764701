// schema_reference.c - $ref, a rule for each schema that is named, and allOf, merged into one schema.
#include "base/mem.h"
#include "text/schema_writer.h"

// ---- $ref and allOf

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
        err_set(w->err, ERR_UNSUPPORTED, "schema: $ref '%.80s' leaves the schema; want #/...: nothing is fetched",
                text ? text : "?");
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

bool schema_reference(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *target = schema_target(w, json_object_get(schema, "$ref"));
    struct buf body = { 0 };
    uint32_t rule;

    if (!target || !schema_only(w, schema, "$ref"))
        return false;
    for (uint32_t i = 0; i < w->n_references; i++)
        if (w->references[i].target == target)
            return buf_printf(to, "%s-%u", w->name, w->references[i].rule);
    if (w->n_references == w->capacity) {
        uint32_t capacity = w->capacity ? 2 * w->capacity : 16;
        struct reference *more = mem_realloc(w->references, capacity * sizeof *more);
        if (!more)
            return err_memory(w->err, "a schema");
        w->references = more;
        w->capacity = capacity;
    }
    if (!schema_rule_new(w, &rule))
        return false;
    w->references[w->n_references++] = (struct reference){ target, rule };
    if (!schema_expression(w, target, &body)) {
        buf_free(&body);
        return false;
    }
    return schema_rule_write(w, rule, &body) && buf_printf(to, "%s-%u", w->name, rule);
}

static bool merge(struct writer *w, json_t *into, json_t *part, uint32_t depth);

static bool merge_keyword(struct writer *w, json_t *into, const char *name, json_t *value)
{
    json_t *there = json_object_get(into, name), *item;
    const char *property;
    size_t i;

    if (schema_describes(name))
        return true;
    if (!there)
        return json_object_set_new(into, name, json_deep_copy(value)) == 0 || err_memory(w->err, "a schema");
    if (!strcmp(name, "properties") && json_is_object(value) && json_is_object(there)) {
        json_object_foreach(value, property, item)
        {
            if (!merge_keyword(w, there, property, item))
                return false;
        }
        return true;
    }
    if (!strcmp(name, "required") && json_is_array(there)) {
        json_array_foreach(value, i, item)
        {
            if (json_is_string(item) && !name_is_required(there, json_string_value(item)))
                json_array_append(there, item);
        }
        return true;
    }
    return json_equal(there, value) ||
           err_set(w->err, ERR_UNSUPPORTED, "schema: allOf with two different '%.60s' is not supported", name);
}

static bool merge(struct writer *w, json_t *into, json_t *part, uint32_t depth)
{
    const char *name;
    json_t *value, *inner;
    size_t i;

    for (; json_object_get(part, "$ref"); depth++) {
        part = depth < SCHEMA_MAX_DEPTH ? schema_target(w, json_object_get(part, "$ref")) : NULL;
        if (!part)
            return depth < SCHEMA_MAX_DEPTH ? false : schema_refuse(w, "allOf is nested too deep, or without end");
    }
    if (!json_is_object(part) || depth >= SCHEMA_MAX_DEPTH)
        return json_is_true(part) || schema_refuse(w, "allOf: want a list of schemas, not nested too deep");
    json_object_foreach(part, name, value)
    {
        if (strcmp(name, "allOf") != 0 && !merge_keyword(w, into, name, value))
            return false;
    }
    json_array_foreach(json_object_get(part, "allOf"), i, inner)
    {
        if (!merge(w, into, inner, depth + 1))
            return false;
    }
    return true;
}

bool schema_all_of(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *whole = json_object();
    bool ok = merge(w, whole, schema, 0) && schema_expression(w, whole, to);

    json_decref(whole);
    return ok;
}
