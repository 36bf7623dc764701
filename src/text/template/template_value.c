// template_value.c - see template_value.h: truth, equality, order, lists, dicts, strings under construction,
// values from JSON.
//
// Functions that walk nested values count the depth: a template can nest lists as deep as its fuel lasts.
#include "text/template/template_value.h"
#include "text/template/template_char.h"

const char *value_type_name(struct value v)
{
    static const char *const names[] = {
        [VALUE_ABSENT] = "nothing", [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "None",      [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",     [VALUE_LIST] = "list",
        [VALUE_DICT] = "dict",      [VALUE_NAMESPACE] = "Namespace",
        [VALUE_LOOP] = "loop",      [VALUE_MACRO] = "macro",
        [VALUE_BOUND] = "method",   [VALUE_BUILTIN] = "function",
    };
    static const char *const lists[] = { "list", "tuple", "generator", "range" };
    return v.kind == VALUE_LIST ? lists[v.list->kind] : names[v.kind];
}

bool value_truth(struct value v)
{
    switch (v.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.b;
    case VALUE_INT:
        return v.i != 0;
    case VALUE_FLOAT:
        return v.f != 0;
    case VALUE_STRING:
        return v.s.n != 0;
    case VALUE_LIST:
        // as in Python, where a generator is not asked for its length
        return v.list->n != 0 || v.list->kind == LIST_GENERATOR;
    case VALUE_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

bool value_need_defined(struct render *r, struct value v)
{
    if (v.kind != VALUE_UNDEFINED)
        return true;
    if (v.owner)
        return render_fail(r, ERR_INPUT, "'%s' object has no attribute '%.*s'", v.owner, STR_ARG(v.s));
    return render_fail(r, ERR_INPUT, "'%.*s' is undefined", STR_ARG(v.s));
}

static bool enter_value(struct render *r, uint32_t depth)
{
    return depth < VALUE_MAX_DEPTH ||
           render_fail(r, ERR_LIMIT, "a value nested deeper than %d", VALUE_MAX_DEPTH);
}

static uint64_t compare_cost(struct value v)
{
    return 1 + (v.kind == VALUE_STRING ? v.s.n / 64 : 0);
}

static bool equal(struct render *r, struct value a, struct value b, bool *result, uint32_t depth);

static bool equal_lists(struct render *r, const struct list *a, const struct list *b, bool *result,
                        uint32_t depth)
{
    *result = a == b;
    if (a == b || a->kind != b->kind || a->n != b->n || a->kind == LIST_GENERATOR)
        return true;
    *result = true;
    for (size_t i = 0; i < a->n && *result; i++)
        if (!equal(r, a->at[i], b->at[i], result, depth + 1))
            return false;
    return true;
}

static bool equal_dicts(struct render *r, const struct dict *a, const struct dict *b, bool *result,
                        uint32_t depth)
{
    *result = a->n == b->n;
    for (size_t i = 0; i < a->n && *result && a != b; i++) {
        struct value other;
        if (!value_dict_get(r, b, a->at[i].key, &other))
            return false;
        *result = other.kind != VALUE_ABSENT;
        if (*result && !equal(r, a->at[i].value, other, result, depth + 1))
            return false;
    }
    return true;
}

static bool equal(struct render *r, struct value a, struct value b, bool *result, uint32_t depth)
{
    if (!render_spend(r, compare_cost(a)) || !enter_value(r, depth))
        return false;
    *result = false;
    if (value_is_integer(a) && value_is_integer(b))
        *result = value_as_int(a) == value_as_int(b);
    else if (value_is_number(a) && value_is_number(b))
        *result = value_as_float(a) == value_as_float(b);
    else if (a.kind != b.kind)
        return true;
    else if (a.kind == VALUE_STRING)
        *result = str_eq(a.s, b.s);
    else if (a.kind == VALUE_LIST)
        return equal_lists(r, a.list, b.list, result, depth);
    else if (a.kind == VALUE_DICT)
        return equal_dicts(r, a.dict, b.dict, result, depth);
    else
        *result = a.kind == VALUE_NONE || a.kind == VALUE_UNDEFINED || a.dict == b.dict;
    return true;
}

bool value_equal(struct render *r, struct value a, struct value b, bool *result)
{
    return equal(r, a, b, result, 0);
}

static bool order(struct render *r, struct value a, struct value b, int *result, uint32_t depth);

static bool order_lists(struct render *r, const struct list *a, const struct list *b, int *result,
                        uint32_t depth)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!equal(r, a->at[i], b->at[i], &same, depth + 1))
            return false;
        if (!same)
            return order(r, a->at[i], b->at[i], result, depth + 1);
    }
    *result = (a->n > b->n) - (a->n < b->n);
    return true;
}

static bool order(struct render *r, struct value a, struct value b, int *result, uint32_t depth)
{
    bool lists = a.kind == VALUE_LIST && b.kind == VALUE_LIST && a.list->kind == b.list->kind &&
                 a.list->kind <= LIST_TUPLE;

    if (!render_spend(r, compare_cost(a)) || !enter_value(r, depth) || !value_need_defined(r, a) ||
        !value_need_defined(r, b))
        return false;
    if (value_is_integer(a) && value_is_integer(b)) {
        int64_t x = value_as_int(a), y = value_as_int(b);
        *result = (x > y) - (x < y);
    } else if (value_is_number(a) && value_is_number(b)) {
        double x = value_as_float(a), y = value_as_float(b);
        *result = x != x || y != y ? 2 : (x > y) - (x < y);
    } else if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        *result = str_order(a.s, b.s);
    } else if (lists) {
        return order_lists(r, a.list, b.list, result, depth);
    } else {
        return render_fail(r, ERR_INPUT, "'%s' and '%s' have no order", value_type_name(a),
                           value_type_name(b));
    }
    return true;
}

