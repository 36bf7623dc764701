// template_eval.c - expressions: walks the tree and computes values.
//
// One function per kind of node, in a table. The depth of the walk is counted in one place. Where Python
// looks up an attribute of an object, only the table of built-in methods is searched: a template can reach
// nothing else.
#include "text/template/template_builtin.h"
#include "text/template/template_node.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"

static bool eval_const(struct render *r, const struct node *n, struct value *out)
{
    (void)r;
    *out = *n->value;
    return true;
}

static bool eval_name(struct render *r, const struct node *n, struct value *out)
{
    const struct builtin *global;

    if (!render_scope_find(r, n->name, n->hash, out))
        return false;
    if (out->kind != VALUE_ABSENT)
        return true;
    global = builtin_find(OF_GLOBAL, n->name);
    *out = global ? (struct value){ .kind = VALUE_BUILTIN, .builtin = global } : value_undefined(n->name);
    return true;
}

static bool eval_sequence(struct render *r, const struct node *n, struct value *out)
{
    if (!value_list_new(r, n->kind == NODE_TUPLE ? LIST_TUPLE : LIST_PLAIN, n->items.n, out))
        return false;
    for (uint32_t i = 0; i < n->items.n; i++)
        if (!render_eval(r, n->items.at[i], &out->list->at[i]))
            return false;
    out->list->grows = n->kind == NODE_LIST;
    return true;
}

static bool eval_dict(struct render *r, const struct node *n, struct value *out)
{
    struct value key, value;

    if (!value_dict_new(r, n->items.n / 2, out))
        return false;
    for (uint32_t i = 0; i + 1 < n->items.n; i += 2)
        if (!render_eval(r, n->items.at[i], &key) || !render_eval(r, n->items.at[i + 1], &value) ||
            !value_dict_set(r, out->dict, key, value))
            return false;
    return true;
}

static struct value missing(const struct value *object, struct str name)
{
    struct value v = value_undefined(name);

    v.owner = value_type_name(*object);
    return v;
}

static bool bind_method(struct render *r, const struct value *object, const struct builtin *method,
                        struct value *out)
{
    struct bound *bound = render_alloc(r, 1, sizeof *bound);

    if (!bound)
        return false;
    *bound = (struct bound){ *object, method };
    *out = (struct value){ .kind = VALUE_BOUND, .bound = bound };
    return true;
}

bool render_attribute(struct render *r, const struct value *object, struct str name, struct value *out)
{
    const struct builtin *method = builtin_find_method(object, name);

    if (!value_need_defined(r, *object))
        return false;
    if (str_starts(name, STR("__"))) {
        *out = missing(object, name); // Python's internal attributes do not exist here
        return true;
    }
    if (method)
        return bind_method(r, object, method, out);
    if (object->kind == VALUE_LOOP)
        return render_loop_attribute(r, object, name, out);
    *out = (struct value){ 0 };
    if (object->kind == VALUE_LIST && object->list->group &&
        (str_is(name, "grouper") || str_is(name, "list")))
        *out = object->list->at[str_is(name, "list")];
    if ((object->kind == VALUE_DICT || object->kind == VALUE_NAMESPACE) &&
        !value_dict_get(r, object->dict, value_string(name, false), out))
        return false;
    if (out->kind == VALUE_ABSENT)
        *out = missing(object, name);
    return true;
}

static bool item_at(struct render *r, const struct value *object, int64_t index, struct value *out)
{
    int64_t n;

    if (!value_length(r, *object, &n))
        return false;
    if (index < 0)
        index += n;
    if (index < 0 || index >= n) {
        *out = missing(object, STR("[index out of range]"));
        return true;
    }
    if (object->kind == VALUE_LIST) {
        *out = object->list->at[index];
        return true;
    }
    size_t from = char_offset(object->s, (size_t)index), to = from;
    char_next(object->s, &to);
    *out = value_part(*object, from, to);
    return true;
}

bool render_item(struct render *r, const struct value *object, const struct value *key, struct value *out)
{
    bool sequence =
        object->kind == VALUE_STRING || (object->kind == VALUE_LIST && object->list->kind != LIST_GENERATOR);
    bool hashable = key->kind != VALUE_DICT && !(key->kind == VALUE_LIST && key->list->kind == LIST_PLAIN);

    if (!value_need_defined(r, *object))
        return false;
    if (sequence && value_is_integer(*key))
        return item_at(r, object, value_as_int(*key), out);
    if (object->kind == VALUE_DICT && hashable) {
        if (!value_dict_get(r, object->dict, *key, out))
            return false;
        if (out->kind != VALUE_ABSENT)
            return true;
    }
    if (key->kind == VALUE_STRING)
        return render_attribute(r, object, key->s, out);
    *out = missing(object, STR("[item]"));
    return true;
}

