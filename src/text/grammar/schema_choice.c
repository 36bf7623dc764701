// schema_choice.c - anyOf and oneOf.
//
// A grammar cannot exclude what two alternatives both allow, so oneOf is written as anyOf, which is exact
// only if no text fits two of its schemas. This file decides that by what distinguishes schemas in practice:
// types, const and enum, a required property with different values, a property that one requires and the
// other excludes. A oneOf that cannot be decided is refused; its author may mean anyOf.
#include "text/grammar/schema_writer.h"

enum { MAX_STEPS = 2000000 }; // comparisons per oneOf; beyond that it counts as undecidable

struct apart {
    struct writer *w;
    size_t steps;
    bool alone;   // no keyword beside the two schemas describes the value
    bool objects; // the value is an object, even without a type
};

static bool spend(struct apart *s, size_t steps)
{
    s->steps += steps;
    return s->steps < MAX_STEPS;
}

// ---- values

// The i-th value of const or enum; NULL: there are no more. *listed: the schema has such a list.
static json_t *listed_value(const json_t *schema, size_t i)
{
    json_t *constant = json_object_get(schema, "const");

    if (constant)
        return i == 0 ? constant : NULL;
    return json_array_get(json_object_get(schema, "enum"), i);
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

// Whether `b` excludes every value that `a` lists, by its own list or types.
static bool lists_other_values(struct apart *s, const json_t *a, const json_t *b)
{
    json_t *value, *other;

    if (!listed_value(a, 0) || json_is_true(json_object_get(a, "nullable")))
        return false;
    for (size_t i = 0; (value = listed_value(a, i)); i++) {
        bool excluded = !(schema_types(b) & schema_type_of_value(value)) || listed_value(b, 0);
        if (schema_type_of_value(value) & (OBJECTS | ARRAYS)) // 1 and 1.0 inside them are not compared
            return false;
        for (size_t k = 0; (other = listed_value(b, k)) && spend(s, 1); k++)
            excluded = excluded && !same_value(value, other);
        if (!excluded || !spend(s, 1))
            return false;
    }
    return true;
}

// ---- objects

// Whether other keywords add properties to those that the schema lists itself.
static bool adds(const json_t *schema)
{
    static const char *const adding[] = {
        "allOf", "anyOf", "oneOf", "$ref", "patternProperties", "unevaluatedProperties"
    };

    for (size_t i = 0; i < sizeof adding / sizeof *adding; i++)
        if (json_object_get(schema, adding[i]))
            return true;
    return false;
}

static bool is_closed(const struct apart *s, const json_t *schema, bool as_written)
{
    const json_t *more = json_object_get(schema, "additionalProperties");

    if (json_object_get(schema, "patternProperties"))
        return false;
    if (as_written && s->alone && !more && !adds(schema)) // no others are written, though all are allowed
        return json_object_size(json_object_get(schema, "properties")) > 0 ||
               json_array_size(json_object_get(schema, "required"));
    return json_is_false(more);
}

static bool may_have(struct apart *s, const json_t *schema, const char *name, bool as_written)
{
    spend(s, 1 + json_array_size(json_object_get(schema, "required")));
    return !is_closed(s, schema, as_written) ||
           json_object_get(json_object_get(schema, "properties"), name) ||
           (as_written && schema_name_is_listed(json_object_get(schema, "required"), name));
}

// Whether no object written for `a` fits `b`: `b` requires a property that `a` lacks, or excludes one that
// `a` requires.
static bool lacks_or_exceeds(struct apart *s, const json_t *a, const json_t *b)
{
    const json_t *wanted = json_object_get(b, "required"), *had = json_object_get(a, "required");

    for (size_t i = 0; i < json_array_size(wanted) && spend(s, 1); i++)
        if (json_is_string(json_array_get(wanted, i)) &&
            !may_have(s, a, json_string_value(json_array_get(wanted, i)), true))
            return true;
    for (size_t i = 0; i < json_array_size(had) && spend(s, 1); i++)
        if (json_is_string(json_array_get(had, i)) &&
            !may_have(s, b, json_string_value(json_array_get(had, i)), false))
            return true;
    return false;
}

static bool are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth);

static bool required_property_is_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    json_t *required = json_object_get(a, "required"), *item;
    bool alone = s->alone, objects = s->objects, apart = false;
    size_t i;

    s->alone = alone && !adds(a) && !adds(b);
    s->objects = false;
    json_array_foreach(required, i, item)
    {
        const char *name = json_is_string(item) ? json_string_value(item) : "";
        json_t *x = json_object_get(json_object_get(a, "properties"), name);
        json_t *y = json_object_get(json_object_get(b, "properties"), name);
        if (apart || !spend(s, 1 + json_array_size(json_object_get(b, "required"))))
            break;
        apart = x && y && schema_name_is_listed(json_object_get(b, "required"), name) &&
                are_apart(s, x, y, depth + 1);
    }
    s->alone = alone;
    s->objects = objects;
    return apart;
}

