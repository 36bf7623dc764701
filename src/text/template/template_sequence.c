// template_sequence.c - filters on sequences.
//
// These filters return a generator where Python does: it is true even when it is empty, and it can be read
// once.
#include "text/template/template_builtin.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

// The value at a path such as "function.name" or "0.text"; `otherwise`, unless absent, replaces each missing
// part.
static bool attribute_at(struct render *r, struct value item, struct str path, const struct value *otherwise,
                         struct value *out)
{
    *out = item;
    while (path.n || path.at) {
        size_t end = 0;
        uint64_t index;
        struct value key, object = *out;
        while (end < path.n && path.at[end] != '.')
            end++;
        struct str part = str_from_to(path, 0, end);
        bool number = str_to_u64(part, &index) && index <= INT64_MAX;
        key = number ? value_int((int64_t)index) : value_string(part, false);
        if (!render_spend(r, 1) || !render_item(r, &object, &key, out))
            return false;
        if (out->kind == VALUE_UNDEFINED && otherwise->kind != VALUE_ABSENT)
            *out = *otherwise;
        if (end == path.n)
            break;
        path = str_from_to(path, end + 1, path.n);
    }
    return true;
}

static bool attribute_or(struct render *r, struct value item, const struct value *attribute,
                         const struct value *otherwise, struct value *out)
{
    *out = item;
    if (attribute->kind == VALUE_ABSENT || attribute->kind == VALUE_NONE)
        return true;
    if (attribute->kind == VALUE_STRING)
        return attribute_at(r, item, attribute->s, otherwise, out);
    if (!render_item(r, &item, attribute, out))
        return false;
    if (out->kind == VALUE_UNDEFINED && otherwise->kind != VALUE_ABSENT)
        *out = *otherwise;
    return true;
}

static bool attribute_of(struct render *r, struct value item, const struct value *attribute,
                         struct value *out)
{
    static const struct value absent;
    return attribute_or(r, item, attribute, &absent, out);
}

static bool ignore_case(struct render *r, struct value *v)
{
    struct value lower;

    if (v->kind != VALUE_STRING)
        return true;
    if (!render_spend(r, v->s.n / 8) || !string_case(r, *v, CASE_LOWER, &lower))
        return false;
    *v = lower;
    return true;
}

// map and select give no items for a false value, including None.
static bool items_if_true(struct render *r, struct value v, struct list *items)
{
    *items = (struct list){ 0 };
    return !value_truth(v) || value_items(r, v, items);
}

bool sequence_length(struct render *r, struct call *c)
{
    int64_t n;

    if (!value_length(r, *c->self, &n))
        return false;
    *c->out = value_int(n);
    return true;
}

bool sequence_list(struct render *r, struct call *c)
{
    struct list items;

    if (!value_items(r, *c->self, &items) || !value_list_share(r, LIST_PLAIN, items, c->out))
        return false;
    c->out->list->grows = true;
    return true;
}

bool sequence_join(struct render *r, struct call *c)
{
    struct value separator = *c->arg[0], mapped;
    struct list items;

    if (separator.kind == VALUE_ABSENT)
        separator = value_string(STR(""), false);
    if (!value_items(r, *c->self, &items) || !show_string(r, separator, &separator))
        return false;
    separator.safe = false; // unlike the method, the filter escapes nothing
    if (c->arg[1]->kind == VALUE_ABSENT || c->arg[1]->kind == VALUE_NONE)
        return string_join(r, separator, &items, c->out);
    if (!value_list_new(r, LIST_PLAIN, items.n, &mapped))
        return false;
    for (size_t i = 0; i < items.n; i++)
        if (!attribute_of(r, items.at[i], c->arg[1], &mapped.list->at[i]))
            return false;
    return string_join(r, separator, mapped.list, c->out);
}

static bool pair(struct render *r, struct value a, struct value b, struct value *out)
{
    if (!value_list_new(r, LIST_TUPLE, 2, out))
        return false;
    out->list->at[0] = a;
    out->list->at[1] = b;
    return true;
}

