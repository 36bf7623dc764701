// template_format.c - Python's two ways to format: "%s" % values, and "{}".format(values).
//
// Widths and precisions come from the template, so they are bounded before anything is allocated.
#include <math.h>
#include "text/template/template_char.h"
#include "text/template/template_show.h"

enum { FORMAT_MAX_WIDTH = 1 << 16, FORMAT_MAX_PRECISION = 64 };

struct format_spec {
    char fill[4];
    size_t fill_n;
    char align; // '<' '>' '^' '=' or 0
    bool plus, space, alternate, zero, comma;
    size_t width;
    int precision; // -1: none
    char type;     // 0: none
};

static bool read_number(struct render *r, struct str s, size_t *at, size_t max, size_t *value)
{
    *value = 0;
    for (; *at < s.n && s.at[*at] >= '0' && s.at[*at] <= '9'; ++*at) {
        *value = *value * 10 + (size_t)(s.at[*at] - '0');
        if (*value > max)
            return render_fail(r, ERR_LIMIT, "a width or precision above %zu in a format", max);
    }
    return true;
}

// Sign and digits are separate, so that padding can go between them.
struct number_text {
    char sign[4]; // with the prefix "0x" of '#'
    char digits[400];
};

static void integer_digits(struct number_text *t, int64_t value, const struct format_spec *spec)
{
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    const char *letters = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[128];
    size_t n = 0, groups = 0;

    do {
        if (spec->comma && groups && groups % 3 == 0)
            reversed[n++] = ',';
        reversed[n++] = letters[magnitude % base];
        groups++;
    } while ((magnitude /= base) != 0);
    while (spec->precision > 0 && n < (size_t)spec->precision)
        reversed[n++] = '0';
    for (size_t i = 0; i < n; i++)
        t->digits[i] = reversed[n - 1 - i];
    t->digits[n] = 0;
    if (spec->alternate && base != 10)
        snprintf(t->sign + strlen(t->sign), 3, "0%c", spec->type);
}

static void group_thousands(char *digits, size_t size)
{
    size_t whole = strspn(digits, "0123456789"), n = strlen(digits);

    for (size_t at = whole; at > 3 && n + 2 < size; n++) {
        at -= 3;
        memmove(digits + at + 1, digits + at, n - at + 1);
        digits[at] = ',';
    }
}

static void float_digits(struct number_text *t, double f, const struct format_spec *spec)
{
    int precision = spec->precision < 0 ? 6 : spec->precision;
    bool percent = spec->type == '%';

    f = fabs(percent ? f * 100 : f);
    if (!isfinite(f))
        snprintf(t->digits, sizeof t->digits, "%s", isnan(f) ? "nan" : "inf");
    else if (spec->type == 'e' || spec->type == 'E')
        snprintf(t->digits, sizeof t->digits, spec->type == 'e' ? "%.*e" : "%.*E", precision, f);
    else if (spec->type == 'g' || spec->type == 'G')
        snprintf(t->digits, sizeof t->digits, spec->type == 'g' ? "%.*g" : "%.*G", precision ? precision : 1,
                 f);
    else if (spec->type == 0 && spec->precision < 0)
        show_float(f, t->digits);
    else if (spec->type == 0)
        snprintf(t->digits, sizeof t->digits, "%.*g", precision ? precision : 1, f);
    else
        snprintf(t->digits, sizeof t->digits, "%.*f", precision, f);
    if (spec->comma)
        group_thousands(t->digits, sizeof t->digits);
    if (percent)
        snprintf(t->digits + strlen(t->digits), 2, "%%");
}

static bool put_fill(struct builder *b, const struct format_spec *spec, size_t n)
{
    struct str fill = spec->fill_n ? (struct str){ spec->fill, spec->fill_n }
                      : spec->zero ? STR("0")
                                   : STR(" ");

    for (size_t i = 0; i < n; i++)
        if (!builder_put(b, fill, false))
            return false;
    return true;
}

static bool put_padded(struct builder *b, struct value sign, struct value text,
                       const struct format_spec *spec, char align)
{
    size_t length = char_count(sign.s) + char_count(text.s),
           pad = spec->width > length ? spec->width - length : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, middle = align == '=' ? pad : 0;

    return put_fill(b, spec, left) && builder_put_value(b, sign) && put_fill(b, spec, middle) &&
           builder_put_value(b, text) && put_fill(b, spec, pad - left - middle);
}

