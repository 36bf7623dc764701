// schema_object.c - objects of a schema.
//
// Properties are written in the schema's order. Rule (i, n) has the properties from i on after n were
// written; n is counted only as far as minProperties and maxProperties need, otherwise it says whether a
// comma is due. So an optional property costs a few rules and no combinations. Unlisted names follow if the
// parts allow them: names that match no pattern of patternProperties, and names that match exactly one. A
// name may be written twice, so unlisted names count once at most.
#include "base/mem.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/schema_language.h"

enum { MAX_PATTERNS = 16, NO_PATTERN = UINT32_MAX };

struct property {
    const char *name;
    uint32_t rule; // of its value
    bool required;
};

struct object {
    struct writer *w;
    const struct conjunction *c;
    struct regular *r;
    struct property *at; // [n]
    uint32_t n, n_names; // n_names: including those that cannot be written
    const char **names;  // [n_names]
    const char *patterns[MAX_PATTERNS];
    uint32_t terms[MAX_PATTERNS]; // of patterns
    struct automaton automata[MAX_PATTERNS];
    uint32_t n_patterns;
    struct language keys; // by propertyNames
    struct automaton key_automaton;
    bool has_keys, more;     // more: unlisted names may be written
    uint32_t more_rule;      // of a pair with an unlisted name
    uint32_t least, most;    // pairs
    uint32_t counted;        // pairs are counted up to this
    uint32_t first;          // rule of (0, 0)
    uint32_t *required_from; // [n + 1] required properties from i on
};

// ---- keywords of the parts

static bool add_pattern(struct object *o, const char *pattern)
{
    uint32_t i = 0;

    while (i < o->n_patterns && strcmp(o->patterns[i], pattern) != 0)
        i++;
    if (i < o->n_patterns)
        return true;
    if (i == MAX_PATTERNS)
        return schema_refuse(o->w, "patternProperties: more than 16 patterns");
    o->patterns[o->n_patterns++] = pattern;
    return regular_pattern(o->r, str_from(pattern), &o->terms[i], o->w->err);
}

static bool read_patterns(struct object *o)
{
    const char *name;
    json_t *value;

    for (uint32_t i = 0; i < o->c->n; i++)
        json_object_foreach(json_object_get(o->c->at[i].schema, "patternProperties"), name, value)
        {
            if (!add_pattern(o, name))
                return false;
        }
    for (uint32_t i = 0; i < o->n_patterns; i++)
        if (automaton_make(&o->automata[i], o->r, o->terms[i]) == AUTOMATON_TOO_LARGE)
            return schema_refuse(o->w, "patternProperties: a pattern is too large");
    return true;
}

static bool read_key_schemas(struct object *o)
{
    struct conjunction keys = { .n = 0 };
    json_t *names;
    unsigned types;

    for (uint32_t i = 0; i < o->c->n; i++)
        if ((names = json_object_get(o->c->at[i].schema, "propertyNames")) &&
            !schema_add(o->w, &keys, names, NULL, 0))
            return false;
    for (uint32_t i = 0; i < keys.n; i++)
        if (json_object_get(keys.at[i].schema, "anyOf") || json_object_get(keys.at[i].schema, "oneOf"))
            return schema_refuse(o->w, "propertyNames with anyOf or oneOf is not supported");
    o->has_keys = keys.n > 0;
    if (!o->has_keys)
        return true;
    if (!schema_types_written(o->w, &keys, &types) ||
        !schema_string_language(o->w, o->r, &keys, LANGUAGE_FORMATS | LANGUAGE_LISTS, &o->keys))
        return false;
    if (!(types & STRINGS))
        return schema_nothing(o->w, "propertyNames: a name is a string");
    uint32_t term =
        regular_both(o->r, o->keys.term, regular_repeat(o->r, TERM_ANY, o->keys.least, o->keys.most));
    return automaton_make(&o->key_automaton, o->r, term) != AUTOMATON_TOO_LARGE ||
           schema_refuse(o->w, "propertyNames: its pattern is too large");
}

