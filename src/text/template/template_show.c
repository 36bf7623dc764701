// template_show.c - see template_show.h: str, repr and JSON. Formats are in template_format.c.
//
// Quotes, brackets and escapes that are added here are trusted; the characters of strings, and the digits of
// numbers, keep their origin.
#include "text/template/template_show.h"
#include <math.h>
#include "text/template/template_char.h"

void show_float(double f, char *out)
{
    char digits[32];
    int precision = 1;

    if (!isfinite(f)) {
        snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    // The fewest digits that read back as the same number.
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    const char *exponent_at = strchr(digits, 'e') + 1;
    int exponent = 0;
    for (const char *c = exponent_at + 1; *c; c++)
        exponent = exponent * 10 + (*c - '0');
    exponent = *exponent_at == '-' ? -exponent : exponent;
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, 32, "%s", digits);
        return;
    }
    int decimals = precision - 1 - exponent;
    snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, f);
}

static bool put_number(struct builder *b, struct value v)
{
    char text[32];

    if (v.kind == VALUE_FLOAT)
        show_float(v.f, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    return builder_put(b, str_from(text), v.user);
}

static bool put_escaped(struct builder *b, const char *format, uint32_t code, bool user)
{
    char text[16];
    int n = strcmp(format, "x") == 0   ? snprintf(text, sizeof text, "\\x%02x", code)
            : strcmp(format, "u") == 0 ? snprintf(text, sizeof text, "\\u%04x", code)
                                       : snprintf(text, sizeof text, "\\U%08x", code);
    return builder_put(b, (struct str){ text, (size_t)n }, user);
}

static bool char_user(struct value text, size_t at)
{
    return text.marks ? text.marks[at] : text.user;
}

static bool repr_string(struct builder *b, struct value text)
{
    bool has_single = memchr(text.s.at, '\'', text.s.n) != NULL,
         has_double = memchr(text.s.at, '"', text.s.n) != NULL;
    struct str quote = has_single && !has_double ? STR("\"") : STR("'");
    size_t at = 0, plain = 0;

    if (!render_spend(b->r, text.s.n / 8) || (text.safe && !builder_put(b, STR("Markup("), false)) ||
        !builder_put(b, quote, false))
        return false;
    while (at < text.s.n) {
        size_t from = at;
        uint32_t code = char_next(text.s, &at);
        bool user = char_user(text, from), ok = true;
        if (code != '\\' && code != (unsigned char)quote.at[0] && char_is_printable(code))
            continue;
        ok = builder_put_value(b, value_part(text, plain, from));
        plain = at;
        if (code == '\\' || code == (unsigned char)quote.at[0])
            ok = ok && builder_put(b, STR("\\"), user) && builder_put_value(b, value_part(text, from, at));
        else if (code == '\n' || code == '\r' || code == '\t')
            ok = ok && builder_put(b,
                                   code == '\n'   ? STR("\\n")
                                   : code == '\r' ? STR("\\r")
                                                  : STR("\\t"),
                                   user);
        else
            ok = ok && put_escaped(b, code < 0x100 ? "x" : code < 0x10000 ? "u" : "U", code, user);
        if (!ok)
            return false;
    }
    return builder_put_value(b, value_part(text, plain, text.s.n)) && builder_put(b, quote, false) &&
           (!text.safe || builder_put(b, STR(")"), false));
}

static bool repr(struct builder *b, struct value v, uint32_t depth);

static bool repr_list(struct builder *b, const struct list *list, uint32_t depth)
{
    bool tuple = list->kind == LIST_TUPLE;

    if (list->kind == LIST_GENERATOR)
        return builder_put(b, STR("<generator object>"), false);
    if (list->kind == LIST_RANGE)
        return render_fail(b->r, ERR_INPUT, "a range cannot be printed; use range(...)|list");
    if (!builder_put(b, tuple ? STR("(") : STR("["), false))
        return false;
    for (size_t i = 0; i < list->n; i++)
        if ((i && !builder_put(b, STR(", "), false)) || !repr(b, list->at[i], depth + 1))
            return false;
    return builder_put(b, !tuple ? STR("]") : list->n == 1 ? STR(",)") : STR(")"), false);
}

static bool repr_dict(struct builder *b, const struct dict *dict, uint32_t depth)
{
    if (!builder_put(b, STR("{"), false))
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if ((i && !builder_put(b, STR(", "), false)) || !repr(b, dict->at[i].key, depth + 1) ||
            !builder_put(b, STR(": "), false) || !repr(b, dict->at[i].value, depth + 1))
            return false;
    return builder_put(b, STR("}"), false);
}

static bool repr(struct builder *b, struct value v, uint32_t depth)
{
    if (depth >= VALUE_MAX_DEPTH)
        return render_fail(b->r, ERR_LIMIT, "a value nested deeper than %d", VALUE_MAX_DEPTH);
    if (!render_spend(b->r, 1))
        return false;
    switch (v.kind) {
    case VALUE_UNDEFINED:
        return builder_put(b, STR("Undefined"), false);
    case VALUE_NONE:
        return builder_put(b, STR("None"), v.user);
    case VALUE_BOOL:
        return builder_put(b, v.b ? STR("True") : STR("False"), v.user);
    case VALUE_INT:
    case VALUE_FLOAT:
        return put_number(b, v);
    case VALUE_STRING:
        return repr_string(b, v);
    case VALUE_LIST:
        return repr_list(b, v.list, depth);
    case VALUE_DICT:
        return repr_dict(b, v.dict, depth);
    case VALUE_NAMESPACE:
        return builder_put(b, STR("<Namespace "), false) && repr_dict(b, v.dict, depth) &&
               builder_put(b, STR(">"), false);
    default:
        return render_fail(b->r, ERR_INPUT, "a %s cannot be printed; call it", value_type_name(v));
    }
}

bool show_repr(struct builder *b, struct value v)
{
    return repr(b, v, 0);
}

bool show_value(struct builder *b, struct value v)
{
    if (v.kind == VALUE_STRING)
        return builder_put_value(b, v);
    return v.kind == VALUE_UNDEFINED || repr(b, v, 0);
}

bool show_string(struct render *r, struct value v, struct value *out)
{
    struct builder b = builder_start(r);

    *out = v;
    if (v.kind == VALUE_STRING)
        return true;
    if (!show_value(&b, v))
        return false;
    *out = builder_value(&b);
    return true;
}

struct json_writer {
    struct builder *b;
    const struct json_style *style;
    uint32_t depth;
};

static bool json_escape(struct builder *b, uint32_t code, bool user)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *simple = code && code < 128 ? strchr(from, (int)code) : NULL;

    if (simple) {
        char text[2] = { '\\', to[simple - from] };
        return builder_put(b, (struct str){ text, 2 }, user);
    }
    if (code >= 0x10000) {
        code -= 0x10000;
        return put_escaped(b, "u", 0xd800 + (code >> 10), user) &&
               put_escaped(b, "u", 0xdc00 + (code & 0x3ff), user);
    }
    return put_escaped(b, "u", code, user);
}

