// schema_object.c - arrays and objects of a schema.
//
// Objects: rule F-i holds the properties from i on when none was written yet, T-i when one was; so optional properties cost two rules
// each and no combinations.
#include <stdlib.h>
#include "base/mem.h"
#include "text/schema_writer.h"
#include "text/unicode.h"

// ---- arrays

static bool write_items(struct writer *w, json_t *schema, json_t *items, struct buf *to)
{
    uint32_t least, most, rule = 0;
    bool any = !items || json_is_true(items);

    if (!schema_count(w, schema, "minItems", 0, &least) || !schema_count(w, schema, "maxItems", UINT32_MAX, &most))
        return false;
    if (least > most)
        return schema_refuse(w, "minItems is above maxItems");
    if (most == 0)
        return buf_text(to, "\"[\" ws \"]\"");
    if (!any && !schema_rule(w, items, &rule))
        return false;
    char item[SCHEMA_MAX_NAME + 16];
    snprintf(item, sizeof item, any ? "value" : "%s-%u", w->name, rule);
    buf_printf(to, "\"[\" ws (%s (\",\" ws %s)", item, item);
    gbnf_times(to, least > 0 ? least - 1 : 0, most == UINT32_MAX ? most : most - 1);
    return buf_text(to, least == 0 ? " ws)? \"]\"" : " ws) \"]\"");
}

// [a, b, then items]: as many of the first as minItems says are required, and all of them without it.
static bool write_tuple(struct writer *w, json_t *schema, json_t *first, json_t *rest, struct buf *to)
{
    uint32_t least, most, n = (uint32_t)json_array_size(first), rule;
    bool more = rest && !json_is_false(rest);

    if (!schema_count(w, schema, "minItems", n, &least) || !schema_count(w, schema, "maxItems", more ? UINT32_MAX : n, &most))
        return false;
    if (least != n || most < n)
        return schema_refuse(
            w, "prefixItems with fewer or more items than they are is not supported; leave out minItems and maxItems");
    buf_text(to, "\"[\" ws ");
    for (uint32_t i = 0; i < n; i++) {
        if (!schema_rule(w, json_array_get(first, i), &rule))
            return false;
        buf_printf(to, "%s%s-%u ", i ? "\",\" ws " : "", w->name, rule);
    }
    if (more && most > n) {
        if (!schema_rule(w, rest, &rule))
            return false;
        buf_printf(to, "(\",\" ws %s-%u)", w->name, rule);
        gbnf_times(to, 0, most == UINT32_MAX ? most : most - n);
    }
    return buf_text(to, " ws \"]\"");
}

bool schema_array(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *items = json_object_get(schema, "items"), *first = json_object_get(schema, "prefixItems");

    if (!schema_only(w, schema, "type items prefixItems additionalItems minItems maxItems"))
        return false;
    if (json_is_array(items) && !first) // as it was written before 2020
        return json_array_size(items) ? write_tuple(w, schema, items, json_object_get(schema, "additionalItems"), to)
                                      : write_items(w, schema, NULL, to);
    if (first && (!json_is_array(first) || json_array_size(first) == 0))
        return schema_refuse(w, "prefixItems: want a list with at least one schema");
    if (json_is_false(items) && !first && json_number_value(json_object_get(schema, "minItems")) > 0)
        return schema_refuse(w, "items is false, and minItems wants some");
    if (json_is_false(items) && !first)
        return buf_text(to, "\"[\" ws \"]\"");
    return first ? write_tuple(w, schema, first, items, to) : write_items(w, schema, items, to);
}

// ---- objects

struct property {
    const char *name;
    json_t *schema;
    uint32_t rule; // of its value
    bool required;
};

struct object {
    struct property *at; // [n]
    uint32_t n, first;   // rules first + 2 i and + 2 i + 1: F-i and T-i
    bool more;           // others may come
    uint32_t more_rule;  // of a pair that is none of these
};