static bool put_number(struct builder *b, struct value v, const struct format_spec *spec)
{
    struct number_text t = { 0 };
    bool as_float = strchr("eEfFgG%", spec->type) || v.kind == VALUE_FLOAT;
    bool negative = v.kind == VALUE_FLOAT ? signbit(v.f) && !isnan(v.f) : value_as_int(v) < 0;
    char align = spec->align ? spec->align : spec->zero ? '=' : '>';

    if (spec->type == 0 && v.kind != VALUE_FLOAT)
        as_float = false;
    t.sign[0] = negative ? '-' : spec->plus ? '+' : spec->space ? ' ' : 0;
    if (as_float)
        float_digits(&t, value_as_float(v), spec);
    else
        integer_digits(&t, value_as_int(v), spec);
    return put_padded(b, value_string(str_from(t.sign), v.user), value_string(str_from(t.digits), v.user),
                      spec, align);
}

static bool put_text(struct builder *b, struct value text, const struct format_spec *spec, char default_align)
{
    if (spec->precision >= 0)
        text = value_part(text, 0, char_offset(text.s, (size_t)spec->precision));
    return put_padded(b, value_string(STR(""), false), text, spec, spec->align ? spec->align : default_align);
}

// --- % ---

struct percent {
    struct render *r;
    struct value format, values;
    size_t at, used; // position in the format; values taken from the tuple
};

static bool next_percent_value(struct percent *p, struct value *out)
{
    bool tuple = p->values.kind == VALUE_LIST && p->values.list->kind == LIST_TUPLE;
    size_t n = tuple ? p->values.list->n : 1;

    if (p->used >= n)
        return render_fail(p->r, ERR_INPUT, "not enough arguments for format string");
    *out = tuple ? p->values.list->at[p->used] : p->values;
    p->used++;
    return true;
}

static bool mapped_percent_value(struct percent *p, struct value *out)
{
    struct str s = p->format.s;
    size_t from = ++p->at;

    while (p->at < s.n && s.at[p->at] != ')')
        p->at++;
    if (p->at == s.n)
        return render_fail(p->r, ERR_INPUT, "incomplete format key");
    if (p->values.kind != VALUE_DICT)
        return render_fail(p->r, ERR_INPUT, "format requires a mapping");
    struct value key = value_part(p->format, from, p->at++);
    if (!value_dict_get(p->r, p->values.dict, key, out))
        return false;
    p->used = 1;
    return out->kind != VALUE_ABSENT || render_fail(p->r, ERR_INPUT, "format: no key '%.*s'", STR_ARG(key.s));
}

static bool percent_size(struct percent *p, size_t max, size_t *value)
{
    struct value v;

    if (p->at < p->format.s.n && p->format.s.at[p->at] == '*') {
        p->at++;
        if (!next_percent_value(p, &v))
            return false;
        if (!value_is_integer(v) || value_as_int(v) < 0 || (uint64_t)value_as_int(v) > max)
            return render_fail(p->r, ERR_INPUT, "* in a format wants a whole number from 0 to %zu", max);
        *value = (size_t)value_as_int(v);
        return true;
    }
    return read_number(p->r, p->format.s, &p->at, max, value);
}

static bool percent_spec(struct percent *p, struct format_spec *spec)
{
    struct str s = p->format.s;
    size_t precision;

    *spec = (struct format_spec){ .precision = -1 };
    for (; p->at < s.n && strchr("-+ #0", s.at[p->at]) && s.at[p->at]; p->at++) {
        char c = s.at[p->at];
        spec->align = c == '-' ? '<' : spec->align;
        spec->plus |= c == '+';
        spec->space |= c == ' ';
        spec->alternate |= c == '#';
        spec->zero |= c == '0';
    }
    if (!percent_size(p, FORMAT_MAX_WIDTH, &spec->width))
        return false;
    if (p->at < s.n && s.at[p->at] == '.') {
        p->at++;
        if (!percent_size(p, FORMAT_MAX_PRECISION, &precision))
            return false;
        spec->precision = (int)precision;
    }
    while (p->at < s.n && strchr("hlL", s.at[p->at]) && s.at[p->at])
        p->at++;
    if (p->at == s.n)
        return render_fail(p->r, ERR_INPUT, "incomplete format");
    spec->type = s.at[p->at++];
    spec->zero &= !spec->align;
    return true;
}

static bool percent_number(struct percent *p, struct builder *b, struct value v, struct format_spec *spec)
{
    if (!value_need_defined(p->r, v))
        return false;
    if (!value_is_number(v))
        return render_fail(p->r, ERR_INPUT, "%%%c format: a real number is required, not %s", spec->type,
                           value_type_name(v));
    if (strchr("diu", spec->type)) {
        if (v.kind == VALUE_FLOAT && !(fabs(v.f) < 9e18))
            return render_fail(p->r, ERR_INPUT, "a float does not fit a whole number");
        v = v.kind == VALUE_FLOAT ? (struct value){ .kind = VALUE_INT, .user = v.user, .i = (int64_t)v.f }
                                  : v;
        spec->type = 'd';
    } else if (strchr("oxX", spec->type) && v.kind == VALUE_FLOAT) {
        return render_fail(p->r, ERR_INPUT, "%%%c format: an integer is required, not float", spec->type);
    }
    return put_number(b, v, spec);
}