static bool eval_attribute(struct render *r, const struct node *n, struct value *out)
{
    struct value object;
    return render_eval(r, n->a, &object) && render_attribute(r, &object, n->name, out);
}

static bool eval_item(struct render *r, const struct node *n, struct value *out)
{
    struct value object, key;
    return render_eval(r, n->a, &object) && render_eval(r, n->b, &key) && render_item(r, &object, &key, out);
}

static bool slice_bound(struct render *r, const struct node *n, bool *given, int64_t *value)
{
    struct value v;

    *given = false;
    if (!n)
        return true;
    if (!render_eval(r, n, &v))
        return false;
    if (v.kind == VALUE_NONE)
        return true;
    if (!value_is_integer(v))
        return render_fail(r, ERR_INPUT, "slice indices must be integers or None, not %s",
                           value_type_name(v));
    *given = true;
    *value = value_as_int(v);
    return true;
}

// Python's rules: negative counts from the end, then clipped to what the direction allows.
static int64_t slice_clip(bool given, int64_t value, int64_t n, int64_t step, int64_t otherwise)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;

    if (!given)
        return otherwise;
    if (value < 0)
        value = value < -n ? low : value + n;
    return value < low ? low : value > high ? high : value;
}

struct slice { // items start, start + step, ...
    int64_t start, step, count;
};

static bool slice_string(struct render *r, struct value text, struct slice s, struct value *out)
{
    struct builder b = builder_start(r);
    struct list items;

    if (s.step == 1) {
        size_t from = char_offset(text.s, (size_t)s.start);
        struct str rest = str_from_to(text.s, from, text.s.n);
        *out = value_part(text, from, from + char_offset(rest, (size_t)s.count));
        return true;
    }
    if (!value_items(r, text, &items))
        return false;
    for (int64_t i = 0; i < s.count; i++)
        if (!builder_put_value(&b, items.at[s.start + i * s.step]))
            return false;
    *out = builder_value(&b);
    out->safe = text.safe;
    return true;
}

static bool slice_list(struct render *r, const struct list *list, struct slice s, struct value *out)
{
    if (!value_list_new(r, list->kind, s.step == 1 ? 0 : (size_t)s.count, out))
        return false;
    out->list->n = (size_t)s.count;
    if (s.step == 1 && s.count)
        out->list->at = list->at + s.start;
    for (int64_t i = 0; s.step != 1 && i < s.count; i++)
        out->list->at[i] = list->at[s.start + i * s.step];
    return true;
}

static bool eval_slice(struct render *r, const struct node *n, struct value *out)
{
    struct value object;
    int64_t start = 0, stop = 0, step = 1, length;
    bool has_start, has_stop, has_step;

    if (!render_eval(r, n->a, &object) || !value_need_defined(r, object) ||
        !slice_bound(r, n->items.at[0], &has_start, &start) ||
        !slice_bound(r, n->items.at[1], &has_stop, &stop) ||
        !slice_bound(r, n->items.at[2], &has_step, &step))
        return false;
    if (object.kind != VALUE_STRING && (object.kind != VALUE_LIST || object.list->kind == LIST_GENERATOR))
        return render_fail(r, ERR_INPUT, "'%s' object cannot be sliced", value_type_name(object));
    if (step == 0)
        return render_fail(r, ERR_INPUT, "slice step cannot be zero");
    if (!value_length(r, object, &length))
        return false;
    if (step < -length - 1 || step > length + 1) // gives the same result without overflow below
        step = step < 0 ? -length - 1 : length + 1;
    start = slice_clip(has_start, start, length, step, step < 0 ? length - 1 : 0);
    stop = slice_clip(has_stop, stop, length, step, step < 0 ? -1 : length);
    int64_t span = step < 0 ? start - stop : stop - start, stride = step < 0 ? -step : step;
    struct slice s = { start, step, span > 0 ? (span + stride - 1) / stride : 0 };
    return object.kind == VALUE_STRING ? slice_string(r, object, s, out) : slice_list(r, object.list, s, out);
}

static bool add_splat_keywords(struct render *r, const struct dict *dict, struct call_arguments *out)
{
    for (size_t i = 0; i < dict->n; i++) {
        if (dict->at[i].key.kind != VALUE_STRING)
            return render_fail(r, ERR_INPUT, "keywords must be strings");
        out->keywords[out->n_keywords++] = (struct keyword){ dict->at[i].key.s, &dict->at[i].value };
    }
    return true;
}

static bool eval_splats(struct render *r, const struct node_arguments *a, struct list *items,
                        struct dict *keywords)
{
    struct value v;

    if (a->splat && (!render_eval(r, a->splat, &v) || !value_items(r, v, items)))
        return false;
    if (!a->splat_keywords)
        return true;
    if (!render_eval(r, a->splat_keywords, &v))
        return false;
    if (v.kind != VALUE_DICT)
        return render_fail(r, ERR_INPUT, "argument after ** must be a mapping, not %s", value_type_name(v));
    *keywords = *v.dict;
    return true;
}