bool value_order(struct render *r, struct value a, struct value b, int *result)
{
    return order(r, a, b, result, 0);
}

bool value_length(struct render *r, struct value v, int64_t *n)
{
    if (v.kind == VALUE_STRING)
        *n = (int64_t)char_count(v.s);
    else if (v.kind == VALUE_LIST)
        *n = (int64_t)v.list->n;
    else if (v.kind == VALUE_DICT)
        *n = (int64_t)v.dict->n;
    else if (v.kind == VALUE_UNDEFINED)
        *n = 0;
    else if (v.kind == VALUE_LOOP)
        return render_fail(r, ERR_INPUT, "loop has no length here; use loop.length");
    else
        return render_fail(r, ERR_INPUT, "object of type '%s' has no len()", value_type_name(v));
    return render_spend(r, v.kind == VALUE_STRING ? v.s.n / 32 : 0);
}

bool value_contains(struct render *r, struct value item, struct value in, bool *found)
{
    struct value at;

    *found = false;
    if (in.kind == VALUE_UNDEFINED)
        return true;
    if (in.kind == VALUE_DICT) {
        if (!value_dict_get(r, in.dict, item, &at))
            return false;
        *found = at.kind != VALUE_ABSENT;
        return true;
    }
    if (in.kind == VALUE_STRING) {
        if (item.kind != VALUE_STRING)
            return render_fail(r, ERR_INPUT, "'in <string>' requires string as left operand, not %s",
                               value_type_name(item));
        *found = str_find(in.s, item.s) != SIZE_MAX;
        return render_spend(r, in.s.n / 32);
    }
    if (in.kind != VALUE_LIST)
        return render_fail(r, ERR_INPUT, "argument of type '%s' is not iterable", value_type_name(in));
    for (size_t i = 0; i < in.list->n && !*found; i++)
        if (!value_equal(r, in.list->at[i], item, found))
            return false;
    return true;
}

bool value_list_new(struct render *r, enum list_kind kind, size_t n, struct value *out)
{
    struct list *list = render_spend(r, n / 4) ? render_alloc(r, 1, sizeof *list) : NULL;

    if (!list || !(list->at = render_alloc(r, n, sizeof *list->at)))
        return false;
    list->kind = kind;
    list->n = n;
    *out = (struct value){ .kind = VALUE_LIST, .list = list };
    return true;
}

bool value_list_share(struct render *r, enum list_kind kind, struct list items, struct value *out)
{
    if (!value_list_new(r, kind, 0, out))
        return false;
    out->list->at = items.at;
    out->list->n = items.n;
    return true;
}

bool value_list_copy(struct render *r, enum list_kind kind, struct list items, struct value *out)
{
    if (!value_list_new(r, kind, items.n, out))
        return false;
    if (items.n)
        memcpy(out->list->at, items.at, items.n * sizeof *items.at);
    return true;
}