bool value_dict_items(struct render *r, const struct dict *dict, enum list_kind kind, struct value *out)
{
    if (!value_list_new(r, kind, dict->n, out))
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if (!pair(r, dict->at[i].key, dict->at[i].value, &out->list->at[i]))
            return false;
    return true;
}

bool sequence_items(struct render *r, struct call *c)
{
    if (c->self->kind == VALUE_UNDEFINED)
        return value_list_new(r, LIST_GENERATOR, 0, c->out);
    if (c->self->kind != VALUE_DICT)
        return render_fail(r, ERR_INPUT, "Can only get item pairs from a mapping.");
    return value_dict_items(r, c->self->dict, LIST_GENERATOR, c->out);
}

bool sequence_first(struct render *r, struct call *c)
{
    struct list *list = c->self->kind == VALUE_LIST ? c->self->list : NULL;
    struct list items;

    if (list && list->kind == LIST_GENERATOR && list->n) {
        *c->out = *list->at++;
        list->n--;
        return true;
    }
    if (!value_items(r, *c->self, &items))
        return false;
    *c->out = items.n ? items.at[0] : value_undefined(STR("first item of an empty sequence"));
    return true;
}

bool sequence_last(struct render *r, struct call *c)
{
    struct list items;

    if (c->self->kind == VALUE_LIST && c->self->list->kind == LIST_GENERATOR)
        return render_fail(r, ERR_INPUT, "'generator' object is not reversible");
    if (!value_items(r, *c->self, &items))
        return false;
    *c->out = items.n ? items.at[items.n - 1] : value_undefined(STR("last item of an empty sequence"));
    c->out->safe |= c->self->safe;
    return true;
}

bool sequence_reverse(struct render *r, struct call *c)
{
    bool text = c->self->kind == VALUE_STRING;
    struct builder b = builder_start(r);
    struct list items;

    if (!value_items(r, *c->self, &items) || !value_list_new(r, LIST_GENERATOR, items.n, c->out))
        return false;
    for (size_t i = 0; i < items.n; i++) {
        c->out->list->at[i] = items.at[items.n - 1 - i];
        if (text && !builder_put_value(&b, c->out->list->at[i]))
            return false;
    }
    if (text) {
        *c->out = builder_value(&b);
        c->out->safe = c->self->safe;
    }
    return true;
}

// --- map, select, reject: the arguments after the name go to the named filter or test ---

static struct call_arguments arguments_after(const struct call_arguments *raw, size_t n)
{
    return (struct call_arguments){ raw->at + n, raw->n - n, raw->keywords, raw->n_keywords };
}

static bool map_attribute(struct render *r, struct call *c, const struct list *items)
{
    static const struct value absent;
    const struct value *attribute = render_keyword(c->raw, STR("attribute")),
                       *otherwise = render_keyword(c->raw, STR("default"));

    if (!attribute)
        return render_fail(r, ERR_INPUT, "map requires a filter argument");
    for (size_t i = 0; i < items->n; i++)
        if (!render_spend(r, 1) ||
            !attribute_or(r, items->at[i], attribute, otherwise ? otherwise : &absent, &c->out->list->at[i]))
            return false;
    return true;
}

bool sequence_map(struct render *r, struct call *c)
{
    struct list items;

    if (!items_if_true(r, *c->self, &items) || !value_list_new(r, LIST_GENERATOR, items.n, c->out))
        return false;
    if (c->raw->n == 0)
        return map_attribute(r, c, &items);
    struct call_arguments rest = arguments_after(c->raw, 1);
    if (c->raw->at[0].kind != VALUE_STRING)
        return render_fail(r, ERR_INPUT, "map requires the name of a filter");
    for (size_t i = 0; i < items.n; i++)
        if (!render_filter(r, c->raw->at[0].s, &items.at[i], &rest, &c->out->list->at[i]))
            return false;
    return true;
}

