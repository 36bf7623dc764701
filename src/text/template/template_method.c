// template_method.c - methods of dicts, lists and loops. Those of strings are in template_text.c.
//
// Python's methods that change a list or a dict in place are refused, as by transformers' sandbox; but append
// works on a list that the template made itself, as in other engines.
#include "text/template/template_builtin.h"
#include "text/template/template_run.h"

bool method_get(struct render *r, struct call *c)
{
    if (!value_dict_get(r, c->self->dict, *c->arg[0], c->out))
        return false;
    if (c->out->kind == VALUE_ABSENT)
        *c->out = c->arg[1]->kind == VALUE_ABSENT ? VALUE_OF_NONE : *c->arg[1];
    return true;
}

bool method_items(struct render *r, struct call *c)
{
    return value_dict_items(r, c->self->dict, LIST_PLAIN, c->out);
}

bool method_keys(struct render *r, struct call *c)
{
    struct list items;

    return value_items(r, *c->self, &items) && value_list_share(r, LIST_PLAIN, items, c->out);
}

bool method_values(struct render *r, struct call *c)
{
    if (!value_list_new(r, LIST_PLAIN, c->self->dict->n, c->out))
        return false;
    for (size_t i = 0; i < c->self->dict->n; i++)
        c->out->list->at[i] = c->self->dict->at[i].value;
    return true;
}

bool method_copy(struct render *r, struct call *c)
{
    *c->out = *c->self; // it cannot change, so no copy is needed
    return render_spend(r, 1);
}

bool method_unsafe(struct render *r, struct call *c)
{
    return render_fail(r, ERR_INPUT, "changing a %s in place is not allowed", value_type_name(*c->self));
}

bool method_append(struct render *r, struct call *c)
{
    struct list *list = c->self->list;

    if (!list->grows)
        return method_unsafe(r, c);
    if (list->capacity == 0) // its memory may be shared
        list->capacity = list->n;
    *c->out = VALUE_OF_NONE;
    return value_list_push(r, list, *c->arg[0]);
}

bool method_list_copy(struct render *r, struct call *c)
{
    if (!value_list_copy(r, LIST_PLAIN, *c->self->list, c->out))
        return false;
    c->out->list->grows = true;
    return true;
}

bool method_index(struct render *r, struct call *c)
{
    for (size_t i = 0; i < c->self->list->n; i++) {
        bool same;
        if (!value_equal(r, c->self->list->at[i], *c->arg[0], &same))
            return false;
        if (same) {
            *c->out = value_int((int64_t)i);
            return true;
        }
    }
    return render_fail(r, ERR_INPUT, "the value is not in the list");
}

bool method_count(struct render *r, struct call *c)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->self->list->n; i++) {
        bool same;
        if (!value_equal(r, c->self->list->at[i], *c->arg[0], &same))
            return false;
        n += same;
    }
    *c->out = value_int(n);
    return true;
}

bool method_cycle(struct render *r, struct call *c)
{
    if (c->raw->n == 0 || c->raw->n_keywords)
        return render_fail(r, ERR_INPUT, "no items for cycling given");
    *c->out = c->raw->at[c->self->loop->index % c->raw->n];
    return true;
}

bool method_changed(struct render *r, struct call *c)
{
    struct loop *loop = c->self->loop;
    struct value now;
    bool same = false;

    if (!value_list_copy(r, LIST_TUPLE, (struct list){ .at = c->raw->at, .n = c->raw->n }, &now))
        return false;
    if (loop->changed.kind == VALUE_LIST && !value_equal(r, loop->changed, now, &same))
        return false;
    loop->changed = now;
    *c->out = value_bool(!same);
    return true;
}
