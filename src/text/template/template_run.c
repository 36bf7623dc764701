// template_run.c - statements: runs a parsed template over variables and collects the text; scopes, loops,
// macros.
//
// A loop body, a macro, a block that captures text and a with-block have their own scope. Names are looked up
// outwards from where they are used, within a macro from where it was defined. Statements and expressions
// share one depth count; macros and recursive loops share the call depth.
#include "text/template/template_run.h"
#include <stdarg.h>
#include <time.h>
#include "text/template/template_char.h"
#include "text/template/template_show.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_ERROR };

static enum flow run_body(struct render *r, const struct node_list *body);

bool render_fail(struct render *r, enum err_code code, const char *format, ...)
{
    char what[400];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char_make_line(what);
    return err_set(r->err, code, "template line %u: %s", r->line, what);
}

bool render_spend(struct render *r, uint64_t fuel)
{
    if (fuel > r->fuel) {
        r->fuel = 0;
        return render_fail(r, ERR_LIMIT, "the template needs more than %llu steps",
                           (unsigned long long)r->limits->fuel);
    }
    r->fuel -= fuel;
    return true;
}

void *render_alloc(struct render *r, size_t n, size_t bytes)
{
    void *memory = arena_alloc_array(r->arena, n, bytes);

    if (!memory)
        render_fail(r, ERR_LIMIT, "the template needs more than %zu bytes of memory",
                    r->limits->memory_bytes);
    return memory;
}

void *render_grow(struct render *r, void *at, size_t n, size_t *capacity, size_t bytes)
{
    size_t larger = *capacity ? *capacity * 2 : 4;

    if (n < *capacity)
        return at;
    void *memory = render_alloc(r, larger, bytes);
    if (!memory)
        return NULL;
    if (n)
        memcpy(memory, at, n * bytes);
    *capacity = larger;
    return memory;
}

const struct value *render_keyword(const struct call_arguments *arguments, struct str name)
{
    for (size_t i = 0; i < arguments->n_keywords; i++)
        if (str_eq(arguments->keywords[i].name, name))
            return arguments->keywords[i].value;
    return NULL;
}

static struct scope *scope_new(struct render *r, struct scope *parent)
{
    struct scope *scope = render_alloc(r, 1, sizeof *scope);

    if (scope)
        scope->parent = parent;
    return scope;
}

static bool scope_set(struct render *r, struct scope *scope, struct str name, uint32_t hash,
                      struct value value)
{
    for (size_t i = 0; i < scope->n; i++)
        if (scope->at[i].hash == hash && str_eq(scope->at[i].name, name)) {
            scope->at[i].value = value;
            return render_spend(r, scope->n / 8);
        }
    struct variable *at = render_grow(r, scope->at, scope->n, &scope->capacity, sizeof *at);
    if (!at)
        return false;
    scope->at = at;
    scope->at[scope->n++] = (struct variable){ name, hash, value };
    return render_spend(r, scope->n / 8);
}

bool render_scope_find(struct render *r, struct str name, uint32_t hash, struct value *out)
{
    for (const struct scope *scope = r->scope; scope; scope = scope->parent) {
        if (!render_spend(r, scope->n / 8))
            return false;
        for (size_t i = 0; i < scope->n; i++)
            if (scope->at[i].hash == hash && str_eq(scope->at[i].name, name)) {
                *out = scope->at[i].value;
                return true;
            }
    }
    return value_dict_get(r, r->variables, value_string(name, false), out);
}

static bool assign_tuple(struct render *r, const struct node *target, struct value value);

static bool assign(struct render *r, const struct node *target, struct value value)
{
    struct value object;

    if (target->kind == NODE_NAME)
        return scope_set(r, r->scope, target->name, target->hash, value);
    if (target->kind != NODE_ATTRIBUTE)
        return assign_tuple(r, target, value);
    if (!render_eval(r, target->a, &object))
        return false;
    if (object.kind != VALUE_NAMESPACE)
        return render_fail(r, ERR_INPUT, "cannot assign attribute on non-namespace object");
    return value_dict_set(r, object.dict, value_string(target->name, false), value);
}

static bool assign_tuple(struct render *r, const struct node *target, struct value value)
{
    struct list items;

    if (!value_items(r, value, &items))
        return false;
    if (items.n != target->items.n)
        return render_fail(r, ERR_INPUT, "%zu values to unpack, expected %u", items.n, target->items.n);
    for (uint32_t i = 0; i < target->items.n; i++)
        if (!assign(r, target->items.at[i], items.at[i]))
            return false;
    return true;
}

