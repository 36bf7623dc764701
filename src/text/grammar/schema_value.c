// schema_value.c - enum and const: the listed values that all other keywords allow.
//
// A listed value is checked against types, the other lists, and the keywords of strings and numbers. Keywords
// of arrays and objects beside listed arrays and objects are refused.
#include "text/grammar/schema_language.h"

static json_t *constant_of(const json_t *schema)
{
    return json_object_get(schema, "const");
}

static bool same_value(const json_t *a, const json_t *b)
{
    bool numbers = json_is_number(a) && json_is_number(b);

    return numbers ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

static bool is_listed(const json_t *list, const json_t *value)
{
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        if (same_value(item, value))
            return true;
    }
    return false;
}

bool schema_lists(const json_t *schema, const json_t *value)
{
    const json_t *list = json_object_get(schema, "enum"), *constant = constant_of(schema);

    return (list || constant) && schema_types(schema) & schema_type_of_value(value) &&
           (!list || is_listed(list, value)) && (!constant || same_value(constant, value));
}

bool schema_lists_type(const json_t *schema, unsigned types)
{
    json_t *list = json_object_get(schema, "enum"), *constant = constant_of(schema), *item;
    unsigned listed = constant ? schema_type_of_value(constant) : 0;
    size_t i;

    json_array_foreach(list, i, item)
    {
        listed |= schema_type_of_value(item);
    }
    return listed & types & schema_types(schema);
}

// Checks types and lists, inverted under `not`. source: the list that the value is from.
static bool fits_lists(const struct schema_part *part, const json_t *value, const json_t *source)
{
    const json_t *list = json_object_get(part->schema, "enum"), *constant = constant_of(part->schema);

    if (list == source && list && !constant && !(part->flags & PART_NOT))
        return schema_types(part->schema) & schema_type_of_value(value);
    if (list || constant)
        return schema_lists(part->schema, value) != (part->flags & PART_NOT);
    // of strings, or required names: checked elsewhere
    if (part->flags & PART_NOT && schema_types_told(part->schema))
        return true;
    bool fits = schema_types(part->schema) & schema_type_of_value(value);
    return fits != (part->flags & PART_NOT);
}

// The language of listed strings, made for the first one.
struct strings {
    bool is_made, is_nothing;
    struct language l;
    struct automaton m;
    const json_t *source;
};

static bool make_strings(struct writer *w, const struct conjunction *c, struct strings *s)
{
    struct regular *r = regular_create();
    enum automaton_result result = AUTOMATON_EMPTY;

    if (!r)
        return err_memory(w->err, "a schema");
    r->work = w->work;
    bool ok = schema_string_language(w, r, c, LANGUAGE_FORMATS, &s->l);
    if (ok)
        result = automaton_make(&s->m, r, s->l.term);
    w->work = r->work;
    regular_free(r);
    s->is_made = true;
    s->is_nothing = (!ok && schema_is_nothing(w)) || result == AUTOMATON_EMPTY;
    return result == AUTOMATON_TOO_LARGE ? schema_refuse(w, "enum beside a pattern that is too large")
                                         : ok || s->is_nothing;
}

static bool strings_take(struct writer *w, const struct conjunction *c, struct strings *s,
                         const json_t *value, bool *fits)
{
    struct str text = { json_string_value(value), json_string_length(value) };

    if (!s->is_made && !make_strings(w, c, s))
        return false;
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += ((uint8_t)text.at[i] & 0xc0) != 0x80;
    *fits = !s->is_nothing && n >= s->l.least && n <= s->l.most && automaton_takes(&s->m, text);
    return true;
}

static bool fits_keywords(struct writer *w, const struct conjunction *c, struct strings *s,
                          const json_t *value, bool *fits)
{
    unsigned type = schema_type_of_value(value);
    bool strings = false;

    for (uint32_t i = 0; i < c->n && *fits; i++) {
        const json_t *schema = c->at[i].schema;
        bool told = schema_types_told(schema) & type, number = type & (INTEGERS | REALS);
        w->work += 1 + (uint32_t)json_array_size(json_object_get(schema, "enum")) *
                           (json_object_get(schema, "enum") != s->source);
        if (w->work > REGULAR_MAX_WORK)
            return schema_refuse(w, "lists of enum beside each other are too long");
        *fits = fits_lists(&c->at[i], value, s->source);
        strings |= told && type == STRINGS;
        if (*fits && told && number && !schema_number_fits(w, schema, value, fits))
            return false;
        if (*fits && told && type & (ARRAYS | OBJECTS))
            return schema_refuse(w,
                                 "enum or const with arrays or objects, beside keywords that speak of them");
    }
    return !*fits || !strings || strings_take(w, c, s, value, fits);
}

struct listing {
    struct writer *w;
    const struct conjunction *c;
    struct strings strings;
    struct buf *to;
    bool any;
};

static bool write_value(struct listing *l, const json_t *value)
{
    bool fits = true;

    if (!fits_keywords(l->w, l->c, &l->strings, value, &fits))
        return false;
    if (fits) {
        buf_text(l->to, l->any ? " | " : "");
        schema_put_json(l->to, value);
        l->any = true;
    }
    return true;
}

bool schema_values(struct writer *w, const struct conjunction *c, struct buf *to)
{
    struct listing l = { .w = w, .c = c, .to = to };
    json_t *list = NULL, *constant = NULL;
    bool ok = true;

    for (uint32_t k = 0; k < c->n && !constant; k++) {
        if (c->at[k].flags & PART_NOT)
            continue;
        constant = constant_of(c->at[k].schema);
        list = list ? list : json_object_get(c->at[k].schema, "enum");
    }
    if (list && !json_is_array(list))
        return schema_refuse(w, "enum: want a list");
    l.strings.source = constant ? NULL : list;
    size_t n = constant ? 1 : json_array_size(list);
    for (size_t i = 0; i < n && ok; i++)
        ok = write_value(&l, constant ? constant : json_array_get(list, i));
    automaton_free(&l.strings.m);
    if (ok && !l.any)
        return schema_nothing(w,
                              "const, enum: no value of the list is of the type and all else that is asked");
    return ok;
}