static bool read_counts(struct object *o)
{
    o->most = UINT32_MAX;
    for (uint32_t i = 0; i < o->c->n; i++) {
        const json_t *schema = o->c->at[i].schema;
        static const char *const refused[] = { "dependentRequired", "dependentSchemas", "dependencies" };
        if (o->c->at[i].flags & PART_NOT)
            continue;
        for (size_t k = 0; k < 3; k++)
            if (json_object_size(json_object_get(schema, refused[k])) > 0)
                return schema_refuse_keyword(o->w, refused[k]);
        if (!schema_count(o->w, schema, "minProperties", true, &o->least) ||
            !schema_count(o->w, schema, "maxProperties", false, &o->most))
            return false;
    }
    return o->least <= o->most || schema_nothing(o->w, "minProperties is above maxProperties");
}

// ---- one property

// Whether the part has a schema for a name (NULL: an unlisted one), which matches the patterns in the mask.
static bool speaks_of(const struct object *o, const struct schema_part *part, const char *name, uint32_t mask)
{
    const json_t *patterns = json_object_get(part->schema, "patternProperties");

    if (name && json_object_get(json_object_get(part->schema, "properties"), name))
        return true;
    for (uint32_t i = 0; i < o->n_patterns; i++)
        if (mask >> i & 1 && json_object_get(patterns, o->patterns[i]))
            return true;
    return false;
}

static bool add_from_part(struct object *o, const struct schema_part *part, const char *name, uint32_t mask,
                          struct conjunction *to)
{
    json_t *patterns = json_object_get(part->schema, "patternProperties");
    json_t *own = name ? json_object_get(json_object_get(part->schema, "properties"), name) : NULL;
    json_t *rest = json_object_get(part->schema, "additionalProperties");

    if (own && !schema_add(o->w, to, own, NULL, 0))
        return false;
    for (uint32_t i = 0; i < o->n_patterns; i++) {
        json_t *value = mask >> i & 1 ? json_object_get(patterns, o->patterns[i]) : NULL;
        if (value && !schema_add(o->w, to, value, NULL, 0))
            return false;
    }
    return !rest || speaks_of(o, part, name, mask) || schema_add(o->w, to, rest, NULL, 0);
}

static bool is_evaluated(const struct object *o, uint32_t of, const char *name, uint32_t mask)
{
    for (uint32_t i = 0; i < o->c->n; i++) {
        const struct schema_part *part = &o->c->at[i];
        bool all = json_object_get(part->schema, "additionalProperties") ||
                   (i != of && json_object_get(part->schema, "unevaluatedProperties"));
        if (!(part->flags & PART_NOT) && (all || speaks_of(o, part, name, mask)) &&
            schema_in_scope(o->c, i, of))
            return true;
    }
    return false;
}

// The rule of the schemas that apply to this property's value.
static bool property_rule(struct object *o, const char *name, uint32_t mask, uint32_t *rule)
{
    struct conjunction value = { .n = 0 };

    for (uint32_t i = 0; i < o->c->n; i++) {
        const struct schema_part *part = &o->c->at[i];
        json_t *rest = json_object_get(part->schema, "unevaluatedProperties");
        if (part->flags & PART_NOT) {
            if (name && schema_name_is_listed(json_object_get(part->schema, "required"), name))
                return schema_nothing(o->w, "not: the property is not allowed");
            continue;
        }
        if (!add_from_part(o, part, name, mask, &value))
            return false;
        if (rest && !is_evaluated(o, i, name, mask) && !schema_add(o->w, &value, rest, NULL, 0))
            return false;
    }
    return schema_rule(o->w, &value, rule);
}

