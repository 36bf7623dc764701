// template_filter.c - filters on single values. Filters on sequences are in template_sequence.c; filters that
// are also methods of strings in template_text.c.
//
// Names, parameters and results are those of Python's Jinja, except tojson, which is transformers' version.
// Left out because no chat template uses them: pprint, random, striptags, urlize, wordwrap, xmlattr,
// filesizeformat. There is no autoescape: safe and escape mark a string as safe, and only text that is added
// to it afterwards is escaped.
#include <math.h>
#include "text/template/template_builtin.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

bool filter_string(struct render *r, struct call *c)
{
    *c->out = *c->self;
    c->out->safe |= c->mode;
    return render_spend(r, 1);
}

bool filter_replace(struct render *r, struct call *c)
{
    struct value text = *c->self;

    text.safe = false; // unlike the method, the filter escapes nothing
    return string_replace(r, text, (const struct value[]){ *c->arg[0], *c->arg[1] }, c->number[2], c->out);
}

bool filter_default(struct render *r, struct call *c)
{
    bool use = c->self->kind == VALUE_UNDEFINED || (c->number[1] && !value_truth(*c->self));

    *c->out = !use ? *c->self : c->arg[0]->kind != VALUE_ABSENT ? *c->arg[0] : value_string(STR(""), false);
    return render_spend(r, 1);
}

bool filter_escape(struct render *r, struct call *c)
{
    struct builder b = builder_start(r);
    struct value text = *c->self;

    b.safe = true;
    text.safe &= !c->mode;
    if (!builder_put_value(&b, text))
        return false;
    *c->out = builder_value(&b);
    return true;
}

bool filter_indent(struct render *r, struct call *c)
{
    struct builder b = builder_start(r);
    struct value lines, indent = *c->arg[0], newline = value_string(STR("\n"), false), text = *c->self;
    int64_t width = 4;

    b.safe = newline.safe = text.safe;
    if ((indent.kind != VALUE_STRING && (!call_argument_int(r, &indent, 4, &width) ||
                                         !string_pad(r, value_string(STR(""), false), width, 0, &indent))) ||
        !value_binary(r, 0, (const struct value[]){ text, newline }, &text) ||
        !string_lines(r, text, false, &lines))
        return false;
    indent.safe = text.safe; // it is never escaped
    for (size_t i = 0; i < lines.list->n; i++) {
        struct value line = lines.list->at[i];
        bool wanted = i == 0 ? c->number[1] : c->number[2] || line.s.n;
        if (!render_spend(r, 1) || (i && !builder_put_value(&b, newline)) ||
            (wanted && !builder_put_value(&b, indent)) || !builder_put_value(&b, line))
            return false;
    }
    *c->out = builder_value(&b);
    return true;
}

bool filter_truncate(struct render *r, struct call *c)
{
    struct value text = *c->self, end = *c->arg[2], parts;
    int64_t length = c->number[0], leeway = c->number[3], n, n_end;

    end = end.kind == VALUE_ABSENT ? value_string(STR("..."), false) : end;
    if (!call_argument_string(r, &end, &end) || !value_length(r, text, &n) || !value_length(r, end, &n_end))
        return false;
    if (length < n_end || leeway < 0 || length > INT64_MAX - leeway)
        return render_fail(r, ERR_INPUT, "truncate: expected length >= %lld and leeway >= 0",
                           (long long)n_end);
    *c->out = text;
    if (n <= length + leeway)
        return true;
    text = value_part(text, 0, char_offset(text.s, (size_t)(length - n_end)));
    if (!c->number[1]) {
        const struct split last = { .separator = value_string(STR(" "), false),
                                    .limit = 1,
                                    .from_right = true };
        if (!string_split(r, text, &last, &parts))
            return false;
        text = parts.list->at[0];
    }
    return value_binary(r, 0, (const struct value[]){ text, end }, c->out);
}

bool filter_wordcount(struct render *r, struct call *c)
{
    int64_t n = 0;
    bool inside = false;

    for (size_t at = 0; at < c->self->s.n;) {
        bool word = char_is_word(char_next(c->self->s, &at));
        n += word && !inside;
        inside = word;
    }
    *c->out = value_int(n);
    return render_spend(r, 1);
}

