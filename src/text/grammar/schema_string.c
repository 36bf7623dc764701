// schema_string.c - strings of a schema: pattern, format, lengths, and what `not` excludes.
//
// Formats are patterns that allow what RFC 3339, 3986, 4122, 4291 and 5321 allow, or less. An unknown format
// is an annotation, as the standard says; so is a format that excludes every string which the pattern and
// lengths allow.
#include "text/grammar/schema_language.h"

#define DATE                                                                                 \
    "((\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|" \
    "\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"       \
    "02-(0[1-9]|1\\d|2[0-8])))"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define ATOM  "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define SHORT "[a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?"
#define HOST  "(" LABEL "(\\." LABEL "){0,2}|" SHORT "(\\." SHORT "){3,6})" // at most 253 characters
#define EMAIL                                                                                                \
    "^" ATOM "(\\." ATOM ")*@([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\\.)+[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])" \
    "?$"
#define BYTE    "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define H       "[0-9a-fA-F]{1,4}"
#define PART    "([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})" // of a URI's path
#define REGNAME "([a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2})"
#define BEHIND  "(/" PART "*)*(\\?(" PART "|[/?])*)?(#(" PART "|[/?])*)?"
#define URI     "[a-zA-Z][a-zA-Z0-9+.-]*:(//" REGNAME "+(:\\d{1,5})?" BEHIND "|" PART "+" BEHIND ")"
#define RELATIVE                                                                                       \
    "(//" REGNAME "+(:\\d{1,5})?" BEHIND "|/(" PART "+)?" BEHIND "|[a-zA-Z0-9._~-]+" BEHIND "|#(" PART \
    "|[/?])*)"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", "^" DATE "$" },
    { "time", "^" TIME "$" },
    { "date-time", "^" DATE "T" TIME "$" },
    { "duration", "^P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?"
                  "|\\d+S))?|T(\\d+H(\\d+M("
                  "\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))$" },
    { "uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" },
    { "email", EMAIL },
    { "idn-email", EMAIL },
    { "hostname", "^" HOST "$" },
    { "idn-hostname", "^" HOST "$" },
    { "ipv4", "^" BYTE "(\\." BYTE "){3}$" },
    { "ipv6", "^((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H
              ":){1,4}(:" H "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H
              "){1,6}|:(:" H "){1,7}|::|::[fF]{4}:" BYTE "(\\." BYTE "){3})$" },
    { "uri", "^" URI "$" },
    { "iri", "^" URI "$" },
    { "uri-reference", "^(" URI "|" RELATIVE ")$" },
    { "iri-reference", "^(" URI "|" RELATIVE ")$" },
    { "uri-template", "^(?!.*')(" URI "|" RELATIVE ")$" },
    { "json-pointer", "^(/([^~/]|~[01])*)*$" },
    { "relative-json-pointer", "^(0|[1-9]\\d*)(#|(/([^~/]|~[01])*)*)$" },
};

static bool add_pattern(struct writer *w, struct regular *r, struct str pattern, uint32_t *term)
{
    uint32_t one;

    if (!regular_pattern(r, pattern, &one, w->err))
        return false;
    *term = regular_both(r, *term, one);
    return true;
}

static bool add_format(struct writer *w, struct regular *r, const json_t *format, uint32_t *term)
{
    const char *name = json_string_value(format);

    if (name && !strcmp(name, "regex"))
        return schema_refuse(w, "format 'regex' is not supported");
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name))
            return add_pattern(w, r, str_from(formats[i].pattern), term);
    return true;
}

// The strings of enum and const.
static uint32_t listed_strings(struct regular *r, const json_t *schema)
{
    json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    size_t n = constant ? 1 : json_array_size(list);
    const uint32_t base = r->n_stack;

    for (size_t i = 0; i < n; i++) {
        json_t *value = constant ? constant : json_array_get(list, i);
        if (json_is_string(value))
            regular_push(
                r, regular_text(r, (struct str){ json_string_value(value), json_string_length(value) }));
    }
    uint32_t term = r->full ? TERM_NOTHING : regular_join(r, REGULAR_EITHER, base, r->n_stack - base);
    r->n_stack = base;
    return term;
}

// The strings of one schema, without its `not`.
static bool part_language(struct writer *w, struct regular *r, const json_t *schema, unsigned what,
                          struct language *l)
{
    json_t *pattern = json_object_get(schema, "pattern");