static bool passes(struct render *r, const struct call_arguments *raw, size_t at, struct value item,
                   bool *result)
{
    *result = value_truth(item);
    if (raw->n <= at)
        return true;
    struct call_arguments rest = arguments_after(raw, at + 1);
    if (raw->at[at].kind != VALUE_STRING)
        return render_fail(r, ERR_INPUT, "expected the name of a test, not %s", value_type_name(raw->at[at]));
    return render_test(r, raw->at[at].s, &item, &rest, result);
}

bool sequence_select(struct render *r, struct call *c)
{
    bool by_attribute = c->mode & SELECT_BY_ATTRIBUTE, wanted = c->mode & SELECT_WANTED;
    struct list items, kept = { 0 };

    if (by_attribute && c->raw->n == 0)
        return render_fail(r, ERR_INPUT, "Missing parameter for attribute name");
    if (!items_if_true(r, *c->self, &items) || !(kept.at = render_alloc(r, items.n, sizeof *kept.at)))
        return false;
    for (size_t i = 0; i < items.n; i++) {
        struct value v = items.at[i];
        bool result;
        if ((by_attribute && !attribute_of(r, items.at[i], &c->raw->at[0], &v)) ||
            !passes(r, c->raw, by_attribute ? 1 : 0, v, &result) || !render_spend(r, 1))
            return false;
        if (result == wanted)
            kept.at[kept.n++] = items.at[i];
    }
    return value_list_share(r, LIST_GENERATOR, kept, c->out);
}

// --- sorting ---

struct keyed {
    struct value key, item;
};

struct sort {
    struct render *r;
    struct keyed *at, *spare;
    size_t n;
    bool reverse;
};

static bool merge(struct sort *s, size_t from, size_t middle, size_t to)
{
    size_t a = from, b = middle, out = from;

    while (a < middle || b < to) {
        int order = a == middle ? 1 : -1;
        if (a < middle && b < to) {
            if (!value_order(s->r, s->at[a].key, s->at[b].key, &order))
                return false;
            order = order == 2 ? -1 : s->reverse ? -order : order;
        }
        s->spare[out++] = order <= 0 ? s->at[a++] : s->at[b++];
    }
    return true;
}

// A stable merge sort; comparing may fail.
static bool sort_run(struct sort *s)
{
    if (!(s->spare = render_alloc(s->r, s->n, sizeof *s->spare)))
        return false;
    for (size_t width = 1; width < s->n; width *= 2) {
        for (size_t from = 0; from < s->n; from += 2 * width) {
            size_t middle = from + width < s->n ? from + width : s->n,
                   to = middle + width < s->n ? middle + width : s->n;
            if (!merge(s, from, middle, to))
                return false;
        }
        struct keyed *swap = s->at;
        s->at = s->spare;
        s->spare = swap;
    }
    return true;
}

static bool sorted_list(struct sort *s, struct value *out)
{
    if (!sort_run(s) || !value_list_new(s->r, LIST_PLAIN, s->n, out))
        return false;
    for (size_t i = 0; i < s->n; i++)
        out->list->at[i] = s->at[i].item;
    return true;
}

// "a,b" sorts by a, then b: the key is the list of both.
static bool sort_key(struct render *r, struct value item, const struct value *attribute, bool fold,
                     struct value *key)
{
    const struct split commas = { .separator = value_string(STR(","), false), .limit = -1 };
    struct value paths;

    if (attribute->kind == VALUE_STRING) {
        if (!string_split(r, *attribute, &commas, &paths))
            return false;
    } else {
        if (!value_list_new(r, LIST_PLAIN, 1, &paths))
            return false;
        paths.list->at[0] = *attribute;
    }
    if (!value_list_new(r, LIST_PLAIN, paths.list->n, key))
        return false;
    for (size_t i = 0; i < paths.list->n; i++)
        if (!attribute_of(r, item, &paths.list->at[i], &key->list->at[i]) ||
            (fold && !ignore_case(r, &key->list->at[i])))
            return false;
    return true;
}