static bool eval_arguments(struct render *r, const struct node_arguments *a, struct call_arguments *out)
{
    struct list items = { 0 };
    struct dict keywords = { 0 };

    *out = (struct call_arguments){ 0 };
    if (!a)
        return true;
    size_t n = a->positional.n, n_keywords = a->keywords.n;
    // Arguments are evaluated in the order of the source; the items of a splat come last.
    if (!(out->at = render_alloc(r, n, sizeof *out->at)))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!render_eval(r, a->positional.at[i], &out->at[i]))
            return false;
    struct value *values = n_keywords ? render_alloc(r, n_keywords, sizeof *values) : NULL;
    if (n_keywords && !values)
        return false;
    for (uint32_t i = 0; i < n_keywords; i++)
        if (!render_eval(r, a->keywords.at[i], &values[i]))
            return false;
    if (!eval_splats(r, a, &items, &keywords))
        return false;
    if (n_keywords + keywords.n &&
        !(out->keywords = render_alloc(r, n_keywords + keywords.n, sizeof *out->keywords)))
        return false;
    for (uint32_t i = 0; i < n_keywords; i++)
        out->keywords[out->n_keywords++] = (struct keyword){ a->names[i], &values[i] };
    out->n = n;
    if (items.n) {
        struct value *all = render_alloc(r, n + items.n, sizeof *all);
        if (!all)
            return false;
        if (n)
            memcpy(all, out->at, n * sizeof *all);
        memcpy(all + n, items.at, items.n * sizeof *all);
        out->at = all;
        out->n = n + items.n;
    }
    return add_splat_keywords(r, &keywords, out);
}

static bool call_value(struct render *r, const struct value *callee, const struct call_arguments *arguments,
                       struct value *out)
{
    struct value self = { 0 };

    if (!value_need_defined(r, *callee))
        return false;
    switch (callee->kind) {
    case VALUE_BUILTIN:
        return render_builtin(r, callee->builtin, &self, arguments, out);
    case VALUE_BOUND:
        self = callee->bound->self;
        return render_builtin(r, callee->bound->builtin, &self, arguments, out);
    case VALUE_MACRO:
        return render_call_macro(r, callee, arguments, out);
    case VALUE_LOOP:
        if (arguments->n != 1 || arguments->n_keywords)
            return render_fail(r, ERR_INPUT, "loop() takes one argument");
        return render_call_loop(r, &arguments->at[0], callee, out);
    default:
        return render_fail(r, ERR_INPUT, "'%s' object is not callable", value_type_name(*callee));
    }
}

static bool add_caller(struct render *r, struct value *caller, struct call_arguments *arguments)
{
    struct keyword *keywords = render_alloc(r, arguments->n_keywords + 1, sizeof *keywords);

    if (!keywords)
        return false;
    if (arguments->n_keywords)
        memcpy(keywords, arguments->keywords, arguments->n_keywords * sizeof *keywords);
    keywords[arguments->n_keywords++] = (struct keyword){ STR("caller"), caller };
    arguments->keywords = keywords;
    return true;
}

static bool eval_call(struct render *r, const struct node *n, struct value *out)
{
    struct value callee, *caller = r->caller;
    struct call_arguments arguments;

    r->caller = NULL;
    if (!render_eval(r, n->a, &callee) || !eval_arguments(r, n->arguments, &arguments) ||
        (caller && !add_caller(r, caller, &arguments)))
        return false;
    r->line = n->line;
    return call_value(r, &callee, &arguments, out);
}

static bool eval_filter(struct render *r, const struct node *n, struct value *out)
{
    struct value self;
    struct call_arguments arguments;

    if (!render_eval(r, n->a, &self) || !eval_arguments(r, n->arguments, &arguments))
        return false;
    r->line = n->line;
    return render_filter(r, n->name, &self, &arguments, out);
}

static bool eval_test(struct render *r, const struct node *n, struct value *out)
{
    struct value self;
    struct call_arguments arguments;
    bool result;

    if (!render_eval(r, n->a, &self) || !eval_arguments(r, n->arguments, &arguments))
        return false;
    r->line = n->line;
    if (!render_test(r, n->name, &self, &arguments, &result))
        return false;
    *out = value_bool(result);
    return true;
}

static bool eval_not(struct render *r, const struct node *n, struct value *out)
{
    struct value v;

    if (!render_eval(r, n->a, &v))
        return false;
    *out = value_bool(!value_truth(v));
    return true;
}

