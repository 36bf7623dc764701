// schema_choice.c - anyOf and oneOf.
//
// A grammar cannot take back what two alternatives both allow, so oneOf becomes anyOf, and that is exact only where no text fits two of
// its schemas. Here that is decided by what tells schemas apart in practice: their types, const and enum, a required property with
// different values, a property that one requires and the other never has. A oneOf that cannot be decided so is refused: its author
// may mean anyOf, and can say it.
#include <math.h>
#include "text/schema_writer.h"

enum { MAX_STEPS = 2000000 }; // of all comparisons of one oneOf; what is not decided then counts as undecidable

struct apart {
    struct writer *w;
    size_t steps;
};

static bool spend(struct apart *s, size_t steps)
{
    s->steps += steps;
    return s->steps < MAX_STEPS;
}

// ---- types: one bit each

enum { NULLS = 1, BOOLEANS = 2, INTEGERS = 4, REALS = 8, STRINGS = 16, ARRAYS = 32, OBJECTS = 64, ANY = 127 };

static unsigned bit_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = { { "null", NULLS },     { "boolean", BOOLEANS }, { "integer", INTEGERS }, { "number", INTEGERS | REALS },
                  { "string", STRINGS }, { "array", ARRAYS },     { "object", OBJECTS } };

    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name))
            return types[i].bits;
    return ANY;
}

static unsigned bit_of_value(const json_t *value)
{
    static const unsigned bits[] = { OBJECTS, ARRAYS, STRINGS, INTEGERS, REALS, BOOLEANS, BOOLEANS, NULLS };
    double x = json_number_value(value);

    return json_is_real(value) && fabs(x) < 1e15 && x == floor(x) ? INTEGERS : bits[json_typeof(value)];
}

static unsigned types_of(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = 0;

    for (size_t i = 0; i < json_array_size(type); i++)
        bits |= bit_of_name(json_string_value(json_array_get(type, i)));
    if (!type)
        bits = ANY;
    else if (json_is_string(type))
        bits = bit_of_name(json_string_value(type));
    return json_is_true(json_object_get(schema, "nullable")) ? bits | NULLS : bits;
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

// Every value that `a` lists is one that `b` excludes, by its list or its types.
static bool lists_other_values(struct apart *s, const json_t *a, const json_t *b)
{
    json_t *value, *other;

    if (!listed_value(a, 0) || json_is_true(json_object_get(a, "nullable")))
        return false;
    for (size_t i = 0; (value = listed_value(a, i)); i++) {
        bool excluded = !(types_of(b) & bit_of_value(value)) || listed_value(b, 0);
        if (bit_of_value(value) & (OBJECTS | ARRAYS)) // 1 and 1.0 within them are not looked for
            return false;
        for (size_t k = 0; (other = listed_value(b, k)) && spend(s, 1); k++)
            excluded = excluded && !same_value(value, other);
        if (!excluded || !spend(s, 1))
            return false;
    }
    return true;
}

// ---- objects

static bool may_have(struct apart *s, const json_t *schema, const char *name, bool as_written)
{
    const json_t *more = json_object_get(schema, "additionalProperties");
    bool open =
        as_written ? more && !json_is_false(more) : !json_is_false(more); // without it we write no others, though all are allowed

    spend(s, 1 + json_array_size(json_object_get(schema, "required")));
    return open || json_object_get(json_object_get(schema, "properties"), name) ||
           name_is_required(json_object_get(schema, "required"), name);
}

// No text that we write for `a` fits `b`, which requires a property that it lacks, or excludes one that `a` requires.
static bool lacks_or_exceeds(struct apart *s, const json_t *a, const json_t *b)
{
    const json_t *wanted = json_object_get(b, "required"), *had = json_object_get(a, "required");

    for (size_t i = 0; i < json_array_size(wanted) && spend(s, 1); i++)
        if (json_is_string(json_array_get(wanted, i)) && !may_have(s, a, json_string_value(json_array_get(wanted, i)), true))
            return true;
    for (size_t i = 0; i < json_array_size(had) && spend(s, 1); i++)
        if (json_is_string(json_array_get(had, i)) && !may_have(s, b, json_string_value(json_array_get(had, i)), false))
            return true;
    return false;
}

static bool are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth);