// Without a type, other values than objects are allowed too; but a schema that has properties alone is
// written as an object.
static bool writes_objects(const struct apart *s, const json_t *schema)
{
    return s->objects || schema_types(schema) == OBJECTS ||
           (s->alone && !json_object_get(schema, "type") && schema_types_told(schema) == OBJECTS);
}

// ---- schemas

// Whether every alternative of a's anyOf or oneOf is distinct from b, or one part of its allOf is.
static bool parts_are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    json_t *all = json_object_get(a, "allOf"), *any = json_object_get(a, "anyOf"), *part;
    bool each = true, one = false, alone = s->alone;
    size_t i;

    any = any ? any : json_object_get(a, "oneOf");
    s->alone = false;
    json_array_foreach(all, i, part)
    {
        one = one || are_apart(s, part, b, depth + 1);
    }
    s->alone = alone && !all && !schema_types_told(a);
    json_array_foreach(any, i, part)
    {
        each = each && are_apart(s, part, b, depth + 1);
    }
    s->alone = alone;
    return one || (each && json_array_size(any) > 0);
}

static bool are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    json_t *schemas[] = { a, b };
    bool alone = s->alone, apart = false;

    if (!spend(s, 1) || depth > 16)
        return false;
    for (int i = 0; i < 2; i++) {
        json_t *reference = json_object_get(schemas[i], "$ref");
        s->alone = s->alone && (!reference || !schema_asserts(schemas[i], 0));
        schemas[i] = reference ? schema_target(s->w, reference) : schemas[i];
    }
    a = schemas[0];
    b = schemas[1];
    if (json_is_object(a) && json_is_object(b)) {
        apart = !(schema_types(a) & schema_types(b)) || lists_other_values(s, a, b) ||
                lists_other_values(s, b, a);
        apart = apart || (writes_objects(s, a) && writes_objects(s, b) &&
                          (required_property_is_apart(s, a, b, depth) ||
                           (lacks_or_exceeds(s, a, b) && lacks_or_exceeds(s, b, a))));
        apart = apart || parts_are_apart(s, a, b, depth) || parts_are_apart(s, b, a, depth);
    }
    s->alone = alone;
    return apart;
}

static bool check_one_of(struct writer *w, const struct conjunction *c, uint32_t part, json_t *list)
{
    unsigned types = schema_types(c->at[part].schema), all = ANY_TYPE;
    struct apart s = { .w = w, .alone = types == ANY_TYPE || types == OBJECTS };

    for (uint32_t i = 0; i < c->n; i++)
        all &= c->at[i].flags & PART_NOT ? ANY_TYPE : schema_types(c->at[i].schema);
    s.objects = all == OBJECTS;
    for (uint32_t i = 0; i < c->n; i++)
        s.alone = s.alone && !schema_types_told(c->at[i].schema) &&
                  (i == part || (!schema_asserts(c->at[i].schema, PART_ANY_CHOSEN | PART_ONE_CHOSEN) &&
                                 !json_object_get(c->at[i].schema, "anyOf") &&
                                 !json_object_get(c->at[i].schema, "oneOf")));
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = i + 1; k < json_array_size(list); k++)
            if (!are_apart(&s, json_array_get(list, i), json_array_get(list, k), 0))
                return err_set(w->err, ERR_UNSUPPORTED,
                               "schema: oneOf: a text may fit both schema %zu and %zu; tell them apart by "
                               "type, const or a required "
                               "property, or use anyOf",
                               i, k);
    return true;
}

// The conjunction with one alternative of a part's anyOf or oneOf added.
static bool choose(struct writer *w, const struct conjunction *c, uint32_t part, json_t *alternative,
                   struct conjunction *chosen)
{
    uintptr_t flag = json_object_get(c->at[part].schema, "anyOf") && !(c->at[part].flags & PART_ANY_CHOSEN)
                         ? PART_ANY_CHOSEN
                         : PART_ONE_CHOSEN;
    *chosen = *c;
    chosen->at[part].flags |= flag;
    if (!schema_asserts(c->at[part].schema, (uint32_t)chosen->at[part].flags)) {
        memmove(&chosen->at[part], &chosen->at[part + 1], (chosen->n - part - 1) * sizeof *chosen->at);
        chosen->n--;
    }
    return schema_add(w, chosen, alternative, schema_inner_scope(&c->at[part]), 0);
}

bool schema_choice(struct writer *w, const struct conjunction *c, uint32_t part, const char *keyword,
                   struct buf *to)
{
    json_t *list = json_object_get(c->at[part].schema, keyword), *item;
    struct conjunction chosen;
    bool any = false;
    uint32_t rule;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(w, "anyOf and oneOf: want a list with at least one schema");
    if (!strcmp(keyword, "oneOf") && !check_one_of(w, c, part, list))
        return false;
    json_array_foreach(list, i, item)
    {
        if (choose(w, c, part, item, &chosen) && schema_rule(w, &chosen, &rule)) {
            buf_text(to, any ? " | " : "");
            schema_put_rule(w, to, rule);
            any = true;
        } else if (!schema_is_nothing(w)) {
            return false;
        }
    }
    return any || schema_nothing(w, "no alternative of anyOf or oneOf fits what stands beside it");
}