    *l = (struct language){ TERM_ALL, 0, UINT32_MAX };
    if (what & LANGUAGE_LISTS && (json_object_get(schema, "enum") || json_object_get(schema, "const")))
        l->term = listed_strings(r, schema);
    if (pattern && !json_is_string(pattern))
        return schema_refuse(w, "pattern: want a string");
    if (pattern &&
        !add_pattern(w, r, (struct str){ json_string_value(pattern), json_string_length(pattern) }, &l->term))
        return false;
    if (what & LANGUAGE_FORMATS && !add_format(w, r, json_object_get(schema, "format"), &l->term))
        return false;
    return schema_count(w, schema, "minLength", true, &l->least) &&
           schema_count(w, schema, "maxLength", false, &l->most);
}

bool schema_string_language(struct writer *w, struct regular *r, const struct conjunction *c, unsigned what,
                            struct language *all)
{
    struct language l;

    *all = (struct language){ TERM_ALL, 0, UINT32_MAX };
    for (uint32_t i = 0; i < c->n; i++) {
        const struct schema_part *part = &c->at[i];
        bool is_listed = what & LANGUAGE_LISTS &&
                         (json_object_get(part->schema, "enum") || json_object_get(part->schema, "const"));
        bool concerns = is_listed || schema_types_told(part->schema) & STRINGS;
        if (part->flags & PART_NOT && (!concerns || !(schema_types(part->schema) & STRINGS)))
            continue; // the excluded value is no string
        if (!part_language(w, r, part->schema, part->flags & PART_NOT ? what & LANGUAGE_LISTS : what, &l))
            return false;
        if (part->flags & PART_NOT) {
            l.term = regular_both(r, l.term, regular_repeat(r, TERM_ANY, l.least, l.most));
            l = (struct language){ regular_not(r, l.term), 0, UINT32_MAX };
        }
        all->term = regular_both(r, all->term, l.term);
        all->least = l.least > all->least ? l.least : all->least;
        all->most = l.most < all->most ? l.most : all->most;
    }
    if (all->least > all->most)
        return schema_nothing(w, "minLength is above maxLength");
    return !r->full || schema_refuse(w, "pattern: it is too large");
}

static bool write_strings(struct writer *w, const struct conjunction *c, unsigned what, struct buf *to)
{
    struct regular *r = regular_create();
    struct language l;

    if (!r)
        return err_memory(w->err, "a schema");
    r->work = w->work;
    bool ok = schema_string_language(w, r, c, what, &l) && buf_text(to, "\"\\\"\" ") &&
              schema_language(w, r, l, to) && buf_text(to, " \"\\\"\"");
    w->work = r->work;
    regular_free(r);
    return ok;
}

// A key made of the keywords that distinguish strings.
static bool keywords_text(const struct conjunction *c, struct buf *text)
{
    static const char *const names[] = { "enum",   "const",     "type",     "pattern",
                                         "format", "minLength", "maxLength" };

    for (uint32_t i = 0; i < c->n; i++) {
        buf_text(text, c->at[i].flags & PART_NOT ? "!" : "&");
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            buf_printf(text, "%zu", k);
            schema_json_text(text, json_object_get(c->at[i].schema, names[k]));
        }
    }
    return !text->failed;
}

static bool write_rule(struct writer *w, const struct conjunction *c, uint32_t rule)
{
    struct buf body = { 0 };
    bool ok = write_strings(w, c, LANGUAGE_LISTS | LANGUAGE_FORMATS, &body);

    if (!ok && w->nothing) {
        struct err why = *w->err;
        schema_is_nothing(w);
        buf_free(&body);
        body = (struct buf){ 0 };
        ok = write_strings(w, c, LANGUAGE_LISTS, &body);
        *w->err = !ok && w->nothing ? why : *w->err;
    }
    if (ok)
        return schema_rule_write(w, rule, &body);
    buf_free(&body);
    return false;
}

bool schema_string(struct writer *w, const struct conjunction *c, struct buf *to)
{
    uint32_t rule = 0;
    bool plain = true;

    for (uint32_t i = 0; i < c->n; i++)
        plain = plain && !(schema_types_told(c->at[i].schema) & STRINGS) &&
                (!(c->at[i].flags & PART_NOT) ||
                 !(json_object_get(c->at[i].schema, "enum") || json_object_get(c->at[i].schema, "const")));
    if (plain)
        return buf_text(to, "string");
    struct buf key = { 0 };
    bool ok = keywords_text(c, &key) || err_memory(w->err, "a schema");
    json_t *known = ok ? json_object_getn(w->strings, key.at, key.n) : NULL;
    if (known)
        rule = (uint32_t)json_integer_value(known);
    else
        ok = ok && schema_rule_new(w, &rule) && write_rule(w, c, rule);
    if (ok && !known)
        json_object_setn_new(w->strings, key.at, key.n, json_integer(rule));
    buf_free(&key);
    if (ok)
        schema_put_rule(w, to, rule);
    return ok;
}
