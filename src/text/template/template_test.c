// template_test.c - the tests of the template language: x is NAME.
#include "text/template/template_builtin.h"
#include "text/template/template_node.h"

static bool answer(struct call *c, bool yes)
{
    *c->out = value_bool(yes);
    return true;
}

bool test_kind(struct render *r, struct call *c)
{
    return render_spend(r, 1) && answer(c, c->mode & KIND(c->self->kind));
}

bool test_sequence(struct render *r, struct call *c)
{
    bool generator = c->self->kind == VALUE_LIST && c->self->list->kind == LIST_GENERATOR;
    return render_spend(r, 1) && answer(c, !generator && (KINDS_ITERABLE & KIND(c->self->kind)));
}

bool test_bool(struct render *r, struct call *c)
{
    return render_spend(r, 1) && answer(c, c->self->kind == VALUE_BOOL && c->self->b == c->mode);
}

bool test_escaped(struct render *r, struct call *c)
{
    return render_spend(r, 1) && answer(c, c->self->safe);
}

static bool divides(struct render *r, struct value a, int64_t by, int64_t *rest)
{
    struct value out;

    if (!value_binary(r, OP_MOD, (const struct value[]){ a, value_int(by) }, &out))
        return false;
    *rest = out.kind == VALUE_FLOAT ? out.f != 0 : value_is_integer(out) ? value_as_int(out) : -1;
    return true;
}

bool test_divisibleby(struct render *r, struct call *c)
{
    int64_t rest;
    return divides(r, *c->self, c->number[0], &rest) && answer(c, rest == 0);
}

bool test_remainder(struct render *r, struct call *c)
{
    int64_t rest;
    return divides(r, *c->self, 2, &rest) && answer(c, rest == c->mode);
}

bool test_equal(struct render *r, struct call *c)
{
    bool same;
    return value_equal(r, *c->self, *c->arg[0], &same) && answer(c, same == c->mode);
}

bool test_sameas(struct render *r, struct call *c)
{
    bool same;
    return value_equal(r, *c->self, *c->arg[0], &same) && answer(c, same && c->self->kind == c->arg[0]->kind);
}

bool test_in(struct render *r, struct call *c)
{
    bool found;
    return value_contains(r, *c->self, *c->arg[0], &found) && answer(c, found);
}

// An order of 2 is none: NaN is neither less nor greater.
bool test_order(struct render *r, struct call *c)
{
    int order;
    return value_order(r, *c->self, *c->arg[0], &order) && answer(c, c->mode & ORDER_LESS << (order + 1));
}

bool test_exists(struct render *r, struct call *c)
{
    struct value name;
    return call_argument_string(r, c->self, &name) &&
           answer(c, builtin_find((enum builtin_of)c->mode, name.s) != NULL);
}