static bool json_text(struct json_writer *w, struct value text)
{
    size_t at = 0, plain = 0;

    if (!render_spend(w->b->r, text.s.n / 8) || !builder_put(w->b, STR("\""), false))
        return false;
    while (at < text.s.n) {
        size_t from = at;
        uint32_t code = char_next(text.s, &at);
        if (code >= 0x20 && code != '"' && code != '\\' &&
            (code < 0x7f || !w->style->ensure_ascii || code == 0x7f))
            continue;
        if (!builder_put_value(w->b, value_part(text, plain, from)) ||
            !json_escape(w->b, code, char_user(text, from)))
            return false;
        plain = at;
    }
    return builder_put_value(w->b, value_part(text, plain, text.s.n)) && builder_put(w->b, STR("\""), false);
}

static bool json_newline(struct json_writer *w)
{
    if (!w->style->indent.at)
        return true;
    if (!builder_put(w->b, STR("\n"), false))
        return false;
    for (uint32_t i = 0; i < w->depth; i++)
        if (!builder_put(w->b, w->style->indent, false))
            return false;
    return true;
}

static bool json_value(struct json_writer *w, struct value v);

static bool json_list(struct json_writer *w, const struct list *list)
{
    if (list->kind > LIST_TUPLE)
        return render_fail(w->b->r, ERR_INPUT, "Object of type %s is not JSON serializable",
                           list->kind == LIST_RANGE ? "range" : "generator");
    if (list->n == 0)
        return builder_put(w->b, STR("[]"), false);
    if (!builder_put(w->b, STR("["), false))
        return false;
    w->depth++;
    for (size_t i = 0; i < list->n; i++)
        if ((i && !builder_put(w->b, w->style->item_separator, false)) || !json_newline(w) ||
            !json_value(w, list->at[i]))
            return false;
    w->depth--;
    return json_newline(w) && builder_put(w->b, STR("]"), false);
}