static bool percent_character(struct percent *p, struct builder *b, struct value v,
                              const struct format_spec *spec)
{
    char text[4];

    if (v.kind == VALUE_STRING && char_count(v.s) == 1)
        return put_text(b, v, spec, '>');
    if (!value_is_integer(v) || value_as_int(v) < 0 || value_as_int(v) > 0x10ffff ||
        !char_is_valid((uint32_t)value_as_int(v)))
        return render_fail(p->r, ERR_INPUT, "%%c requires a character or its code");
    size_t n = char_encode((uint32_t)value_as_int(v), text);
    return put_text(b, value_string((struct str){ text, n }, v.user), spec, '>');
}

// A safe format escapes before padding.
static bool percent_text(struct percent *p, struct builder *b, struct value v, const struct format_spec *spec)
{
    struct builder repr = builder_start(p->r), text = builder_start(p->r);

    text.safe = b->safe;
    if (spec->type != 's') {
        if (!show_repr(&repr, v))
            return false;
        v = builder_value(&repr);
    }
    return show_string(p->r, v, &v) && builder_put_value(&text, v) &&
           put_text(b, builder_value(&text), spec, '>');
}

static bool percent_one(struct percent *p, struct builder *b)
{
    struct format_spec spec;
    struct value v = { 0 };
    bool mapped = p->at < p->format.s.n && p->format.s.at[p->at] == '(';

    if ((mapped && !mapped_percent_value(p, &v)) || !percent_spec(p, &spec))
        return false;
    if (spec.type == '%')
        return builder_put(b, STR("%"), false);
    if (!spec.type || !strchr("diouxXeEfFgGcrsa", spec.type))
        return render_fail(p->r, ERR_INPUT, "unsupported format character '%c'",
                           spec.type >= ' ' ? spec.type : '?');
    if (!mapped && !next_percent_value(p, &v))
        return false;
    if (spec.type == 'c')
        return percent_character(p, b, v, &spec);
    if (!strchr("rsa", spec.type))
        return percent_number(p, b, v, &spec);
    spec.zero = false;
    return percent_text(p, b, v, &spec);
}

bool format_percent(struct render *r, struct value format, struct value values, struct value *out)
{
    struct percent p = { .r = r, .format = format, .values = values };
    struct builder b = builder_start(r);
    bool tuple = values.kind == VALUE_LIST && values.list->kind == LIST_TUPLE;

    b.safe = format.safe;
    while (p.at < format.s.n) {
        const char *next = memchr(format.s.at + p.at, '%', format.s.n - p.at);
        size_t to = next ? (size_t)(next - format.s.at) : format.s.n;
        if (!render_spend(r, 1) || !builder_put_value(&b, value_part(format, p.at, to)))
            return false;
        p.at = to + 1;
        if (next && !percent_one(&p, &b))
            return false;
    }
    if ((tuple && p.used < values.list->n) ||
        (!tuple && values.kind != VALUE_DICT && values.kind != VALUE_LIST && p.used == 0))
        return render_fail(r, ERR_INPUT, "not all arguments converted during string formatting");
    *out = builder_value(&b);
    return true;
}

// --- {} ---

static bool is_align(char c)
{
    return c && strchr("<>^=", c);
}

static bool brace_spec(struct render *r, struct str s, struct format_spec *spec)
{
    size_t at = 0, fill = 0, number;

    *spec = (struct format_spec){ .precision = -1 };
    if (s.n)
        char_next(s, &fill);
    if (fill && fill < s.n && is_align(s.at[fill])) {
        spec->fill_n = fill;
        memcpy(spec->fill, s.at, fill);
        spec->align = s.at[fill];
        at = fill + 1;
    } else if (s.n && is_align(s.at[0])) {
        spec->align = s.at[at++];
    }
    for (; at < s.n && s.at[at] && strchr("+- ", s.at[at]); at++) {
        spec->plus |= s.at[at] == '+';
        spec->space |= s.at[at] == ' ';
    }
    if (at < s.n && s.at[at] == '#')
        spec->alternate = ++at > 0;
    if (at < s.n && s.at[at] == '0')
        spec->zero = ++at > 0;
    if (!read_number(r, s, &at, FORMAT_MAX_WIDTH, &spec->width))
        return false;
    if (at < s.n && s.at[at] == ',')
        spec->comma = ++at > 0;
    if (at < s.n && s.at[at] == '.') {
        at++;
        if (!read_number(r, s, &at, FORMAT_MAX_PRECISION, &number))
            return false;
        spec->precision = (int)number;
    }
    if (at < s.n)
        spec->type = s.at[at++];
    return at == s.n || render_fail(r, ERR_INPUT, "invalid format specification '%.*s'", STR_ARG(s));
}