bool value_list_push(struct render *r, struct list *list, struct value item)
{
    struct value *at = render_grow(r, list->at, list->n, &list->capacity, sizeof *at);

    if (!at)
        return false;
    list->at = at;
    list->at[list->n++] = item;
    return render_spend(r, 1);
}

static bool string_items(struct render *r, struct value text, struct list *items)
{
    struct value list;
    size_t at = 0;

    if (!render_spend(r, text.s.n / 32) || !value_list_new(r, LIST_PLAIN, char_count(text.s), &list))
        return false;
    for (size_t i = 0; i < list.list->n; i++) {
        size_t from = at;
        char_next(text.s, &at);
        list.list->at[i] = value_part(text, from, at);
        list.list->at[i].safe = false; // as Python iterates
    }
    *items = *list.list;
    return true;
}

bool value_items(struct render *r, struct value v, struct list *items)
{
    struct value keys;

    *items = (struct list){ 0 };
    switch (v.kind) {
    case VALUE_UNDEFINED:
        return true;
    case VALUE_STRING:
        return string_items(r, v, items);
    case VALUE_LIST:
        *items = *v.list;
        if (v.list->kind == LIST_GENERATOR)
            v.list->n = 0;
        return true;
    case VALUE_DICT:
        if (!value_list_new(r, LIST_PLAIN, v.dict->n, &keys))
            return false;
        for (size_t i = 0; i < v.dict->n; i++)
            keys.list->at[i] = v.dict->at[i].key;
        *items = *keys.list;
        return true;
    default:
        return render_fail(r, ERR_INPUT, "'%s' object is not iterable", value_type_name(v));
    }
}

bool value_dict_new(struct render *r, size_t capacity, struct value *out)
{
    struct dict *dict = render_alloc(r, 1, sizeof *dict);

    if (!dict || !(dict->at = render_alloc(r, capacity, sizeof *dict->at)))
        return false;
    dict->capacity = capacity;
    *out = (struct value){ .kind = VALUE_DICT, .dict = dict };
    return true;
}

static bool find_entry(struct render *r, const struct dict *dict, struct value key, struct entry **found)
{
    bool same = false;

    *found = NULL;
    if (key.kind == VALUE_DICT || (key.kind == VALUE_LIST && key.list->kind == LIST_PLAIN))
        return render_fail(r, ERR_INPUT, "unhashable type: '%s'", value_type_name(key));
    for (size_t i = 0; i < dict->n && !*found; i++) {
        const struct value *other = &dict->at[i].key;
        if (key.kind == VALUE_STRING && other->kind == VALUE_STRING)
            same = str_eq(key.s, other->s);
        else if (!value_equal(r, key, *other, &same))
            return false;
        if (same)
            *found = &dict->at[i];
    }
    return render_spend(r, dict->n / 8 + compare_cost(key));
}

bool value_dict_get(struct render *r, const struct dict *dict, struct value key, struct value *out)
{
    struct entry *found;

    if (!find_entry(r, dict, key, &found))
        return false;
    *out = found ? found->value : (struct value){ 0 };
    return true;
}

bool value_dict_set(struct render *r, struct dict *dict, struct value key, struct value value)
{
    struct entry *found;

    if (!find_entry(r, dict, key, &found))
        return false;
    if (found) {
        found->value = value;
        return true;
    }
    struct entry *at = render_grow(r, dict->at, dict->n, &dict->capacity, sizeof *at);
    if (!at)
        return false;
    dict->at = at;
    dict->at[dict->n++] = (struct entry){ key, value };
    return true;
}

static bool from_json(struct render *r, json_t *json, bool user, struct value *out, uint32_t depth);

static bool from_json_string(struct render *r, const char *at, size_t n, bool user, struct value *out)
{
    struct str s = { at, n };

    if (char_find_invalid(s) != SIZE_MAX)
        return render_fail(r, ERR_INPUT, "a variable holds text that is not valid UTF-8");
    *out = value_string(s, user);
    return render_spend(r, n / 64);
}

static bool from_json_object(struct render *r, json_t *json, bool user, struct value *out, uint32_t depth)
{
    const char *key;
    json_t *value;

    if (!value_dict_new(r, json_object_size(json), out))
        return false;
    json_object_foreach(json, key, value)
    {
        struct entry *entry = &out->dict->at[out->dict->n++];
        if (!from_json_string(r, key, strlen(key), user, &entry->key) ||
            !from_json(r, value, user, &entry->value, depth + 1))
            return false;
    }
    return true;
}