bool filter_urlencode(struct render *r, struct call *c)
{
    struct builder b = builder_start(r);
    struct value text = *c->self;

    for (size_t i = 0; i < text.s.n; i++) {
        unsigned char byte = (unsigned char)text.s.at[i];
        char hex[4];
        bool safe = (char_is_name(byte) && byte < 0x80) || (byte && strchr("-.~/", byte));
        snprintf(hex, sizeof hex, "%%%02X", byte);
        if (!builder_put(&b, safe ? str_from_to(text.s, i, i + 1) : (struct str){ hex, 3 },
                         text.marks ? text.marks[i] : text.user))
            return false;
    }
    *c->out = builder_value(&b);
    return true;
}

// --- numbers ---

static bool float_to_int(struct render *r, double f, int64_t *out)
{
    if (!(f > -9.2e18 && f < 9.2e18))
        return render_fail(r, ERR_LIMIT, "a float does not fit a whole number of 64 bits");
    *out = (int64_t)f;
    return true;
}

// Python's float(text): blanks around, a sign, underscores are not supported.
static bool parse_float(struct str text, double *f)
{
    text = char_strip(text, CHAR_STRIP_BOTH);
    if (text.n > 1 && text.at[0] == '+' && text.at[1] != '-')
        text = str_from_to(text, 1, text.n);
    return !memchr(text.at, 'x', text.n) && !memchr(text.at, 'X', text.n) && str_to_f64(text, f);
}

static bool parse_integer(struct str text, int64_t base, int64_t *out)
{
    static const char prefixes[] = "xXoObB", bases[] = { 16, 16, 8, 8, 2, 2 };
    bool negative;
    uint64_t value = 0;

    text = char_strip(text, CHAR_STRIP_BOTH);
    negative = text.n && text.at[0] == '-';
    if (negative || (text.n && text.at[0] == '+'))
        text = str_from_to(text, 1, text.n);
    const char *prefix = text.n > 2 && text.at[0] == '0' && text.at[1] ? strchr(prefixes, text.at[1]) : NULL;
    if (prefix && bases[prefix - prefixes] == base)
        text = str_from_to(text, 2, text.n);
    for (size_t i = 0; i < text.n; i++) {
        char c = text.at[i];
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                         : 99;
        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value) || value > INT64_MAX)
            return false;
    }
    *out = negative ? -(int64_t)value : (int64_t)value;
    return text.n > 0;
}

bool filter_int(struct render *r, struct call *c)
{
    struct value v = *c->self;
    int64_t base = c->number[1], result = 0;
    double f;

    if (!value_need_defined(r, v))
        return false;
    *c->out = c->arg[0]->kind == VALUE_ABSENT ? value_int(0) : *c->arg[0];
    if (v.kind == VALUE_FLOAT && isfinite(v.f)) {
        if (!float_to_int(r, v.f, &result))
            return false;
    } else if (value_is_integer(v)) {
        result = value_as_int(v);
    } else if (v.kind != VALUE_STRING || base < 2 || base > 36) {
        return true;
    } else if (!parse_integer(v.s, base, &result)) {
        if (!parse_float(v.s, &f) || !isfinite(f))
            return true;
        if (!float_to_int(r, f, &result))
            return false;
    }
    *c->out = value_int(result);
    return true;
}

bool filter_float(struct render *r, struct call *c)
{
    struct value v = *c->self;
    double f;

    *c->out = c->arg[0]->kind == VALUE_ABSENT ? value_float(0) : *c->arg[0];
    if (!value_need_defined(r, v))
        return false;
    if (value_is_number(v))
        *c->out = value_float(value_as_float(v));
    else if (v.kind == VALUE_STRING && parse_float(v.s, &f))
        *c->out = value_float(f);
    return true;
}

bool filter_abs(struct render *r, struct call *c)
{
    struct value v = *c->self;

    if (!value_need_defined(r, v))
        return false;
    if (!value_is_number(v) || (v.kind == VALUE_INT && v.i == INT64_MIN))
        return render_fail(r, ERR_INPUT, "bad operand type for abs(): '%s'", value_type_name(v));
    *c->out = v.kind == VALUE_FLOAT ? value_float(fabs(v.f))
                                    : value_int(value_as_int(v) < 0 ? -value_as_int(v) : value_as_int(v));
    return true;
}