static bool add_name(struct object *o, const char *name, bool required)
{
    struct property p = { .name = name };
    uint32_t mask = 0;

    o->names[o->n_names++] = name;
    for (uint32_t i = 0; i < o->c->n; i++)
        p.required |=
            !(o->c->at[i].flags & PART_NOT) &&
            (required || schema_name_is_listed(json_object_get(o->c->at[i].schema, "required"), name));
    for (uint32_t i = 0; i < o->n_patterns; i++)
        mask |= (uint32_t)automaton_takes(&o->automata[i], str_from(name)) << i;
    bool ok = !o->has_keys || automaton_takes(&o->key_automaton, str_from(name)) ||
              schema_nothing(o->w, "required, properties: a name that propertyNames does not allow");
    if (ok && property_rule(o, name, mask, &p.rule))
        o->at[o->n++] = p;
    else if (p.required && o->w->nothing)
        return err_prefix(o->w->err, "the required property '%.60s'", name);
    else if (!schema_is_nothing(o->w))
        return false;
    return true;
}

// All names in order: properties, then names that are only required.
static bool read_names(struct object *o)
{
    json_t *seen = json_object(), *value;
    const char *name;
    bool ok = seen != NULL;
    size_t k;

    for (uint32_t i = 0; ok && i < o->c->n; i++) {
        json_object_foreach(json_object_get(o->c->at[i].schema, "properties"), name, value)
        {
            if (!ok || json_object_get(seen, name))
                continue;
            json_object_set_new(seen, name, json_true());
            ok = add_name(o, name, false);
        }
    }
    for (uint32_t i = 0; ok && i < o->c->n; i++) {
        json_array_foreach(json_object_get(o->c->at[i].schema, "required"), k, value)
        {
            name = json_string_value(value);
            if (!ok || !name || json_object_get(seen, name))
                continue;
            json_object_set_new(seen, name, json_true());
            ok = add_name(o, name, !(o->c->at[i].flags & PART_NOT));
        }
    }
    json_decref(seen);
    return ok;
}

// ---- unlisted properties

// Whether unlisted names may be written: no part lists any, or a part has a schema for them.
static bool others_may_come(const struct object *o)
{
    bool open = true, said = false;

    for (uint32_t i = 0; i < o->c->n; i++) {
        const json_t *schema = o->c->at[i].schema;
        if (o->c->at[i].flags & PART_NOT)
            continue;
        open = open && json_object_size(json_object_get(schema, "properties")) == 0 &&
               json_array_size(json_object_get(schema, "required")) == 0;
        said |= json_object_get(schema, "additionalProperties") ||
                json_object_get(schema, "unevaluatedProperties");
    }
    return said || (open && o->n_patterns == 0);
}

// Names that match this pattern alone, or none.
static struct language other_names(struct object *o, uint32_t pattern)
{
    struct language l = o->has_keys ? o->keys : (struct language){ TERM_ALL, 0, UINT32_MAX };
    const uint32_t base = o->r->n_stack;

    for (uint32_t i = 0; i < o->n_names; i++)
        regular_push(o->r, regular_text(o->r, str_from(o->names[i])));
    if (!o->r->full)
        l.term = regular_both(o->r, l.term,
                              regular_not(o->r, regular_join(o->r, REGULAR_EITHER, base, o->n_names)));
    o->r->n_stack = base;
    for (uint32_t i = 0; i < o->n_patterns; i++)
        l.term = regular_both(o->r, l.term, i == pattern ? o->terms[i] : regular_not(o->r, o->terms[i]));
    return l;
}

static bool write_other_pair(struct object *o, uint32_t pattern, struct buf *body)
{
    struct language names = other_names(o, pattern);
    uint32_t rule;

    if (!property_rule(o, NULL, pattern == NO_PATTERN ? 0 : 1u << pattern, &rule))
        return false;
    if (o->r->full)
        return schema_refuse(o->w, "its properties have too many or too long names");
    if (names.term == TERM_ALL && names.least == 0 && names.most == UINT32_MAX) {
        buf_text(body, "string");
    } else {
        buf_text(body, "\"\\\"\" ");
        if (!schema_language(o->w, o->r, names, body))
            return false;
        buf_text(body, " \"\\\"\"");
    }
    buf_text(body, " \":\" gap ");
    schema_put_rule(o->w, body, rule);
    return true;
}

