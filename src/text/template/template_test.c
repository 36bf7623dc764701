// template_test.c - tests (x is NAME) and global functions.
#include <time.h>
#include "text/template/template_node.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

static bool answer(struct call *c, bool yes)
{
    *c->out = value_bool(yes);
    return true;
}

// Most tests look at the kind only.
#define KIND_TEST(name, condition)                            \
    static bool test_##name(struct render *r, struct call *c) \
    {                                                         \
        struct value v = *c->self;                            \
        return render_spend(r, 1) && answer(c, condition);    \
    }

KIND_TEST(defined, v.kind != VALUE_UNDEFINED)
KIND_TEST(undefined, v.kind == VALUE_UNDEFINED)
KIND_TEST(none, v.kind == VALUE_NONE)
KIND_TEST(boolean, v.kind == VALUE_BOOL)
KIND_TEST(true, v.kind == VALUE_BOOL && v.b)
KIND_TEST(false, v.kind == VALUE_BOOL && !v.b)
KIND_TEST(integer, v.kind == VALUE_INT)
KIND_TEST(float, v.kind == VALUE_FLOAT)
KIND_TEST(number, value_is_number(v))
KIND_TEST(string, v.kind == VALUE_STRING)
KIND_TEST(escaped, v.safe)
KIND_TEST(mapping, v.kind == VALUE_DICT)
KIND_TEST(sequence, v.kind == VALUE_STRING || v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED ||
                        (v.kind == VALUE_LIST && v.list->kind != LIST_GENERATOR))
KIND_TEST(iterable, v.kind == VALUE_STRING || v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED || v.kind == VALUE_LIST)
KIND_TEST(callable, v.kind == VALUE_MACRO || v.kind == VALUE_BOUND || v.kind == VALUE_BUILTIN || v.kind == VALUE_LOOP)

static bool divides(struct render *r, struct value a, int64_t by, int64_t *rest)
{
    struct value out;

    if (!value_binary(r, OP_MOD, (const struct value[]){ a, value_int(by) }, &out))
        return false;
    *rest = out.kind == VALUE_FLOAT ? out.f != 0 : value_is_integer(out) ? value_as_int(out) : -1;
    return true;
}

static bool test_divisibleby(struct render *r, struct call *c)
{
    int64_t by, rest;

    return argument_int(r, c->arg[0], 0, &by) && divides(r, *c->self, by, &rest) && answer(c, rest == 0);
}

static bool test_even(struct render *r, struct call *c)
{
    int64_t rest;
    return divides(r, *c->self, 2, &rest) && answer(c, rest == 0);
}

static bool test_odd(struct render *r, struct call *c)
{
    int64_t rest;
    return divides(r, *c->self, 2, &rest) && answer(c, rest == 1);
}

static bool test_case(struct render *r, struct call *c, bool upper)
{
    struct value text;
    return show_string(r, *c->self, &text) && answer(c, string_has_case(text.s, upper));
}

static bool test_lower(struct render *r, struct call *c)
{
    return test_case(r, c, false);
}

static bool test_upper(struct render *r, struct call *c)
{
    return test_case(r, c, true);
}

static bool test_eq(struct render *r, struct call *c)
{
    bool same;
    return value_equal(r, *c->self, *c->arg[0], &same) && answer(c, same);
}

static bool test_ne(struct render *r, struct call *c)
{
    bool same;
    return value_equal(r, *c->self, *c->arg[0], &same) && answer(c, !same);
}

static bool test_sameas(struct render *r, struct call *c)
{
    bool same;
    return value_equal(r, *c->self, *c->arg[0], &same) && answer(c, same && c->self->kind == c->arg[0]->kind);
}

static bool test_in(struct render *r, struct call *c)
{
    bool found;
    return value_contains(r, *c->self, *c->arg[0], &found) && answer(c, found);
}

static bool test_lt(struct render *r, struct call *c)
{
    int order;
    return value_order(r, *c->self, *c->arg[0], &order) && answer(c, order < 0);
}

static bool test_le(struct render *r, struct call *c)
{
    int order;
    return value_order(r, *c->self, *c->arg[0], &order) && answer(c, order <= 0);
}

static bool test_gt(struct render *r, struct call *c)
{
    int order;
    return value_order(r, *c->self, *c->arg[0], &order) && answer(c, order == 1);
}

static bool test_ge(struct render *r, struct call *c)
{
    int order;
    return value_order(r, *c->self, *c->arg[0], &order) && answer(c, order == 0 || order == 1);
}

static bool test_filter(struct render *r, struct call *c)
{
    struct value name;
    return argument_string(r, c->self, &name) && answer(c, template_filter_find(name.s) != NULL);
}

static bool test_test(struct render *r, struct call *c)
{
    struct value name;
    return argument_string(r, c->self, &name) && answer(c, template_test_find(name.s) != NULL);
}