static bool enter_call(struct render *r)
{
    if (r->calls < r->limits->call_depth) {
        r->calls++;
        return true;
    }
    return render_fail(r, ERR_LIMIT, "calls nested deeper than %u", r->limits->call_depth);
}

// Runs a body in `scope` and returns its text instead of printing it.
static enum flow capture(struct render *r, const struct node_list *body, struct scope *scope,
                         struct value *out)
{
    struct builder text = builder_start(r), *before = r->out;
    struct scope *outside = r->scope;

    if (!scope)
        return FLOW_ERROR;
    text.max = r->limits->output_bytes;
    r->out = &text;
    r->scope = scope;
    enum flow flow = run_body(r, body);
    r->out = before;
    r->scope = outside;
    *out = builder_value(&text);
    return flow;
}

// --- macros ---

static bool bind_parameter(struct render *r, const struct node *parameter,
                           const struct call_arguments *arguments, size_t index)
{
    struct value value = value_undefined(parameter->name);
    const struct value *given =
        index < arguments->n ? &arguments->at[index] : render_keyword(arguments, parameter->name);

    if (given)
        value = *given;
    else if (parameter->a && !render_eval(r, parameter->a, &value))
        return false;
    return scope_set(r, r->scope, parameter->name, parameter->hash, value);
}

// The parameter of this name, or the number of parameters.
static uint32_t find_parameter(const struct node *macro, struct str name)
{
    uint32_t i = 0;

    while (i < macro->items.n && !str_eq(macro->items.at[i]->name, name))
        i++;
    return i;
}

// Binds keywords that match no parameter: caller, and the ones that kwargs collects.
static bool bind_keywords(struct render *r, const struct node *macro, const struct call_arguments *arguments)
{
    struct value rest;

    if (!value_dict_new(r, 0, &rest))
        return false;
    for (size_t i = 0; i < arguments->n_keywords; i++) {
        struct str name = arguments->keywords[i].name;
        struct value value = *arguments->keywords[i].value;
        bool ok = true;
        uint32_t parameter = find_parameter(macro, name);
        if (parameter < macro->items.n && parameter < arguments->n)
            return render_fail(r, ERR_INPUT, "macro '%.*s' got two values for '%.*s'", STR_ARG(macro->name),
                               STR_ARG(name));
        if (parameter < macro->items.n)
            continue;
        if (str_is(name, "caller"))
            ok = scope_set(r, r->scope, name, node_hash(name), value);
        else if (macro->op & MACRO_USES_KWARGS)
            ok = value_dict_set(r, rest.dict, value_string(name, false), value);
        else
            ok = render_fail(r, ERR_INPUT, "macro '%.*s' takes no keyword argument '%.*s'",
                             STR_ARG(macro->name), STR_ARG(name));
        if (!ok)
            return false;
    }
    return !(macro->op & MACRO_USES_KWARGS) ||
           scope_set(r, r->scope, STR("kwargs"), node_hash(STR("kwargs")), rest);
}

static bool bind_rest(struct render *r, const struct node *macro, const struct call_arguments *arguments)
{
    size_t extra = arguments->n > macro->items.n ? arguments->n - macro->items.n : 0;
    struct value rest;

    if (!(macro->op & MACRO_USES_VARARGS))
        return !extra || render_fail(r, ERR_INPUT, "macro '%.*s' takes not more than %u argument(s)",
                                     STR_ARG(macro->name), macro->items.n);
    return value_list_copy(r, LIST_TUPLE,
                           (struct list){ .at = arguments->at + (extra ? macro->items.n : 0), .n = extra },
                           &rest) &&
           scope_set(r, r->scope, STR("varargs"), node_hash(STR("varargs")), rest);
}

bool render_call_macro(struct render *r, const struct value *macro, const struct call_arguments *arguments,
                       struct value *out)
{
    const struct node *node = macro->macro->node;
    struct scope *outside = r->scope, *scope;

    if (!enter_call(r) || !(scope = scope_new(r, macro->macro->scope)))
        return false;
    r->scope = scope;
    bool ok = bind_rest(r, node, arguments);
    for (uint32_t i = 0; i < node->items.n && ok; i++)
        ok = bind_parameter(r, node->items.at[i], arguments, i);
    ok = ok && bind_keywords(r, node, arguments) && capture(r, &node->body, scope, out) != FLOW_ERROR;
    r->scope = outside;
    r->calls--;
    return ok;
}