static bool write_other_pairs(struct object *o)
{
    struct buf body = { 0 };
    bool ok = schema_rule_new(o->w, &o->more_rule);

    for (uint32_t i = others_may_come(o) ? 0 : 1; ok && i <= o->n_patterns; i++) {
        struct buf one = { 0 };
        if (write_other_pair(o, i ? i - 1 : NO_PATTERN, &one)) {
            buf_printf(&body, "%s%s", o->more ? " | " : "", buf_as_str(&one).at);
            o->more = true;
        } else {
            ok = schema_is_nothing(o->w);
        }
        body.failed |= one.failed;
        buf_free(&one);
    }
    if (ok && o->more)
        return schema_rule_write(o->w, o->more_rule, &body);
    buf_free(&body);
    return ok;
}

// ---- rules

static void write_key(struct buf *to, const char *name)
{
    json_t *key = json_string(name);

    if (key)
        schema_put_json(to, key);
    else
        to->failed = true;
    json_decref(key);
}

static uint32_t rule_at(const struct object *o, uint32_t i, uint32_t n)
{
    return o->first + i * (o->counted + 1) + (n < o->counted ? n : o->counted);
}

// Whether an object may end here.
static bool is_live(const struct object *o, uint32_t i, uint32_t n)
{
    uint32_t can = n + (o->n - i) + o->more;

    return (can >= o->least || n >= o->least) &&
           (o->most == UINT32_MAX || n + o->required_from[i] <= o->most);
}

static void write_end(const struct object *o, uint32_t n, struct buf *body)
{
    uint32_t least = n < o->least ? o->least - n : 0, most = o->most == UINT32_MAX ? o->most : o->most - n;

    if (!o->more || most == 0) {
        buf_text(body, n ? "ws" : "\"\"");
        return;
    }
    if (n == 0) {
        buf_text(body, least ? "" : "(");
        schema_put_rule(o->w, body, o->more_rule);
        least -= least > 0;
        most -= most != UINT32_MAX;
    }
    buf_text(body, " (\",\" ws ");
    schema_put_rule(o->w, body, o->more_rule);
    buf_text(body, ")");
    gbnf_times(body, least, most);
    buf_text(body, n == 0 && o->least == 0 ? " ws)?" : " ws");
}

// The properties from i on, after n.
static bool write_from(struct object *o, uint32_t i, uint32_t n)
{
    const struct property *p = &o->at[i];
    struct buf body = { 0 };
    const char *between = "";

    if (i == o->n) {
        write_end(o, n, &body);
        return schema_rule_write(o->w, rule_at(o, i, n), &body);
    }
    if (is_live(o, i + 1, n + 1)) {
        buf_text(&body, n ? "\",\" ws " : "");
        write_key(&body, p->name);
        buf_text(&body, " \":\" gap ");
        schema_put_rule(o->w, &body, p->rule);
        buf_text(&body, " ");
        schema_put_rule(o->w, &body, rule_at(o, i + 1, n + 1));
        between = " | ";
    }
    if (!p->required && is_live(o, i + 1, n)) {
        buf_text(&body, between);
        schema_put_rule(o->w, &body, rule_at(o, i + 1, n));
    }
    return schema_rule_write(o->w, rule_at(o, i, n), &body);
}

