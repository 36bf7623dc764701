// template_global.c - the functions that a template calls by name: range, dict, namespace, raise_exception,
// strftime_now.
#include <time.h>
#include "text/template/template_builtin.h"

bool global_range(struct render *r, struct call *c)
{
    int64_t start = 0, stop, step = c->number[2], n = 0, span;

    if (c->arg[1]->kind == VALUE_ABSENT)
        stop = c->number[0];
    else if (start = c->number[0], !call_argument_int(r, c->arg[1], 0, &stop))
        return false;
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
        return render_fail(r, ERR_LIMIT, "a range of more than %llu items",
                           (unsigned long long)r->limits->range_items);
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

bool global_dict(struct render *r, struct call *c)
{
    if (c->raw->n > 1)
        return render_fail(r, ERR_INPUT, "dict expected at most 1 argument, got %zu", c->raw->n);
    if (!value_dict_new(r, c->raw->n_keywords, c->out) ||
        (c->raw->n && !add_pairs(r, c->raw->at[0], c->out->dict)))
        return false;
    for (size_t i = 0; i < c->raw->n_keywords; i++)
        if (!value_dict_set(r, c->out->dict, value_string(c->raw->keywords[i].name, false),
                            *c->raw->keywords[i].value))
            return false;
    c->out->kind = (uint8_t)c->mode;
    return true;
}

bool global_raise(struct render *r, struct call *c)
{
    return render_fail(r, ERR_INPUT, "%.*s", STR_ARG(c->arg[0]->s));
}

// One conversion at a time, letters only: a width in a format could produce any amount of text.
bool global_strftime_now(struct render *r, struct call *c)
{
    struct builder b = builder_start(r);
    time_t seconds = (time_t)r->unix_time;
    struct tm now;
    struct value format = *c->arg[0];
    char piece[128], conversion[3] = "%";

    if (!localtime_r(&seconds, &now))
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
