// schema_scalar.c - strings and numbers of a schema.
#include <math.h>
#include "text/schema_parts.h"
#include "text/schema_writer.h"

// ---- strings

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", "^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])$" },
    { "time", "^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$" },
    { "date-time", "^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?"
                   "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$" },
    { "duration",
      "^P(\\d{1,6}W|\\d{1,6}Y(\\d{1,6}M)?(\\d{1,6}D)?|\\d{1,6}M(\\d{1,6}D)?|\\d{1,6}D|T\\d{1,6}[HMS]|\\d{1,6}DT\\d{1,6}[HMS])$" },
    { "uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$" },
    { "email", "^[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,32}){0,3}@([a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?\\.){1,4}[a-zA-Z]"
               "{2,12}$" },
    { "hostname", "^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){0,8}$" },
    { "ipv4", "^(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}$" },
    { "ipv6", "^[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){7}$" },
    { "uri", "^[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[a-zA-Z0-9._~-]{1,200}(:\\d{1,5})?(/"
             "[a-zA-Z0-9._~!&'()*+,;=:@-]*)*(\\?[a-zA-Z0-9._~!&'()*+,;=:@/?-]*)?$" },
};

static bool write_quoted_pattern(struct writer *w, struct str pattern, struct buf *to)
{
    buf_text(to, "\"\\\"\" ");
    bool ok = schema_pattern(pattern, to, w->err);
    buf_text(to, " \"\\\"\"");
    return ok;
}

static bool write_format(struct writer *w, json_t *format, struct buf *to)
{
    const char *name = json_string_value(format);

    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name))
            return write_quoted_pattern(w, str_from(formats[i].pattern), to);
    return err_set(w->err, ERR_UNSUPPORTED, "schema: format '%.60s' is not supported", name ? name : "?");
}

bool schema_string(struct writer *w, json_t *schema, struct buf *to)
{
    json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    uint32_t least, most;

    if (!schema_only(w, schema, "type minLength maxLength pattern format") || !schema_count(w, schema, "minLength", 0, &least) ||
        !schema_count(w, schema, "maxLength", UINT32_MAX, &most))
        return false;
    bool sized = least > 0 || most != UINT32_MAX;
    if ((pattern != NULL) + (format != NULL) + sized > 1)
        return schema_refuse(w, "pattern, format and minLength or maxLength exclude each other");
    if (format)
        return write_format(w, format, to);
    if (pattern && !json_is_string(pattern))
        return schema_refuse(w, "pattern: want a string");
    if (pattern)
        return write_quoted_pattern(w, (struct str){ json_string_value(pattern), json_string_length(pattern) }, to);
    if (!sized)
        return buf_text(to, "string");
    if (least > most)
        return schema_refuse(w, "minLength is above maxLength");
    buf_text(to, "\"\\\"\" char");
    gbnf_times(to, least, most);
    return buf_text(to, " \"\\\"\"");
}

// ---- numbers

static bool read_bound(const struct writer *w, json_t *value, const char *name, bool integers, bool up, int64_t *bound)
{
    double x = json_number_value(value);

    if (!json_is_number(value))
        return err_set(w->err, ERR_INPUT, "schema: %s: want a number", name);
    if (json_is_integer(value)) {
        *bound = json_integer_value(value);
        return true;
    }
    if (x != floor(x) && !integers)
        return err_set(w->err, ERR_UNSUPPORTED, "schema: %s is %g; for numbers only whole bounds are supported", name, x);
    if (!(fabs(x) < 1e16))
        return err_set(w->err, ERR_UNSUPPORTED, "schema: %s is %g; at most 16 digits are supported", name, x);
    *bound = (int64_t)(up ? ceil(x) : floor(x));
    return true;
}

// Numbers are written with at most 16 digits, which these hold; a narrower one has to be said by bounds.
static bool format_is_a_width(const struct writer *w, json_t *format)
{
    const char *name = json_string_value(format);

    return !format || (name && word_is_listed(name, "int64 float double number")) ||
           err_set(w->err, ERR_UNSUPPORTED, "schema: format '%.60s' of a number is not supported; use minimum and maximum",
                   name ? name : "?");
}

bool schema_numeric(struct writer *w, json_t *schema, bool integers, struct buf *to)
{
    static const char *const names[] = { "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum" };
    struct number_bounds b = { 0 };
    json_t *step = json_object_get(schema, "multipleOf");

    if (!schema_only(w, schema, "type minimum maximum exclusiveMinimum exclusiveMaximum multipleOf format"))
        return false;
    if (!format_is_a_width(w, json_object_get(schema, "format")))
        return false;
    if (step && !(integers && json_number_value(step) == 1))
        return schema_refuse(w, "multipleOf is not supported");
    for (int i = 0; i < 4; i++) {
        json_t *value = json_object_get(schema, names[i]);
        bool *has = i < 2 ? &b.has_least : &b.has_most;
        if (!value)
            continue;
        if (*has)
            return schema_refuse(w, "a bound and its exclusive form at once are not supported");
        if (!read_bound(w, value, names[i], integers, i == 0 || i == 3, i < 2 ? &b.least : &b.most))
            return false;
        *has = true;
        *(i < 2 ? &b.open_least : &b.open_most) = i & 1;
    }
    if (!b.has_least && !b.has_most)
        return buf_text(to, integers ? "integer" : "number");
    return integers ? schema_integer(&b, to, w->err) : schema_number(&b, to, w->err);
}