static bool write_rules(struct object *o, struct buf *to)
{
    for (uint32_t i = o->n; i-- > 0;)
        o->required_from[i] = o->required_from[i + 1] + o->at[i].required;
    o->least = o->least > o->required_from[0] ? o->least : 0;
    o->most = o->more || o->most < o->n ? o->most : UINT32_MAX;
    if (o->least > o->n + 1 && o->more)
        return schema_refuse(
            o->w, "minProperties above the number of named properties: names could be written twice");
    if (!is_live(o, 0, 0))
        return schema_nothing(
            o->w, "there are fewer properties than minProperties, or more required than maxProperties");
    o->counted = o->most != UINT32_MAX ? o->most : o->least;
    o->counted = o->counted ? o->counted : 1;
    o->counted = o->counted < o->n + 1 ? o->counted : o->n + 1;
    o->first = o->w->n_rules + 1;
    if ((uint64_t)(o->n + 1) * (o->counted + 1) >= SCHEMA_MAX_RULES - o->w->n_rules)
        return schema_refuse(o->w, "it has more than 50000 parts");
    o->w->n_rules += (o->n + 1) * (o->counted + 1);
    for (uint32_t i = 0; i <= o->n; i++)
        for (uint32_t n = 0; n <= o->counted && n <= i; n++)
            if (is_live(o, i, n) && !write_from(o, i, n))
                return false;
    buf_text(to, "\"{\" ws ");
    schema_put_rule(o->w, to, o->first);
    return buf_text(to, " \"}\"");
}

static void release(struct object *o)
{
    for (uint32_t i = 0; i < o->n_patterns; i++)
        automaton_free(&o->automata[i]);
    automaton_free(&o->key_automaton);
    regular_free(o->r);
    mem_free(o->at);
    mem_free(o->names);
    mem_free(o->required_from);
}

// An upper bound of the number of names; UINT32_MAX after an error.
static uint32_t count_names(const struct object *o)
{
    size_t n = 0;

    for (uint32_t i = 0; i < o->c->n; i++) {
        const json_t *properties = json_object_get(o->c->at[i].schema, "properties");
        const json_t *required = json_object_get(o->c->at[i].schema, "required");
        const json_t *patterns = json_object_get(o->c->at[i].schema, "patternProperties");
        if ((properties && !json_is_object(properties)) || (patterns && !json_is_object(patterns)) ||
            (required && !json_is_array(required))) {
            schema_refuse(o->w,
                          "properties, patternProperties: want an object, and required: a list of names");
            return UINT32_MAX;
        }
        for (size_t k = 0; k < json_array_size(required); k++)
            if (!json_is_string(json_array_get(required, k))) {
                schema_refuse(o->w, "required: want a list of names");
                return UINT32_MAX;
            }
        n += json_object_size(properties) + json_array_size(required);
    }
    if (n < SCHEMA_MAX_RULES)
        return (uint32_t)n;
    schema_refuse(o->w, "it has more than 50000 parts");
    return UINT32_MAX;
}

bool schema_object(struct writer *w, const struct conjunction *c, struct buf *to)
{
    struct object *o;
    uint32_t told = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        told |= schema_types_told(c->at[i].schema) & OBJECTS;
        if (c->at[i].flags & PART_NOT && schema_lists_type(c->at[i].schema, OBJECTS))
            return schema_refuse(w, "'not' with objects is not supported");
    }
    if (!told)
        return buf_text(to, "object");
    o = mem_alloc(sizeof *o);
    if (!o)
        return err_memory(w->err, "a schema");
    *o = (struct object){ .w = w, .c = c, .r = regular_create() };
    uint32_t n = count_names(o);
    bool ok = n != UINT32_MAX;
    if (ok) {
        o->at = mem_alloc_array(n + 1, sizeof *o->at);
        o->names = mem_alloc_array(n + 1, sizeof *o->names);
        o->required_from = mem_alloc_array(n + 2, sizeof *o->required_from);
        ok = (o->r && o->at && o->names && o->required_from) || err_memory(w->err, "a schema");
    }
    if (ok)
        o->r->work = w->work;
    ok = ok && read_counts(o) && read_patterns(o) && read_key_schemas(o) && read_names(o) &&
         write_other_pairs(o) && write_rules(o, to);
    release(o);
    mem_free(o);
    return ok;
}