static bool make_macro(struct render *r, const struct node *n, struct value *out)
{
    struct macro *macro = render_alloc(r, 1, sizeof *macro);

    if (!macro)
        return false;
    *macro = (struct macro){ n, r->scope };
    for (struct scope *scope = r->scope; scope; scope = scope->parent)
        scope->kept = true;
    *out = (struct value){ .kind = VALUE_MACRO, .macro = macro };
    return true;
}

static enum flow run_macro(struct render *r, const struct node *n)
{
    struct value macro;

    return make_macro(r, n, &macro) && scope_set(r, r->scope, n->name, n->hash, macro) ? FLOW_NEXT
                                                                                       : FLOW_ERROR;
}

// {% call f(x) %}body{% endcall %}: f(x) with the body as its caller.
static enum flow run_call_block(struct render *r, const struct node *n)
{
    struct value caller, text;

    if (!make_macro(r, n, &caller))
        return FLOW_ERROR;
    r->caller = &caller;
    return render_eval(r, n->a, &text) && show_value(r->out, text) ? FLOW_NEXT : FLOW_ERROR;
}

// --- loops ---

// The items that pass the loop's own "if".
static bool filter_items(struct render *r, const struct node *n, struct list *items)
{
    struct scope *outside = r->scope, *scope = scope_new(r, r->scope);
    struct value kept, condition;
    bool ok = scope && value_list_new(r, LIST_PLAIN, items->n, &kept);
    size_t used = 0;

    r->scope = scope;
    for (size_t i = 0; i < items->n && ok; i++) {
        ok = render_spend(r, 1) && assign(r, n->a, items->at[i]) && render_eval(r, n->c, &condition);
        if (ok && value_truth(condition))
            kept.list->at[used++] = items->at[i];
    }
    r->scope = outside;
    if (ok)
        *items = (struct list){ .at = kept.list->at, .n = used };
    return ok;
}

static enum flow run_iterations(struct render *r, const struct node *n, struct loop *loop)
{
    static const struct str name = { "loop", 4 };
    struct scope *scope = NULL;
    enum flow flow = FLOW_NEXT;
    uint32_t hash = node_hash(name);

    for (size_t i = 0; i < loop->items.n && flow != FLOW_BREAK; i++) {
        // All iterations share one scope, unless a macro of this one keeps it.
        if (!scope || scope->kept)
            scope = scope_new(r, loop->outside);
        if (!scope || !render_spend(r, 1))
            return FLOW_ERROR;
        scope->n = 0;
        loop->index = i;
        r->scope = scope;
        if (!scope_set(r, scope, name, hash, (struct value){ .kind = VALUE_LOOP, .loop = loop }) ||
            !assign(r, n->a, loop->items.at[i]) || (flow = run_body(r, &n->body)) == FLOW_ERROR)
            return FLOW_ERROR;
    }
    return FLOW_NEXT;
}

static enum flow run_loop(struct render *r, const struct node *n, struct value iterable, uint32_t depth)
{
    struct loop *loop = render_alloc(r, 1, sizeof *loop);
    struct scope *outside = r->scope;
    enum flow flow;

    if (!loop || !value_items(r, iterable, &loop->items) || (n->c && !filter_items(r, n, &loop->items)))
        return FLOW_ERROR;
    loop->node = n;
    loop->outside = outside;
    loop->depth = depth;
    if (loop->items.n) {
        flow = run_iterations(r, n, loop);
    } else {
        if (!(r->scope = scope_new(r, outside)))
            return FLOW_ERROR;
        flow = run_body(r, &n->other);
    }
    r->scope = outside;
    return flow;
}

static enum flow run_for(struct render *r, const struct node *n)
{
    struct value iterable;

    return render_eval(r, n->b, &iterable) ? run_loop(r, n, iterable, 0) : FLOW_ERROR;
}

bool render_call_loop(struct render *r, struct value *items, const struct value *loop, struct value *out)
{
    struct builder text = builder_start(r), *before = r->out;
    struct scope *outside = r->scope;

    if (!loop->loop->node->flag)
        return render_fail(r, ERR_INPUT, "loop() in a loop that is not marked as recursive");
    if (!enter_call(r))
        return false;
    text.max = r->limits->output_bytes;
    r->out = &text;
    r->scope = loop->loop->outside;
    enum flow flow = run_loop(r, loop->loop->node, *items, loop->loop->depth + 1);
    r->out = before;
    r->scope = outside;
    r->calls--;
    *out = builder_value(&text);
    return flow != FLOW_ERROR;
}

