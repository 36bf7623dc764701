// schema_array.c - arrays: the first items one by one, each with the schemas of all parts for its index, then
// any number of others.
#include "text/grammar/gbnf.h"
#include "text/grammar/schema_writer.h"

enum { MAX_FIRST = 1024 };

struct array {
    uint32_t n_first; // items with a schema of their own
    uint32_t least, most;
    bool counts; // the schema has minItems
};

// prefixItems, or the list form of items before draft 2020.
static json_t *first_items(const json_t *schema)
{
    json_t *first = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    return first ? first : json_is_array(items) ? items : NULL;
}

static json_t *other_items(const json_t *schema)
{
    json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? json_object_get(schema, "additionalItems") : items;
}

static bool is_evaluated(const struct conjunction *c, uint32_t part, uint32_t place)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const json_t *schema = c->at[i].schema;
        bool own = place < json_array_size(first_items(schema)) || other_items(schema) ||
                   (i != part && json_object_get(schema, "unevaluatedItems"));
        if (own && !(c->at[i].flags & PART_NOT) && schema_in_scope(c, i, part))
            return true;
    }
    return false;
}

// The schemas that apply to the item at `place`.
static bool item_rule(struct writer *w, const struct conjunction *c, uint32_t place, uint32_t *rule)
{
    struct conjunction item = { .n = 0 };

    for (uint32_t i = 0; i < c->n; i++) {
        const json_t *schema = c->at[i].schema, *first = first_items(schema);
        json_t *own = place < json_array_size(first) ? json_array_get(first, place) : other_items(schema);
        json_t *rest = json_object_get(schema, "unevaluatedItems");
        if (c->at[i].flags & PART_NOT)
            continue;
        if (own && !schema_add(w, &item, own, NULL, 0))
            return false;
        if (rest && !is_evaluated(c, i, place) && !schema_add(w, &item, rest, NULL, 0))
            return false;
    }
    return schema_rule(w, &item, rule);
}

static bool read_array(struct writer *w, const struct conjunction *c, struct array *a)
{
    bool unique = false;

    *a = (struct array){ .most = UINT32_MAX };
    for (uint32_t i = 0; i < c->n; i++) {
        const json_t *schema = c->at[i].schema, *first = first_items(schema);
        if (c->at[i].flags & PART_NOT) {
            if (schema_lists_type(schema, ARRAYS))
                return schema_refuse(w, "'not' with arrays is not supported");
            continue;
        }
        if (!schema_count(w, schema, "minItems", true, &a->least) ||
            !schema_count(w, schema, "maxItems", false, &a->most))
            return false;
        if (json_object_get(schema, "contains"))
            return schema_refuse_keyword(w, "contains");
        if (json_object_get(schema, "prefixItems") && (!json_is_array(first) || !json_array_size(first)))
            return schema_refuse(w, "prefixItems: want a list with at least one schema");
        if (json_array_size(first) > MAX_FIRST)
            return schema_refuse(w, "prefixItems: more than 1024 items");
        a->n_first = json_array_size(first) > a->n_first ? (uint32_t)json_array_size(first) : a->n_first;
        a->counts |= json_object_get(schema, "minItems") != NULL;
        unique |= json_is_true(json_object_get(schema, "uniqueItems"));
    }
    if (a->least > a->most)
        return schema_nothing(w, "minItems is above maxItems");
    return !unique || a->most <= 1 || schema_refuse_keyword(w, "uniqueItems");
}

// Writes the item at `place` and its successors, required or optional.
static bool write_first(struct writer *w, const struct conjunction *c, struct array *a, uint32_t *n_open,
                        struct buf *to)
{
    uint32_t n = a->n_first < a->most ? a->n_first : a->most, rule;

    for (uint32_t i = 0; i < n; i++) {
        if (!item_rule(w, c, i, &rule)) {
            if (i < a->least || !schema_is_nothing(w))
                return false;
            a->most = i; // an array that ends before it
            return true;
        }
        if (i >= a->least) {
            buf_text(to, " (");
            ++*n_open;
        }
        buf_text(to, i ? " \",\" ws " : " ");
        schema_put_rule(w, to, rule);
    }
    return true;
}

// Writes the items behind the first ones.
static bool write_others(struct writer *w, const struct conjunction *c, const struct array *a, struct buf *to)
{
    uint32_t least = a->least > a->n_first ? a->least - a->n_first : 0, rule;
    uint32_t most = a->most == UINT32_MAX ? a->most : a->most - a->n_first;

    if (!item_rule(w, c, a->n_first, &rule))
        return least == 0 && schema_is_nothing(w);
    if (a->n_first > 0) {
        buf_text(to, " (\",\" ws ");
        schema_put_rule(w, to, rule);
        buf_text(to, ")");
        gbnf_times(to, least, most);
        return true;
    }
    buf_text(to, least == 0 ? " (" : " ");
    schema_put_rule(w, to, rule);
    buf_text(to, " (\",\" ws ");
    schema_put_rule(w, to, rule);
    buf_text(to, ")");
    gbnf_times(to, least > 0 ? least - 1 : 0, most == UINT32_MAX ? most : most - 1);
    return buf_text(to, least == 0 ? " ws)?" : " ws");
}

bool schema_array(struct writer *w, const struct conjunction *c, struct buf *to)
{
    struct array a;
    uint32_t n_open = 0;

    if (!read_array(w, c, &a))
        return false;
    if (a.n_first > 0 && !a.counts) // without minItems a tuple is written whole, though the schema allows
                                    // fewer items
        a.least = a.n_first < a.most ? a.n_first : a.most;
    buf_text(to, "\"[\" ws");
    if (!write_first(w, c, &a, &n_open, to) || (a.most > a.n_first && !write_others(w, c, &a, to)))
        return false;
    for (; n_open > 0; n_open--)
        buf_text(to, ")?");
    return buf_text(to, a.n_first > 0 ? " ws \"]\"" : " \"]\"");
}
