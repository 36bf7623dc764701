// template_call.c - calls of filters, tests, global functions and methods: one place looks them up and binds
// arguments to parameters.
//
// A parameter is a name with its type:
//   name    any value            name?    any value, or VALUE_ABSENT
//   name:s  a string             name:t   str(value)
//   name:i  a whole number       name=N   a whole number, N when absent
//   name:b  whether the value is true; false when absent
// None counts as an absent number. Too many, missing, unknown and wrong arguments are errors here, not in the
// functions.
#include "text/template/template_builtin.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"
#include "text/template/template_string.h"

static const struct builtin builtins[] = {
#define BUILTIN(of, name, self, parameters, function, mode) \
    { of, self, sizeof name - 1, mode, name, parameters, function },
#include "text/template/template_builtins.def"
#undef BUILTIN
};

const struct builtin *builtin_find(enum builtin_of of, struct str name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (builtins[i].of == of && builtins[i].n_name == name.n &&
            !memcmp(builtins[i].name, name.at, name.n))
            return &builtins[i];
    return NULL;
}

const struct builtin *builtin_find_method(const struct value *self, struct str name)
{
    switch (self->kind) {
    case VALUE_STRING:
        return builtin_find(OF_STRING, name);
    case VALUE_DICT:
        return builtin_find(OF_DICT, name);
    case VALUE_LIST:
        return self->list->kind == LIST_GENERATOR ? NULL : builtin_find(OF_LIST, name);
    case VALUE_LOOP:
        return builtin_find(OF_LOOP, name);
    default:
        return NULL;
    }
}

bool call_argument_int(struct render *r, const struct value *v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v->kind == VALUE_ABSENT || v->kind == VALUE_NONE)
        return true;
    if (!value_need_defined(r, *v))
        return false;
    if (!value_is_integer(*v))
        return render_fail(r, ERR_INPUT, "'%s' object cannot be interpreted as an integer",
                           value_type_name(*v));
    *out = value_as_int(*v);
    return true;
}

bool call_argument_string(struct render *r, const struct value *v, struct value *out)
{
    *out = *v;
    return v->kind == VALUE_STRING ||
           render_fail(r, ERR_INPUT, "expected a str, not %s", value_type_name(*v));
}

struct binding {
    const struct builtin *builtin;
    const struct call_arguments *arguments;
    struct value *slots;
    int64_t *numbers;
    size_t n_used; // keywords taken
};

static bool convert(struct render *r, struct str type, struct value *slot, int64_t *number)
{
    switch (type.n ? type.at[0] : 0) {
    case '=':
        str_to_i64(str_from_to(type, 1, type.n), number);
        return call_argument_int(r, slot, *number, number);
    case ':':
        break;
    default:
        return true;
    }
    switch (type.at[1]) {
    case 's':
        return call_argument_string(r, slot, slot);
    case 't':
        return show_string(r, *slot, slot);
    case 'i':
        return call_argument_int(r, slot, 0, number);
    default:
        *number = slot->kind != VALUE_ABSENT && value_truth(*slot);
        return true;
    }
}

static bool bind_one(struct render *r, struct binding *b, struct str parameter, size_t index)
{
    size_t n = 0;
    struct value *slot = &b->slots[index];

    while (n < parameter.n && char_is_name((unsigned char)parameter.at[n]))
        n++;
    struct str name = str_from_to(parameter, 0, n), type = str_from_to(parameter, n, parameter.n);
    bool optional = type.n && (strchr("?=", type.at[0]) || str_is(type, ":b"));
    if (index < b->arguments->n)
        *slot = b->arguments->at[index];
    for (size_t i = 0; i < b->arguments->n_keywords; i++) {
        if (!str_eq(b->arguments->keywords[i].name, name))
            continue;
        if (slot->kind != VALUE_ABSENT)
            return render_fail(r, ERR_INPUT, "%s: argument '%.*s' is given twice", b->builtin->name,
                               STR_ARG(name));
        *slot = *b->arguments->keywords[i].value;
        b->n_used++;
    }
    if (slot->kind == VALUE_ABSENT && !optional)
        return render_fail(r, ERR_INPUT, "%s: argument '%.*s' is missing", b->builtin->name, STR_ARG(name));
    return convert(r, type, slot, &b->numbers[index]);
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
        return render_fail(r, ERR_INPUT, "%s takes at most %zu argument(s), %zu given", b->builtin->name,
                           index, b->arguments->n);
    if (b->n_used < b->arguments->n_keywords)
        return render_fail(r, ERR_INPUT, "%s: unknown or repeated keyword argument", b->builtin->name);
    return true;
}

bool render_builtin(struct render *r, const struct builtin *builtin, const struct value *self,
                    const struct call_arguments *arguments, struct value *out)
{
    struct value slots[CALL_MAX_PARAMETERS] = { 0 }, text;
    struct call c = { .self = self, .raw = arguments, .out = out, .mode = builtin->mode };
    struct binding b = { .builtin = builtin, .arguments = arguments, .slots = slots, .numbers = c.number };

    *out = (struct value){ 0 };
    if (!render_spend(r, self->kind == VALUE_STRING ? 1 + self->s.n / 4 : 1))
        return false;
    if (builtin->parameters[0] != '*' && !bind_parameters(r, &b))
        return false;
    for (size_t i = 0; i < CALL_MAX_PARAMETERS; i++)
        c.arg[i] = &slots[i];
    if (builtin->self == TEXT) {
        if (!show_string(r, *self, &text))
            return false;
        c.self = &text;
    }
    return builtin->run(r, &c);
}

bool render_filter(struct render *r, struct str name, const struct value *self,
                   const struct call_arguments *arguments, struct value *out)
{
    const struct builtin *builtin = builtin_find(OF_FILTER, name);
    bool user = self->user;

    if (!builtin)
        return render_fail(r, ERR_UNSUPPORTED, "no filter named '%.*s'", STR_ARG(name));
    if (!render_builtin(r, builtin, self, arguments, out))
        return false;
    if (value_is_number(*out))
        out->user |= user;
    return true;
}

bool render_test(struct render *r, struct str name, const struct value *self,
                 const struct call_arguments *arguments, bool *out)
{
    const struct builtin *builtin = builtin_find(OF_TEST, name);
    struct value result;

    if (!builtin)
        return render_fail(r, ERR_UNSUPPORTED, "no test named '%.*s'", STR_ARG(name));
    if (!render_builtin(r, builtin, self, arguments, &result))
        return false;
    *out = value_truth(result);
    return true;
}