static bool sort_start(struct sort *s, const struct list *items, const struct value *attribute, bool fold)
{
    s->n = items->n;
    if (!(s->at = render_alloc(s->r, items->n, sizeof *s->at)))
        return false;
    for (size_t i = 0; i < items->n; i++) {
        s->at[i].item = items->at[i];
        if (!sort_key(s->r, items->at[i], attribute, fold, &s->at[i].key))
            return false;
    }
    return true;
}

bool sequence_sort(struct render *r, struct call *c)
{
    struct sort s = { .r = r, .reverse = c->number[0] };
    struct list items;

    return value_items(r, *c->self, &items) && sort_start(&s, &items, c->arg[2], !c->number[1]) &&
           sorted_list(&s, c->out);
}

bool sequence_dictsort(struct render *r, struct call *c)
{
    struct sort s = { .r = r, .reverse = c->number[2] };
    const struct value *by = c->arg[1];
    struct value items;
    bool by_value = by->kind == VALUE_STRING && str_is(by->s, "value");

    if (by->kind != VALUE_ABSENT && !by_value && !(by->kind == VALUE_STRING && str_is(by->s, "key")))
        return render_fail(r, ERR_INPUT, "You can only sort by either \"key\" or \"value\"");
    if (c->self->kind != VALUE_DICT)
        return render_fail(r, ERR_INPUT, "dictsort: expected a dict, not %s", value_type_name(*c->self));
    struct value index = value_int(by_value);
    return value_dict_items(r, c->self->dict, LIST_PLAIN, &items) &&
           sort_start(&s, items.list, &index, !c->number[0]) && sorted_list(&s, c->out);
}

bool sequence_extreme(struct render *r, struct call *c)
{
    struct list items;
    struct value best = { 0 }, key;
    bool fold = !c->number[0];
    int order, sign = c->mode;

    if (!value_items(r, *c->self, &items))
        return false;
    *c->out = value_undefined(STR("no aggregated item, sequence was empty"));
    for (size_t i = 0; i < items.n; i++) {
        if (!attribute_of(r, items.at[i], c->arg[1], &key) || (fold && !ignore_case(r, &key)))
            return false;
        order = -sign;
        if (i > 0 && !value_order(r, best, key, &order))
            return false;
        if (i > 0 && (order == 2 || order * sign >= 0))
            continue;
        best = key;
        *c->out = items.at[i];
    }
    return true;
}

bool sequence_unique(struct render *r, struct call *c)
{
    bool fold = !c->number[0];
    struct list items, kept = { 0 };
    struct value seen;

    if (!value_items(r, *c->self, &items) || !value_list_new(r, LIST_PLAIN, items.n, &seen) ||
        !(kept.at = render_alloc(r, items.n, sizeof *kept.at)))
        return false;
    seen.list->n = 0;
    for (size_t i = 0; i < items.n; i++) {
        struct value key;
        bool found;
        if (!attribute_of(r, items.at[i], c->arg[1], &key) || (fold && !ignore_case(r, &key)) ||
            !value_contains(r, key, seen, &found))
            return false;
        if (!found) {
            seen.list->at[seen.list->n++] = key;
            kept.at[kept.n++] = items.at[i];
        }
    }
    return value_list_share(r, LIST_GENERATOR, kept, c->out);
}

static bool make_group(struct render *r, struct value grouper, struct value *at, size_t n, struct value *out)
{
    struct value list;

    if (!value_list_copy(r, LIST_PLAIN, (struct list){ .at = at, .n = n }, &list) ||
        !pair(r, grouper, list, out))
        return false;
    out->list->group = true;
    return true;
}

