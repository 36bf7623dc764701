// template_call.c - calls of built-in functions, filters, tests and methods: arguments are bound to parameters in one place.
//
// A built-in declares its parameters as text ("old new count?"); too many, missing or unknown arguments are errors here, so that
// the functions themselves need no such checks.
#include "text/template/template_node.h"

const struct builtin *builtin_find(const struct builtin *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

struct binding {
    const struct builtin *builtin;
    const struct call_arguments *arguments;
    struct value *slots;
    size_t n_used; // keywords taken
};

static bool bind_one(struct render *r, struct binding *b, struct str name, size_t index)
{
    bool optional = str_ends(name, STR("?"));
    struct value *slot = &b->slots[index];

    name.n -= optional;
    if (index < b->arguments->n)
        *slot = b->arguments->at[index];
    for (size_t i = 0; i < b->arguments->n_keywords; i++) {
        if (!str_eq(b->arguments->keywords[i].name, name))
            continue;
        if (slot->kind != VALUE_ABSENT)
            return render_fail(r, ERR_INPUT, "%s: argument '%.*s' is given twice", b->builtin->name, STR_ARG(name));
        *slot = *b->arguments->keywords[i].value;
        b->n_used++;
    }
    if (slot->kind == VALUE_ABSENT && !optional)
        return render_fail(r, ERR_INPUT, "%s: argument '%.*s' is missing", b->builtin->name, STR_ARG(name));
    return true;
}

static bool bind_parameters(struct render *r, struct binding *b)
{
    const char *at = b->builtin->parameters;
    size_t index = 0;

    while (*at) {
        size_t n = strcspn(at, " ");
        if (!bind_one(r, b, (struct str){ at, n }, index++))
            return false;
        at += n + (at[n] == ' ');
    }
    if (b->arguments->n > index)
        return render_fail(r, ERR_INPUT, "%s takes at most %zu argument(s), %zu given", b->builtin->name, index, b->arguments->n);
    if (b->n_used < b->arguments->n_keywords)
        return render_fail(r, ERR_INPUT, "%s: unknown or repeated keyword argument", b->builtin->name);
    return true;
}

bool render_builtin(struct render *r, const struct builtin *builtin, struct value *self, const struct call_arguments *arguments,
                    struct value *out)
{
    struct value slots[CALL_MAX_PARAMETERS] = { 0 };
    struct binding b = { .builtin = builtin, .arguments = arguments, .slots = slots };
    struct call c = { .self = self, .raw = arguments, .out = out };

    *out = (struct value){ 0 };
    if (!render_spend(r, self->kind == VALUE_STRING ? 1 + self->s.n / 4 : 1))
        return false;
    if (builtin->parameters[0] != '*' && !bind_parameters(r, &b))
        return false;
    for (size_t i = 0; i < CALL_MAX_PARAMETERS; i++)
        c.arg[i] = &slots[i];
    return builtin->run(r, &c);
}

bool render_filter(struct render *r, struct str name, struct value *self, const struct call_arguments *arguments,
                   struct value *out)
{
    const struct builtin *builtin = template_filter_find(name);
    bool user = self->user;

    if (!builtin)
        return render_fail(r, ERR_UNSUPPORTED, "no filter named '%.*s'", STR_ARG(name));
    if (!render_builtin(r, builtin, self, arguments, out))
        return false;
    if (value_is_number(*out))
        out->user |= user;
    return true;
}

bool render_test(struct render *r, struct str name, struct value *self, const struct call_arguments *arguments, bool *out)
{
    const struct builtin *builtin = template_test_find(name);
    struct value result;

    if (!builtin)
        return render_fail(r, ERR_UNSUPPORTED, "no test named '%.*s'", STR_ARG(name));
    if (!render_builtin(r, builtin, self, arguments, &result))
        return false;
    *out = value_truth(result);
    return true;
}