static int by_name(const void *a, const void *b)
{
    const struct property *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

// Keys that are none of names[from..to), which share their first `depth` bytes: what may follow those bytes.
static bool write_other_key(struct writer *w, const struct property *const *names, uint32_t n, size_t depth, struct buf *to)
{
    bool ends = n > 0 && names[0]->name[depth] == 0;
    struct buf heads = { 0 };

    if (depth > 100) {
        return schema_refuse(w, "additionalProperties beside a property with a name of more than 100 bytes is not supported");
    }
    buf_text(to, ends ? "(" : "(\"\\\"\" | ");
    for (uint32_t i = ends, j; i < n; i = j) {
        uint32_t cp, length = utf8_read(names[i]->name + depth, strlen(names[i]->name + depth), &cp);
        for (j = i + 1; j < n && !strncmp(names[i]->name + depth, names[j]->name + depth, length); j++)
            ;
        if (cp < 0x20 || cp == '"' || cp == '\\' || cp == 0x7f) // such a key can only be written by an escape: never made here
            continue;
        buf_printf(&heads, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        buf_printf(to, cp < 0x10000 ? "[\\u%04x] " : "[\\U%08x] ", cp);
        if (!write_other_key(w, names + i, j - i, depth + length, to)) {
            buf_free(&heads);
            return false;
        }
        buf_text(to, " | ");
    }
    buf_printf(to, "[^\"\\\\\\x00-\\x1f\\x7f%s] [^\"\\\\\\x00-\\x1f\\x7f]* \"\\\"\")", buf_as_str(&heads).at);
    buf_free(&heads);
    return true;
}

static bool write_other_pair(struct writer *w, struct object *o, json_t *additional)
{
    const struct property **sorted = mem_alloc_array(o->n + 1, sizeof *sorted);
    struct buf body = { 0 };
    uint32_t rule = 0;
    bool ok = sorted && schema_rule_new(w, &o->more_rule);

    for (uint32_t i = 0; ok && i < o->n; i++)
        sorted[i] = &o->at[i];
    if (ok)
        qsort(sorted, o->n, sizeof *sorted, by_name);
    buf_text(&body, "\"\\\"\" ");
    ok = ok && write_other_key(w, sorted, o->n, 0, &body);
    ok = ok && (json_is_true(additional) || schema_rule(w, additional, &rule));
    if (rule)
        buf_printf(&body, " \":\" gap %s-%u", w->name, rule);
    else
        buf_text(&body, " \":\" gap value");
    mem_free(sorted);
    if (ok)
        return schema_rule_write(w, o->more_rule, &body);
    buf_free(&body);
    return false;
}

static void write_key(struct buf *to, const char *name)
{
    json_t *key = json_string(name);

    if (key)
        gbnf_json(to, key);
    else
        to->failed = true;
    json_decref(key);
}

// F-i, and with `comma` T-i.
static bool write_from(struct writer *w, const struct object *o, uint32_t i, bool comma)
{
    uint32_t rule = o->first + 2 * i + comma;
    const char *mark = comma ? "\",\" ws " : "";
    struct buf body = { 0 };

    if (i < o->n) {
        buf_text(&body, mark);
        write_key(&body, o->at[i].name);
        if (o->at[i].rule)
            buf_printf(&body, " \":\" gap %s-%u", w->name, o->at[i].rule);
        else
            buf_text(&body, " \":\" gap value");
        buf_printf(&body, " %s-%u", w->name, o->first + 2 * (i + 1) + 1);
        if (!o->at[i].required)
            buf_printf(&body, " | %s-%u", w->name, rule + 2);
    } else if (o->more && comma) {
        buf_printf(&body, "(\",\" ws %s-%u)* ws", w->name, o->more_rule);
    } else if (o->more) {
        buf_printf(&body, "(%s-%u (\",\" ws %s-%u)* ws)?", w->name, o->more_rule, w->name, o->more_rule);
    } else {
        buf_text(&body, comma ? "ws" : "\"\"");
    }
    return schema_rule_write(w, rule, &body);
}

static bool collect(struct writer *w, struct object *o, json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    json_t *additional = json_object_get(schema, "additionalProperties"), *value, *item;
    const char *name;
    size_t i;

    json_object_foreach(properties, name, value)
    {
        o->at[o->n++] = (struct property){ .name = name, .schema = value, .required = name_is_required(required, name) };
    }
    json_array_foreach(required, i, item)
    {
        if (!json_is_string(item))
            return schema_refuse(w, "required: want a list of names");
        if (json_object_get(properties, json_string_value(item)))
            continue;
        if (json_is_false(additional))
            return schema_refuse(w, "required: a name that is not in properties, and additionalProperties is false");
        o->at[o->n++] = (struct property){ .name = json_string_value(item), .schema = additional, .required = true };
    }
    return true;
}

static bool write_properties(struct writer *w, struct object *o, json_t *additional, struct buf *to)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->at[i].schema && !json_is_true(o->at[i].schema) && !schema_rule(w, o->at[i].schema, &o->at[i].rule))
            return false;
    if (o->more && !write_other_pair(w, o, additional))
        return false;
    o->first = w->n_rules + 1;
    w->n_rules += 2 * (o->n + 1);
    if (w->n_rules >= SCHEMA_MAX_RULES)
        return schema_refuse(w, "it has more than 20000 parts");
    for (uint32_t i = 0; i <= o->n; i++)
        if (!write_from(w, o, i, false) || !write_from(w, o, i, true))
            return false;
    return buf_printf(to, "\"{\" ws %s-%u \"}\"", w->name, o->first);
}

bool schema_object(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    json_t *additional = json_object_get(schema, "additionalProperties");
    struct object o = { .more = additional && !json_is_false(additional) };
    size_t n = json_object_size(properties) + json_array_size(required);

    if ((properties && !json_is_object(properties)) || (required && !json_is_array(required)))
        return schema_refuse(w, "properties: want an object, and required: a list of names");
    if (n == 0 && !properties && (!additional || json_is_true(additional)))
        return buf_text(to, "object");
    o.at = mem_alloc_array(n + 1, sizeof *o.at);
    if (!o.at)
        return err_memory(w->err, "a schema");
    bool ok = collect(w, &o, schema) && write_properties(w, &o, additional, to);
    mem_free(o.at);
    return ok;
}