static bool from_json(struct render *r, json_t *json, bool user, struct value *out, uint32_t depth)
{
    if (!enter_value(r, depth) || !render_spend(r, 1))
        return false;
    *out = VALUE_OF_NONE;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return from_json_object(r, json, user, out, depth);
    case JSON_ARRAY:
        if (!value_list_new(r, LIST_PLAIN, json_array_size(json), out))
            return false;
        for (size_t i = 0; i < out->list->n; i++)
            if (!from_json(r, json_array_get(json, i), user, &out->list->at[i], depth + 1))
                return false;
        break;
    case JSON_STRING:
        return from_json_string(r, json_string_value(json), json_string_length(json), user, out);
    case JSON_INTEGER:
        *out = value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = value_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = value_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    out->user = user;
    return true;
}

bool value_from_json(struct render *r, json_t *json, bool user, struct value *out)
{
    return from_json(r, json, user, out, 0);
}

struct builder builder_start(struct render *r)
{
    return (struct builder){ .r = r, .max = SIZE_MAX / 4 };
}

static bool builder_reserve(struct builder *b, size_t n)
{
    size_t capacity = b->capacity ? b->capacity * 2 : 64;

    if (n > b->max - b->n)
        return render_fail(b->r, ERR_LIMIT, "more than %zu bytes of output", b->max);
    if (!render_spend(b->r, n / 32))
        return false;
    if (b->n + n <= b->capacity)
        return true;
    capacity = capacity < b->n + n ? b->n + n : capacity;
    char *at = render_alloc(b->r, capacity, 1);
    uint8_t *marks = at && b->marks ? render_alloc(b->r, capacity, 1) : NULL;
    if (!at || (b->marks && !marks))
        return false;
    if (b->n)
        memcpy(at, b->at, b->n);
    if (b->n && marks)
        memcpy(marks, b->marks, b->n);
    b->at = at;
    b->marks = marks;
    b->capacity = capacity;
    return true;
}

// From here on the origin is kept byte by byte.
static bool builder_mix(struct builder *b)
{
    if (!b->marks) {
        if (!(b->marks = render_alloc(b->r, b->capacity, 1)))
            return false;
        memset(b->marks, b->user, b->n);
    }
    return true;
}

bool builder_put(struct builder *b, struct str s, bool user)
{
    if (s.n == 0)
        return true;
    if (!builder_reserve(b, s.n))
        return false;
    if (b->n == 0)
        b->user = user;
    if (user != b->user && !builder_mix(b))
        return false;
    memcpy(b->at + b->n, s.at, s.n);
    if (b->marks)
        memset(b->marks + b->n, user, s.n);
    b->n += s.n;
    return true;
}

// A replacement of a character has that character's origin.
static bool put_escaped(struct builder *b, struct value text)
{
    static const char special[] = "&<>'\"", *const entities[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    size_t plain = 0;

    text.safe = true;
    if (!render_spend(b->r, text.s.n / 8))
        return false;
    for (size_t i = 0; i < text.s.n; i++) {
        const char *found = text.s.at[i] ? strchr(special, text.s.at[i]) : NULL;
        if (!found)
            continue;
        if (!builder_put_value(b, value_part(text, plain, i)) ||
            !builder_put(b, str_from(entities[found - special]), text.marks ? text.marks[i] : text.user))
            return false;
        plain = i + 1;
    }
    return builder_put_value(b, value_part(text, plain, text.s.n));
}

bool builder_put_value(struct builder *b, struct value text)
{
    if (b->safe && !text.safe)
        return put_escaped(b, text);
    if (!text.marks || text.s.n == 0)
        return builder_put(b, text.s, text.user);
    if (!builder_reserve(b, text.s.n) || !builder_mix(b))
        return false;
    memcpy(b->at + b->n, text.s.at, text.s.n);
    memcpy(b->marks + b->n, text.marks, text.s.n);
    b->n += text.s.n;
    return true;
}

struct value builder_value(const struct builder *b)
{
    struct value v = value_string((struct str){ b->at ? b->at : "", b->n }, b->user);

    v.marks = b->marks;
    v.safe = b->safe;
    return v;
}