bool render_loop_attribute(struct render *r, const struct value *value, struct str name, struct value *out)
{
    const struct loop *loop = value->loop;
    size_t n = loop->items.n, i = loop->index;
    const struct {
        const char *name;
        struct value value;
    } table[] = {
        { "index", value_int((int64_t)i + 1) },
        { "index0", value_int((int64_t)i) },
        { "revindex", value_int((int64_t)(n - i)) },
        { "revindex0", value_int((int64_t)(n - i - 1)) },
        { "first", value_bool(i == 0) },
        { "last", value_bool(i + 1 == n) },
        { "length", value_int((int64_t)n) },
        { "depth", value_int((int64_t)loop->depth + 1) },
        { "depth0", value_int(loop->depth) },
        { "previtem", i > 0 ? loop->items.at[i - 1] : value_undefined(STR("there is no previous item")) },
        { "nextitem", i + 1 < n ? loop->items.at[i + 1] : value_undefined(STR("there is no next item")) },
    };

    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (str_is(name, table[k].name)) {
            *out = table[k].value;
            return true;
        }
    *out = value_undefined(name);
    out->owner = "loop";
    return render_spend(r, 1);
}

// --- the other statements ---

static enum flow run_text(struct render *r, const struct node *n)
{
    return builder_put_value(r->out, *n->value) ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow run_print(struct render *r, const struct node *n)
{
    struct value v;

    return render_eval(r, n->a, &v) && show_value(r->out, v) ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow run_if(struct render *r, const struct node *n)
{
    struct value v;

    for (uint32_t i = 0; i < n->items.n; i++) {
        const struct node *branch = n->items.at[i];
        if (!render_eval(r, branch->a, &v))
            return FLOW_ERROR;
        if (value_truth(v))
            return run_body(r, &branch->body);
    }
    return run_body(r, &n->other);
}

static enum flow run_set(struct render *r, const struct node *n)
{
    struct value v;

    return render_eval(r, n->b, &v) && assign(r, n->a, v) ? FLOW_NEXT : FLOW_ERROR;
}

// The body's text, through the filters in n->b if there are any.
static enum flow run_captured(struct render *r, const struct node *n, struct value *text)
{
    struct value raw, *before = r->captured;
    enum flow flow = capture(r, &n->body, scope_new(r, r->scope), &raw);

    *text = raw;
    if (flow != FLOW_NEXT || !n->b)
        return flow;
    r->captured = &raw;
    bool ok = render_eval(r, n->b, text);
    r->captured = before;
    return ok ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow run_set_block(struct render *r, const struct node *n)
{
    struct value text;
    enum flow flow = run_captured(r, n, &text);

    if (flow != FLOW_NEXT)
        return flow;
    return assign(r, n->a, text) ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow run_filter_block(struct render *r, const struct node *n)
{
    struct value text;
    enum flow flow = run_captured(r, n, &text);

    if (flow != FLOW_NEXT)
        return flow;
    return show_value(r->out, text) ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow run_scope(struct render *r, const struct node *n)
{
    struct scope *outside = r->scope, *scope = scope_new(r, outside);
    enum flow flow = FLOW_NEXT;
    struct value v;

    if (!scope)
        return FLOW_ERROR;
    for (uint32_t i = 0; i + 1 < n->items.n && flow == FLOW_NEXT; i += 2) {
        r->scope = outside; // values are evaluated outside, names are set inside
        bool ok = render_eval(r, n->items.at[i + 1], &v);
        r->scope = scope;
        flow = ok && assign(r, n->items.at[i], v) ? FLOW_NEXT : FLOW_ERROR;
    }
    r->scope = scope;
    flow = flow == FLOW_NEXT ? run_body(r, &n->body) : flow;
    r->scope = outside;
    return flow;
}

static enum flow run_jump(struct render *r, const struct node *n)
{
    (void)r;
    return n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
}

static enum flow run_body(struct render *r, const struct node_list *body)
{
    static enum flow (*const table[])(struct render * r, const struct node *n) = {
        [NODE_TEXT] = run_text,
        [NODE_PRINT] = run_print,
        [NODE_IF] = run_if,
        [NODE_FOR] = run_for,
        [NODE_SET] = run_set,
        [NODE_SET_BLOCK] = run_set_block,
        [NODE_MACRO] = run_macro,
        [NODE_CALL_BLOCK] = run_call_block,
        [NODE_FILTER_BLOCK] = run_filter_block,
        [NODE_WITH] = run_scope,
        [NODE_SCOPE] = run_scope,
        [NODE_BREAK] = run_jump,
        [NODE_CONTINUE] = run_jump,
    };
    enum flow flow = FLOW_NEXT;

    if (r->depth >= RENDER_MAX_DEPTH) {
        render_fail(r, ERR_LIMIT, "evaluation deeper than %d", RENDER_MAX_DEPTH);
        return FLOW_ERROR;
    }
    r->depth++;
    for (uint32_t i = 0; i < body->n && flow == FLOW_NEXT; i++) {
        r->line = body->at[i]->line;
        flow = render_spend(r, 1) ? table[body->at[i]->kind](r, body->at[i]) : FLOW_ERROR;
    }
    r->depth--;
    return flow;
}

// --- variables and the result ---

static bool is_known_role(struct str role)
{
    static const char *const roles[] = { "system",    "user",  "assistant",    "tool",
                                         "developer", "model", "function",     "observation",
                                         "ipython",   "human", "tool_response" };

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (str_is(role, roles[i]))
            return true;
    return false;
}

// Templates build control tokens from roles ("<|" + role + "|>"), so the well-known roles are trusted.
static void trust_roles(struct value messages)
{
    for (size_t i = 0; messages.kind == VALUE_LIST && i < messages.list->n; i++) {
        struct value message = messages.list->at[i];
        for (size_t k = 0; message.kind == VALUE_DICT && k < message.dict->n; k++) {
            struct entry *entry = &message.dict->at[k];
            if (str_is(entry->key.s, "role") && entry->value.kind == VALUE_STRING &&
                is_known_role(entry->value.s))
                entry->value.user = false;
        }
    }
}

static bool load_variables(struct render *r, json_t *json)
{
    struct value variables;
    const char *key;
    json_t *item;

    if (!json_is_object(json))
        return render_fail(r, ERR_INPUT, "the variables are not a JSON object");
    if (!value_dict_new(r, json_object_size(json), &variables))
        return false;
    json_object_foreach(json, key, item)
    {
        struct entry *entry = &variables.dict->at[variables.dict->n++];
        bool token = json_is_string(item) && str_ends(str_from(key), STR("_token"));
        entry->key = value_string(str_from(key), true);
        if (!value_from_json(r, item, !token, &entry->value))
            return false;
        if (strcmp(key, "messages") == 0)
            trust_roles(entry->value);
    }
    r->variables = variables.dict;
    return true;
}

static bool origin(const struct builder *b, size_t at)
{
    return b->marks ? b->marks[at] : b->user;
}

static bool make_output(const struct builder *b, struct template_output *out, struct err *err)
{
    size_t n_spans = b->n > 0, span = 0;

    for (size_t i = 1; i < b->n; i++)
        n_spans += origin(b, i) != origin(b, i - 1);
    *out = (struct template_output){ .arena = arena_create(SIZE_MAX), .n_spans = n_spans };
    out->text = out->arena ? arena_str(out->arena, (struct str){ b->at, b->n }) : out->text;
    out->spans = out->text.at ? arena_alloc_array(out->arena, n_spans, sizeof *out->spans) : NULL;
    if (!out->spans) {
        template_output_free(out);
        return err_memory(err, "the rendered template");
    }
    for (size_t i = 0; i < b->n; i++) {
        if (i > 0 && origin(b, i) != origin(b, i - 1))
            span++;
        if (out->spans[span].text.n++ == 0)
            out->spans[span] = (struct text_span){ { out->text.at + i, 1 }, !origin(b, i) };
    }
    return true;
}

bool template_render_at(const struct template *t, json_t *variables, int64_t unix_time,
                        struct template_output *out, struct err *err)
{
    struct render r = {
        .t = t, .limits = &t->limits, .err = err, .fuel = t->limits.fuel, .line = 1, .unix_time = unix_time
    };
    struct builder text = builder_start(&r);

    *out = (struct template_output){ 0 };
    text.max = t->limits.output_bytes;
    r.arena = arena_create(t->limits.memory_bytes);
    if (!r.arena)
        return err_memory(err, "rendering a template");
    r.out = &text;
    bool ok = load_variables(&r, variables) && (r.scope = scope_new(&r, NULL)) &&
              run_body(&r, &t->body) != FLOW_ERROR && make_output(&text, out, err);
    arena_destroy(r.arena);
    return ok;
}

bool template_render(const struct template *t, json_t *variables, struct template_output *out,
                     struct err *err)
{
    return template_render_at(t, variables, (int64_t)time(NULL), out, err);
}

void template_output_free(struct template_output *out)
{
    arena_destroy(out->arena);
    *out = (struct template_output){ 0 };
}