bool sequence_groupby(struct render *r, struct call *c)
{
    struct sort s = { .r = r };
    struct list items;
    struct value sorted, key, next, *at;
    bool fold = !c->number[2], same;
    size_t n = 0, from = 0;

    if (!value_items(r, *c->self, &items) || !sort_start(&s, &items, c->arg[0], fold))
        return false;
    for (size_t i = 0; i < s.n && c->arg[1]->kind != VALUE_ABSENT; i++)
        if (s.at[i].key.list->at[0].kind == VALUE_UNDEFINED)
            s.at[i].key.list->at[0] = *c->arg[1];
    if (!sorted_list(&s, &sorted) || !value_list_new(r, LIST_PLAIN, s.n, c->out))
        return false;
    at = sorted.list->at;
    for (size_t i = 1; i <= s.n; i++) {
        if (i < s.n) {
            key = s.at[from].key;
            next = s.at[i].key;
            if (!value_equal(r, key, next, &same))
                return false;
            if (same)
                continue;
        }
        if (!attribute_of(r, at[from], c->arg[0], &key))
            return false;
        if (key.kind == VALUE_UNDEFINED && c->arg[1]->kind != VALUE_ABSENT)
            key = *c->arg[1];
        if (!make_group(r, fold ? key : s.at[from].key.list->at[0], at + from, i - from,
                        &c->out->list->at[n++]))
            return false;
        from = i;
    }
    c->out->list->n = n;
    return true;
}

bool sequence_sum(struct render *r, struct call *c)
{
    struct value total = c->arg[1]->kind == VALUE_ABSENT ? value_int(0) : *c->arg[1], item;
    struct list items;

    if (!value_items(r, *c->self, &items))
        return false;
    for (size_t i = 0; i < items.n; i++)
        if (!attribute_of(r, items.at[i], c->arg[0], &item) ||
            !value_binary(r, 0, (const struct value[]){ total, item }, &total) || !render_spend(r, 1))
            return false;
    *c->out = total;
    return true;
}

// Items from..to as a list; the caller fills in the items beyond the end.
static bool part_of(struct render *r, const struct list *items, size_t from, size_t to, struct value *out)
{
    if (!value_list_new(r, LIST_PLAIN, to - from, out))
        return false;
    for (size_t i = from; i < to && i < items->n; i++)
        out->list->at[i - from] = items->at[i];
    return true;
}

bool sequence_batch(struct render *r, struct call *c)
{
    const struct value *fill = c->arg[1];
    bool filled = fill->kind != VALUE_ABSENT && fill->kind != VALUE_NONE;
    struct list items;
    int64_t size = c->number[0];

    if (!value_items(r, *c->self, &items))
        return false;
    if (size <= 0 || (filled && (uint64_t)size > r->limits->range_items))
        return render_fail(r, ERR_INPUT, "batch: a size of %lld", (long long)size);
    size_t n = (size_t)size < items.n ? (size_t)size : items.n ? items.n : 1, count = (items.n + n - 1) / n;
    if (!value_list_new(r, LIST_GENERATOR, count, c->out))
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t from = i * n, to = from + n < items.n ? from + n : items.n,
               end = filled ? from + (size_t)size : to;
        if (!part_of(r, &items, from, end, &c->out->list->at[i]))
            return false;
        for (size_t k = to; k < end; k++)
            c->out->list->at[i].list->at[k - from] = *fill;
    }
    return true;
}

bool sequence_slice(struct render *r, struct call *c)
{
    const struct value *fill = c->arg[1];
    bool filled = fill->kind != VALUE_ABSENT && fill->kind != VALUE_NONE;
    struct list items;
    int64_t count = c->number[0];

    if (!value_items(r, *c->self, &items))
        return false;
    if (count <= 0 || (uint64_t)count > r->limits->range_items)
        return render_fail(r, ERR_INPUT, "slice: a count of %lld", (long long)count);
    size_t n = (size_t)count, each = items.n / n, extra = items.n % n, from = 0;
    if (!value_list_new(r, LIST_GENERATOR, n, c->out))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t to = from + each + (i < extra), end = to + (filled && i >= extra);
        if (!part_of(r, &items, from, end, &c->out->list->at[i]))
            return false;
        if (end > to)
            c->out->list->at[i].list->at[end - from - 1] = *fill;
        from = to;
    }
    return true;
}

bool sequence_attr(struct render *r, struct call *c)
{
    struct str name = c->arg[0]->s;

    *c->out = value_undefined(name); // attributes only, never the entries of a dict
    c->out->owner = value_type_name(*c->self);
    return c->self->kind == VALUE_DICT || render_attribute(r, c->self, name, c->out);
}