// Python's round(f, precision): the decimal that is nearest to the exact binary value, ties to even.
static double round_decimal(double f, int precision)
{
    char text[400];
    double scale = pow(10, -precision);

    if (!isfinite(f))
        return f;
    if (precision < 0)
        return nearbyint(f / scale) * scale;
    snprintf(text, sizeof text, "%.*f", precision, f);
    return strtod(text, NULL);
}

bool filter_round(struct render *r, struct call *c)
{
    struct value v = *c->self, method = *c->arg[1];
    int64_t precision = c->number[0];
    bool common = method.kind == VALUE_ABSENT || (method.kind == VALUE_STRING && str_is(method.s, "common"));
    bool up = method.kind == VALUE_STRING && str_is(method.s, "ceil");

    if (!value_need_defined(r, v))
        return false;
    if (!common && !up && !(method.kind == VALUE_STRING && str_is(method.s, "floor")))
        return render_fail(r, ERR_INPUT, "method must be common, ceil or floor");
    if (!value_is_number(v))
        return render_fail(r, ERR_INPUT, "type %s cannot be rounded", value_type_name(v));
    if (precision < -20 || precision > 40)
        return render_fail(r, ERR_LIMIT, "round: a precision of %lld; from -20 to 40 are allowed",
                           (long long)precision);
    double scale = pow(10, (double)precision), f = value_as_float(v);
    if (!common)
        *c->out = value_float((up ? ceil(f * scale) : floor(f * scale)) / scale);
    else if (v.kind != VALUE_FLOAT && precision >= 0)
        *c->out = value_int(value_as_int(v));
    else if (v.kind != VALUE_FLOAT)
        *c->out = value_int((int64_t)round_decimal(f, (int)precision));
    else
        *c->out = value_float(round_decimal(f, (int)precision));
    return true;
}

// --- tojson and format ---

static bool json_separators(struct render *r, const struct value *v, struct json_style *style)
{
    struct list items;

    if (v->kind == VALUE_ABSENT || v->kind == VALUE_NONE)
        return true;
    if (!value_items(r, *v, &items))
        return false;
    if (items.n != 2 || items.at[0].kind != VALUE_STRING || items.at[1].kind != VALUE_STRING)
        return render_fail(r, ERR_INPUT, "tojson: separators must be two strings");
    style->item_separator = items.at[0].s;
    style->key_separator = items.at[1].s;
    return true;
}

enum { TOJSON_MAX_INDENT = 256 };

bool filter_tojson(struct render *r, struct call *c)
{
    struct json_style style = { .ensure_ascii = c->number[0], .sort_keys = c->number[3] };
    struct builder b = builder_start(r);
    struct value indent = *c->arg[1];
    int64_t width;

    if (indent.kind != VALUE_ABSENT && indent.kind != VALUE_NONE && indent.kind != VALUE_STRING) {
        if (!call_argument_int(r, &indent, 0, &width))
            return false;
        if (width > TOJSON_MAX_INDENT)
            return render_fail(r, ERR_LIMIT, "tojson: an indent of %lld; at most %d is allowed",
                               (long long)width, TOJSON_MAX_INDENT);
        if (!string_pad(r, value_string(STR(""), false), width, 0, &indent))
            return false;
    }
    style.indent = indent.kind == VALUE_STRING ? indent.s : style.indent;
    style.item_separator = style.indent.at ? STR(",") : STR(", ");
    style.key_separator = STR(": ");
    if (!json_separators(r, c->arg[2], &style) || !show_json(&b, *c->self, &style))
        return false;
    *c->out = builder_value(&b);
    return true;
}

bool filter_format(struct render *r, struct call *c)
{
    struct value values;
    bool keywords = c->raw->n_keywords > 0;

    if (c->raw->n && keywords)
        return render_fail(r, ERR_INPUT, "can't handle positional and keyword arguments at the same time");
    if (!(keywords
              ? value_dict_new(r, 0, &values)
              : value_list_copy(r, LIST_TUPLE, (struct list){ .at = c->raw->at, .n = c->raw->n }, &values)))
        return false;
    for (size_t i = 0; i < c->raw->n_keywords; i++)
        if (!value_dict_set(r, values.dict, value_string(c->raw->keywords[i].name, false),
                            *c->raw->keywords[i].value))
            return false;
    return format_percent(r, *c->self, values, c->out);
}