static bool eval_sign(struct render *r, const struct node *n, struct value *out)
{
    struct value v;

    if (!render_eval(r, n->a, &v) || !value_need_defined(r, v))
        return false;
    if (!value_is_number(v))
        return render_fail(r, ERR_INPUT, "bad operand type for unary %c: '%s'",
                           n->kind == NODE_NEGATE ? '-' : '+', value_type_name(v));
    bool user = v.user;
    if (n->kind == NODE_PLUS)
        *out = v.kind == VALUE_BOOL ? value_int(v.b) : v;
    else if (v.kind == VALUE_FLOAT)
        *out = value_float(-v.f);
    else if (value_as_int(v) == INT64_MIN)
        return render_fail(r, ERR_LIMIT, "a whole number does not fit 64 bits");
    else
        *out = value_int(-value_as_int(v));
    out->user = user;
    return true;
}

static bool eval_and_or(struct render *r, const struct node *n, struct value *out)
{
    if (!render_eval(r, n->a, out))
        return false;
    return value_truth(*out) == (n->kind == NODE_OR) || render_eval(r, n->b, out);
}

static bool eval_binary(struct render *r, const struct node *n, struct value *out)
{
    struct value a, b;

    if (!render_eval(r, n->a, &a) || !render_eval(r, n->b, &b))
        return false;
    r->line = n->line;
    return value_binary(r, n->op, (const struct value[]){ a, b }, out);
}

static bool eval_concat(struct render *r, const struct node *n, struct value *out)
{
    struct builder b = builder_start(r);
    struct value v;

    for (uint32_t i = 0; i < n->items.n; i++)
        if (!render_eval(r, n->items.at[i], &v) || !show_value(&b, v))
            return false;
    *out = builder_value(&b);
    return true;
}

static bool compare(struct render *r, enum operator_kind op, struct value a, struct value b, bool *result)
{
    int order;

    switch (op) {
    case OP_EQ:
        return value_equal(r, a, b, result);
    case OP_NE:
        if (!value_equal(r, a, b, result))
            return false;
        *result = !*result;
        return true;
    case OP_IN:
        return value_contains(r, a, b, result);
    case OP_NOT_IN:
        if (!value_contains(r, a, b, result))
            return false;
        *result = !*result;
        return true;
    default:
        if (!value_order(r, a, b, &order))
            return false;
        *result = order != 2 && (op == OP_LT   ? order < 0
                                 : op == OP_LE ? order <= 0
                                 : op == OP_GT ? order > 0
                                               : order >= 0);
        return true;
    }
}

static bool eval_compare(struct render *r, const struct node *n, struct value *out)
{
    struct value a, b;
    bool result = true;

    if (!render_eval(r, n->a, &a))
        return false;
    for (uint32_t i = 0; i < n->items.n && result; i++, a = b)
        if (!render_eval(r, n->items.at[i], &b) || !compare(r, n->ops[i], a, b, &result))
            return false;
    *out = value_bool(result);
    return true;
}

static bool eval_condition(struct render *r, const struct node *n, struct value *out)
{
    struct value condition;

    if (!render_eval(r, n->b, &condition))
        return false;
    if (value_truth(condition))
        return render_eval(r, n->a, out);
    *out = value_undefined(STR("the inline if-expression without else"));
    return !n->c || render_eval(r, n->c, out);
}

static bool eval_captured(struct render *r, const struct node *n, struct value *out)
{
    (void)n;
    *out = *r->captured;
    return true;
}

bool render_eval(struct render *r, const struct node *n, struct value *out)
{
    static bool (*const table[])(struct render * r, const struct node *n, struct value *out) = {
        [NODE_CONST] = eval_const,     [NODE_NAME] = eval_name,           [NODE_LIST] = eval_sequence,
        [NODE_TUPLE] = eval_sequence,  [NODE_DICT] = eval_dict,           [NODE_ATTRIBUTE] = eval_attribute,
        [NODE_ITEM] = eval_item,       [NODE_SLICE] = eval_slice,         [NODE_CALL] = eval_call,
        [NODE_FILTER] = eval_filter,   [NODE_TEST] = eval_test,           [NODE_NOT] = eval_not,
        [NODE_NEGATE] = eval_sign,     [NODE_PLUS] = eval_sign,           [NODE_AND] = eval_and_or,
        [NODE_OR] = eval_and_or,       [NODE_BINARY] = eval_binary,       [NODE_CONCAT] = eval_concat,
        [NODE_COMPARE] = eval_compare, [NODE_CONDITION] = eval_condition, [NODE_CAPTURED] = eval_captured,
    };

    r->line = n->line;
    if (!render_spend(r, 1))
        return false;
    if (r->depth >= RENDER_MAX_DEPTH)
        return render_fail(r, ERR_LIMIT, "evaluation deeper than %d", RENDER_MAX_DEPTH);
    r->depth++;
    bool ok = table[n->kind](r, n, out);
    r->depth--;
    return ok;
}