const struct builtin *template_test_find(struct str name)
{
    static const struct builtin table[] = {
        { "defined", "", test_defined },     { "none", "", test_none },
        { "string", "", test_string },       { "mapping", "", test_mapping },
        { "sequence", "", test_sequence },   { "iterable", "", test_iterable },
        { "undefined", "", test_undefined }, { "boolean", "", test_boolean },
        { "true", "", test_true },           { "false", "", test_false },
        { "integer", "", test_integer },     { "float", "", test_float },
        { "number", "", test_number },       { "callable", "", test_callable },
        { "escaped", "", test_escaped },     { "divisibleby", "num", test_divisibleby },
        { "even", "", test_even },           { "odd", "", test_odd },
        { "lower", "", test_lower },         { "upper", "", test_upper },
        { "eq", "other", test_eq },          { "equalto", "other", test_eq },
        { "==", "other", test_eq },          { "ne", "other", test_ne },
        { "!=", "other", test_ne },          { "lt", "other", test_lt },
        { "lessthan", "other", test_lt },    { "<", "other", test_lt },
        { "le", "other", test_le },          { "<=", "other", test_le },
        { "gt", "other", test_gt },          { "greaterthan", "other", test_gt },
        { ">", "other", test_gt },           { "ge", "other", test_ge },
        { ">=", "other", test_ge },          { "in", "seq", test_in },
        { "sameas", "other", test_sameas },  { "filter", "", test_filter },
        { "test", "", test_test },
    };
    return builtin_find(table, sizeof table / sizeof *table, name);
}

// --- globals ---

static bool global_range(struct render *r, struct call *c)
{
    int64_t start, stop, step, n = 0, span;
    bool one = c->arg[1]->kind == VALUE_ABSENT;

    if (!argument_int(r, c->arg[0], 0, &start) || !argument_int(r, c->arg[1], 0, &stop) || !argument_int(r, c->arg[2], 1, &step))
        return false;
    if (one) {
        stop = start;
        start = 0;
    }
    if (step == 0)
        return render_fail(r, ERR_INPUT, "range() arg 3 must not be zero");
    if (step > 0 ? start < stop : start > stop) {
        // Sizes beyond 64 bits are beyond the limit too.
        if (__builtin_sub_overflow(stop, start, &span) || step == INT64_MIN)
            n = INT64_MAX;
        else
            n = step > 0 ? (span - 1) / step + 1 : (span + 1) / step + 1;
    }
    if ((uint64_t)n > r->limits->range_items)
        return render_fail(r, ERR_LIMIT, "a range of more than %llu items", (unsigned long long)r->limits->range_items);
    if (!value_list_new(r, LIST_RANGE, (size_t)n, c->out))
        return false;
    for (int64_t i = 0; i < n; i++)
        c->out->list->at[i] = value_int(start + i * step);
    return true;
}

static bool add_pairs(struct render *r, struct value from, struct dict *to)
{
    struct list items, pair;

    if (from.kind == VALUE_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            if (!value_dict_set(r, to, from.dict->at[i].key, from.dict->at[i].value))
                return false;
        return true;
    }
    if (!value_items(r, from, &items))
        return false;
    for (size_t i = 0; i < items.n; i++) {
        if (!value_items(r, items.at[i], &pair))
            return false;
        if (pair.n != 2)
            return render_fail(r, ERR_INPUT, "dict: item %zu has length %zu; 2 is required", i, pair.n);
        if (!value_dict_set(r, to, pair.at[0], pair.at[1]))
            return false;
    }
    return true;
}

static bool global_dict(struct render *r, struct call *c)
{
    if (c->raw->n > 1)
        return render_fail(r, ERR_INPUT, "dict expected at most 1 argument, got %zu", c->raw->n);
    if (!value_dict_new(r, c->raw->n_keywords, c->out) || (c->raw->n && !add_pairs(r, c->raw->at[0], c->out->dict)))
        return false;
    for (size_t i = 0; i < c->raw->n_keywords; i++)
        if (!value_dict_set(r, c->out->dict, value_string(c->raw->keywords[i].name, false), *c->raw->keywords[i].value))
            return false;
    return true;
}

static bool global_namespace(struct render *r, struct call *c)
{
    if (!global_dict(r, c))
        return false;
    c->out->kind = VALUE_NAMESPACE;
    return true;
}

static bool global_raise(struct render *r, struct call *c)
{
    struct value text;
    return show_string(r, *c->arg[0], &text) && render_fail(r, ERR_INPUT, "%.*s", STR_ARG(text.s));
}

// One conversion at a time, letters only: a width in a format would be a way to ask for any amount of text.
static bool global_strftime_now(struct render *r, struct call *c)
{
    struct builder b = builder_start(r);
    time_t seconds = (time_t)r->unix_time;
    struct tm now;
    struct value format;
    char piece[128], conversion[3] = "%";

    if (!argument_string(r, c->arg[0], &format) || !localtime_r(&seconds, &now))
        return false;
    for (size_t i = 0; i < format.s.n; i++) {
        size_t n = 0;
        if (format.s.at[i] != '%' || i + 1 == format.s.n) {
            if (!builder_put(&b, str_from_to(format.s, i, i + 1), format.user))
                return false;
            continue;
        }
        conversion[1] = format.s.at[++i];
        if (conversion[1] && strchr("aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ%", conversion[1]))
            n = strftime(piece, sizeof piece, conversion, &now);
        else if (!builder_put(&b, str_from_to(format.s, i - 1, i + 1), format.user))
            return false;
        if (!builder_put(&b, (struct str){ piece, n }, false))
            return false;
    }
    *c->out = builder_value(&b);
    return true;
}

const struct builtin *template_global_find(struct str name)
{
    static const struct builtin table[] = {
        { "raise_exception", "message", global_raise },    { "namespace", "*", global_namespace },
        { "range", "start stop? step?", global_range },    { "dict", "*", global_dict },
        { "strftime_now", "format", global_strftime_now },
    };
    return builtin_find(table, sizeof table / sizeof *table, name);
}