struct braces {
    struct render *r;
    struct value format;
    const struct call_arguments *arguments;
    size_t at, next;
};

static bool brace_value(struct braces *p, struct str name, struct value *out)
{
    uint64_t index = p->next;
    size_t end = 0;

    while (end < name.n && name.at[end] != '.' && name.at[end] != '[')
        end++;
    if (end < name.n)
        return render_fail(p->r, ERR_UNSUPPORTED, "attributes and items inside a {} format");
    if (name.n == 0)
        p->next++;
    if (name.n == 0 || str_to_u64(name, &index)) {
        if (index >= p->arguments->n)
            return render_fail(p->r, ERR_INPUT, "format has no argument %llu", (unsigned long long)index);
        *out = p->arguments->at[index];
        return true;
    }
    const struct value *keyword = render_keyword(p->arguments, name);
    if (!keyword)
        return render_fail(p->r, ERR_INPUT, "format has no argument '%.*s'", STR_ARG(name));
    *out = *keyword;
    return true;
}

static bool brace_text(struct builder *b, struct value v, const struct format_spec *spec, char conversion)
{
    struct builder text = builder_start(b->r);

    return (conversion == 'r' ? show_repr(&text, v) : show_value(&text, v)) &&
           put_text(b, builder_value(&text), spec, '<');
}

// The content of the braces: name!conversion:specification.
static bool brace_one(struct braces *p, struct builder *b, struct str field)
{
    size_t name_end = 0, at;
    struct format_spec spec;
    struct value v;
    char conversion = 0;

    while (name_end < field.n && field.at[name_end] != '!' && field.at[name_end] != ':')
        name_end++;
    at = name_end;
    if (at + 1 < field.n && field.at[at] == '!') {
        conversion = field.at[at + 1];
        at += 2;
    }
    struct str rest = at < field.n ? str_from_to(field, at + 1, field.n) : STR("");
    if (memchr(rest.at, '{', rest.n))
        return render_fail(p->r, ERR_UNSUPPORTED, "a field inside a format specification");
    if (!brace_value(p, str_from_to(field, 0, name_end), &v) || !brace_spec(p->r, rest, &spec))
        return false;
    if (b->safe && v.safe && !conversion)
        return rest.n
                   ? render_fail(p->r, ERR_INPUT, "a safe string takes no format specification, '%.*s' found",
                                 STR_ARG(rest))
                   : builder_put_value(b, v);
    struct builder padded = builder_start(p->r); // a safe format escapes after padding
    bool number = value_is_number(v) && !conversion && spec.type != 's' && (v.kind != VALUE_BOOL || rest.n);
    return (number ? put_number(&padded, v, &spec) : brace_text(&padded, v, &spec, conversion)) &&
           builder_put_value(b, builder_value(&padded));
}

bool format_braces(struct render *r, struct value format, const struct call_arguments *arguments,
                   struct value *out)
{
    struct braces p = { .r = r, .format = format, .arguments = arguments };
    struct builder b = builder_start(r);
    struct str s = format.s;

    b.safe = format.safe;
    while (p.at < s.n) {
        size_t from = p.at;
        while (p.at < s.n && s.at[p.at] != '{' && s.at[p.at] != '}')
            p.at++;
        if (!render_spend(r, 1) || !builder_put_value(&b, value_part(format, from, p.at)))
            return false;
        if (p.at == s.n)
            break;
        if (p.at + 1 < s.n && s.at[p.at] == s.at[p.at + 1]) {
            if (!builder_put_value(&b, value_part(format, p.at, p.at + 1)))
                return false;
            p.at += 2;
            continue;
        }
        const char *close = s.at[p.at] == '{' ? memchr(s.at + p.at, '}', s.n - p.at) : NULL;
        if (!close)
            return render_fail(r, ERR_INPUT, "single '%c' encountered in format string", s.at[p.at]);
        if (!brace_one(&p, &b, str_from_to(s, p.at + 1, (size_t)(close - s.at))))
            return false;
        p.at = (size_t)(close - s.at) + 1;
    }
    *out = builder_value(&b);
    return true;
}