static bool json_key(struct json_writer *w, struct value key)
{
    struct builder *b = w->b;

    if (key.kind == VALUE_STRING)
        return json_text(w, key);
    if (key.kind == VALUE_LIST || key.kind > VALUE_STRING || key.kind == VALUE_UNDEFINED)
        return render_fail(b->r, ERR_INPUT, "JSON keys must be str, int, float, bool or None, not %s",
                           value_type_name(key));
    return builder_put(b, STR("\""), false) && json_value(w, key) && builder_put(b, STR("\""), false);
}

// Order of the entries: as they are, or by key.
static bool json_order(struct json_writer *w, const struct dict *dict, const struct entry ***order)
{
    const struct entry **at = render_alloc(w->b->r, dict->n, sizeof *at);

    if (!at || !render_spend(w->b->r, w->style->sort_keys ? dict->n * dict->n / 64 : dict->n / 4))
        return false;
    for (size_t i = 0; i < dict->n; i++) {
        size_t to = i;
        for (; w->style->sort_keys && to > 0; to--) {
            int c;
            if (!value_order(w->b->r, at[to - 1]->key, dict->at[i].key, &c))
                return false;
            if (c <= 0)
                break;
            at[to] = at[to - 1];
        }
        at[to] = &dict->at[i];
    }
    *order = at;
    return true;
}

static bool json_dict(struct json_writer *w, const struct dict *dict)
{
    const struct entry **order;

    if (dict->n == 0)
        return builder_put(w->b, STR("{}"), false);
    if (!json_order(w, dict, &order) || !builder_put(w->b, STR("{"), false))
        return false;
    w->depth++;
    for (size_t i = 0; i < dict->n; i++)
        if ((i && !builder_put(w->b, w->style->item_separator, false)) || !json_newline(w) ||
            !json_key(w, order[i]->key) || !builder_put(w->b, w->style->key_separator, false) ||
            !json_value(w, order[i]->value))
            return false;
    w->depth--;
    return json_newline(w) && builder_put(w->b, STR("}"), false);
}

static bool json_value(struct json_writer *w, struct value v)
{
    struct builder *b = w->b;

    if (w->depth >= VALUE_MAX_DEPTH)
        return render_fail(b->r, ERR_LIMIT, "a value nested deeper than %d", VALUE_MAX_DEPTH);
    if (!render_spend(b->r, 1))
        return false;
    switch (v.kind) {
    case VALUE_NONE:
        return builder_put(b, STR("null"), v.user);
    case VALUE_BOOL:
        return builder_put(b, v.b ? STR("true") : STR("false"), v.user);
    case VALUE_INT:
        return put_number(b, v);
    case VALUE_FLOAT:
        if (isfinite(v.f))
            return put_number(b, v);
        return builder_put(b, isnan(v.f) ? STR("NaN") : v.f < 0 ? STR("-Infinity") : STR("Infinity"), v.user);
    case VALUE_STRING:
        return json_text(w, v);
    case VALUE_LIST:
        return json_list(w, v.list);
    case VALUE_DICT:
        return json_dict(w, v.dict);
    default:
        return render_fail(b->r, ERR_INPUT, "Object of type %s is not JSON serializable", value_type_name(v));
    }
}

bool show_json(struct builder *b, struct value v, const struct json_style *style)
{
    struct json_writer w = { .b = b, .style = style };
    return json_value(&w, v);
}