static bool required_property_is_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    json_t *required = json_object_get(a, "required"), *item;
    size_t i;

    json_array_foreach(required, i, item)
    {
        const char *name = json_is_string(item) ? json_string_value(item) : "";
        json_t *x = json_object_get(json_object_get(a, "properties"), name);
        json_t *y = json_object_get(json_object_get(b, "properties"), name);
        if (!spend(s, 1 + json_array_size(json_object_get(b, "required"))))
            return false;
        if (x && y && name_is_required(json_object_get(b, "required"), name) && are_apart(s, x, y, depth + 1))
            return true;
    }
    return false;
}

// Without a type others than objects are allowed too, but properties make us write an object.
static bool writes_objects(const json_t *schema)
{
    return types_of(schema) == OBJECTS ||
           (!json_object_get(schema, "type") && json_object_get(schema, "properties") && !json_object_get(schema, "nullable"));
}

// ---- schemas

// Every alternative of a's anyOf or oneOf is apart from b, or one part of its allOf is.
static bool parts_are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    json_t *all = json_object_get(a, "allOf"), *any = json_object_get(a, "anyOf"), *part;
    bool each = true;
    size_t i;

    any = any ? any : json_object_get(a, "oneOf");
    json_array_foreach(all, i, part)
    {
        if (are_apart(s, part, b, depth + 1))
            return true;
    }
    json_array_foreach(any, i, part)
    {
        each = each && are_apart(s, part, b, depth + 1);
    }
    return each && json_array_size(any) > 0 && !json_is_true(json_object_get(a, "nullable"));
}

static bool are_apart(struct apart *s, json_t *a, json_t *b, uint32_t depth)
{
    if (!spend(s, 1) || depth > 16)
        return false;
    if (json_object_get(a, "$ref"))
        a = schema_target(s->w, json_object_get(a, "$ref"));
    if (json_object_get(b, "$ref"))
        b = schema_target(s->w, json_object_get(b, "$ref"));
    if (!json_is_object(a) || !json_is_object(b))
        return false;
    if (!(types_of(a) & types_of(b)) || lists_other_values(s, a, b) || lists_other_values(s, b, a))
        return true;
    if (writes_objects(a) && writes_objects(b) &&
        (required_property_is_apart(s, a, b, depth) || (lacks_or_exceeds(s, a, b) && lacks_or_exceeds(s, b, a))))
        return true;
    return parts_are_apart(s, a, b, depth) || parts_are_apart(s, b, a, depth);
}

static bool check_one_of(struct writer *w, json_t *list)
{
    struct apart s = { .w = w };

    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = i + 1; k < json_array_size(list); k++)
            if (!are_apart(&s, json_array_get(list, i), json_array_get(list, k), 0))
                return err_set(
                    w->err, ERR_UNSUPPORTED,
                    "schema: oneOf: a text may fit both schema %zu and %zu; tell them apart by type, const or a required "
                    "property, or use anyOf",
                    i, k);
    return true;
}

bool schema_choice(struct writer *w, json_t *schema, const char *keyword, struct buf *to)
{
    json_t *list = json_object_get(schema, keyword), *item;
    uint32_t rule;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(w, "anyOf and oneOf: want a list with at least one schema");
    if (!schema_only(w, schema, keyword) || (!strcmp(keyword, "oneOf") && !check_one_of(w, list)))
        return false;
    json_array_foreach(list, i, item)
    {
        if (!schema_rule(w, item, &rule))
            return false;
        buf_printf(to, "%s%s-%u", i ? " | " : "", w->name, rule);
    }
    return true;
}
