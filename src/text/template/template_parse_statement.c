// template_parse_statement.c - statements: {% ... %} tags and the text between them, and the entry points of
// parsing.
//
// Each tag has one function in a table. A tag with a body parses it up to its end tag, so that the tree has
// the shape of the template. Left out because no chat template uses them and a file must not reach outside
// itself: include, import, extends.
#include "text/template/template_parser.h"
#include "base/mem.h"

const struct template_limits template_limits_default = {
    .source_bytes = 1 << 20,
    .parse_depth = 256,
    .call_depth = 64,
    .fuel = 20000000,
    .range_items = 100000,
    .output_bytes = (size_t)32 << 20,
    .memory_bytes = (size_t)256 << 20,
};

static struct node *parse_target(struct parser *p, bool with_attribute, const char *end);

// Consumes the current token, the last one of the node.
static struct node *close_after(struct parser *p, struct node *node)
{
    return parser_advance(p) ? parser_close(p, node) : NULL;
}

static bool parse_body(struct parser *p, struct node_list *body, const char *const *ends)
{
    if (p->now.kind != TOKEN_BLOCK_END)
        return parser_fail(p, "expected %%} here") != NULL;
    return parser_advance(p) && parse_statements(p, body, ends);
}

// The rest of a tag whose body ends with the tag `end`.
static struct node *parse_block(struct parser *p, struct node *node, struct node_list *body, const char *end)
{
    return parse_body(p, body, (const char *const[]){ end, NULL }) ? close_after(p, node) : NULL;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    struct node *node = parser_node(p, NODE_IF, p->before.line), *branch;

    do {
        branch = node ? parser_node(p, NODE_BRANCH, p->now.line) : NULL;
        if (!branch || !(branch->a = parse_tuple(p, false, NULL)) || !parse_body(p, &branch->body, ends) ||
            !parser_append(p, &node->items, parser_close(p, branch)) || !parser_advance(p))
            return NULL;
    } while (str_is(p->before.text, "elif"));
    if (str_is(p->before.text, "endif"))
        return parser_close(p, node);
    return parse_block(p, node, &node->other, "endif");
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL };
    struct node *node = parser_node(p, NODE_FOR, p->before.line);

    if (!node || !(node->a = parse_target(p, false, "in")))
        return NULL;
    if (!parser_is_name(p, "in"))
        return parser_fail(p, "expected 'in' in a for loop");
    if (!parser_advance(p) || !(node->b = parse_tuple(p, false, "recursive")))
        return NULL;
    if (parser_is_name(p, "if") && (!parser_advance(p) || !(node->c = parse_expression(p, true))))
        return NULL;
    node->flag = parser_is_name(p, "recursive");
    if (node->flag && !parser_advance(p))
        return NULL;
    p->loops++;
    bool ok = parse_body(p, &node->body, ends);
    p->loops--;
    if (!ok || !parser_advance(p))
        return NULL;
    if (str_is(p->before.text, "endfor"))
        return parser_close(p, node);
    return parse_block(p, node, &node->other, "endfor");
}

static struct node *parse_one_target(struct parser *p, bool with_attribute)
{
    struct node *node = parse_primary(p);

    if (node && node->kind == NODE_NAME && with_attribute && parser_is(p, ".")) {
        struct node *object = node;
        if (!(node = parser_node(p, NODE_ATTRIBUTE, object->line)) || !parser_advance(p) ||
            !parser_advance(p))
            return NULL;
        if (p->before.kind != TOKEN_NAME)
            return parser_fail(p, "expected a name after '.'");
        node->a = object;
        node->name = p->before.text;
        return node;
    }
    return node;
}

static bool can_assign(const struct node *node)
{
    if (node->kind == NODE_NAME || node->kind == NODE_ATTRIBUTE)
        return true;
    if (node->kind != NODE_TUPLE && node->kind != NODE_LIST)
        return false;
    for (uint32_t i = 0; i < node->items.n; i++)
        if (!can_assign(node->items.at[i]) || node->items.at[i]->kind == NODE_ATTRIBUTE)
            return false;
    return true;
}

// A name, name.attribute, or a tuple of names.
static struct node *parse_target(struct parser *p, bool with_attribute, const char *end)
{
    struct node *node = parse_one_target(p, with_attribute), *tuple;

    if (node && parser_is(p, ",")) {
        if (!(tuple = parser_node(p, NODE_TUPLE, node->line)) || !parser_append(p, &tuple->items, node))
            return NULL;
        while (parser_is(p, ",")) {
            if (!parser_advance(p))
                return NULL;
            if (parser_is(p, "=") || (end && parser_is_name(p, end)))
                break;
            if (!parser_append(p, &tuple->items, parse_one_target(p, false)))
                return NULL;
        }
        node = parser_close(p, tuple);
    }
    if (node && !can_assign(node))
        return parser_fail(p, "this cannot be assigned to");
    return node;
}

static struct node *captured(struct parser *p)
{
    return parser_node(p, NODE_CAPTURED, p->now.line);
}

static struct node *parse_set(struct parser *p)
{
    struct node *node = parser_node(p, NODE_SET, p->before.line);

    if (!node || !(node->a = parse_target(p, true, NULL)))
        return NULL;
    if (parser_is(p, "=")) {
        if (!parser_advance(p) || !(node->b = parse_tuple(p, true, NULL)))
            return NULL;
        return parser_close(p, node);
    }
    node->kind = NODE_SET_BLOCK;
    if (parser_is(p, "|") && !(node->b = parse_filters(p, captured(p), false)))
        return NULL;
    return parse_block(p, node, &node->body, "endset");
}

static bool parse_parameters(struct parser *p, struct node_list *parameters)
{
    if (!parser_expect(p, "("))
        return false;
    while (!parser_is(p, ")")) {
        if (parameters->n && !parser_expect(p, ","))
            return false;
        if (parser_is(p, ")"))
            break;
        struct node *name = parse_primary(p);
        if (!name)
            return false;
        if (name->kind != NODE_NAME)
            return parser_fail(p, "expected the name of a parameter") != NULL;
        if (parser_is(p, "=") && (!parser_advance(p) || !(name->a = parse_expression(p, true))))
            return false;
        if (!parser_append(p, parameters, parser_close(p, name)))
            return false;
    }
    return parser_advance(p);
}

// A body that is not inside the loops around it, and records its own use of varargs and kwargs.
static struct node *parse_scoped_block(struct parser *p, struct node *node, const char *end)
{
    uint32_t loops = p->loops;
    uint8_t mentions = p->mentions;

    p->loops = p->mentions = 0;
    struct node *block = parse_block(p, node, &node->body, end);
    node->op = p->mentions;
    p->loops = loops;
    p->mentions = mentions;
    return block;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *node = parser_node(p, NODE_MACRO, p->before.line);

    if (!node || p->now.kind != TOKEN_NAME)
        return node ? parser_fail(p, "expected the name of a macro") : NULL;
    node->name = p->now.text;
    node->hash = node_hash(node->name);
    if (!parser_advance(p) || !parse_parameters(p, &node->items))
        return NULL;
    return parse_scoped_block(p, node, "endmacro");
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *node = parser_node(p, NODE_CALL_BLOCK, p->before.line);

    if (!node || (parser_is(p, "(") && !parse_parameters(p, &node->items)) ||
        !(node->a = parse_expression(p, true)))
        return NULL;
    if (node->a->kind != NODE_CALL)
        return parser_fail(p, "expected a call");
    node->name = STR("caller");
    node->hash = node_hash(node->name);
    return parse_scoped_block(p, node, "endcall");
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *node = parser_node(p, NODE_FILTER_BLOCK, p->before.line);

    if (!node || !(node->b = parse_filters(p, captured(p), true)))
        return NULL;
    return parse_block(p, node, &node->body, "endfilter");
}

static struct node *parse_with(struct parser *p)
{
    struct node *node = parser_node(p, NODE_WITH, p->before.line);

    if (!node)
        return NULL;
    while (p->now.kind != TOKEN_BLOCK_END) {
        if (node->items.n && !parser_expect(p, ","))
            return NULL;
        if (!parser_append(p, &node->items, parse_one_target(p, false)) || !parser_expect(p, "=") ||
            !parser_append(p, &node->items, parse_expression(p, true)))
            return NULL;
        if (!can_assign(node->items.at[node->items.n - 2]))
            return parser_fail(p, "this cannot be assigned to");
    }
    return parse_block(p, node, &node->body, "endwith");
}

// {% generation %} marks what the model wrote, for training; for a prompt it is only a scope.
static struct node *parse_generation(struct parser *p)
{
    struct node *node = parser_node(p, NODE_SCOPE, p->before.line);

    return node ? parse_scoped_block(p, node, "endgeneration") : NULL;
}

static struct node *parse_jump(struct parser *p)
{
    enum node_kind kind = str_is(p->before.text, "break") ? NODE_BREAK : NODE_CONTINUE;

    if (p->loops == 0)
        return parser_fail(p, "'%s' outside a loop", kind == NODE_BREAK ? "break" : "continue");
    return parser_node(p, kind, p->before.line);
}

static bool parse_print(struct parser *p, struct node_list *body)
{
    do {
        struct node *node = parser_node(p, NODE_PRINT, p->now.line);
        if (!node || !parser_advance(p) || !(node->a = parse_expression(p, true)) ||
            !parser_append(p, body, parser_close(p, node)))
            return false;
    } while (parser_is(p, ","));
    return true;
}

static bool parse_tag(struct parser *p, struct node_list *body)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *p);
    } tags[] = {
        { "if", parse_if },           { "for", parse_for },
        { "set", parse_set },         { "macro", parse_macro },
        { "call", parse_call_block }, { "filter", parse_filter_block },
        { "with", parse_with },       { "generation", parse_generation },
        { "break", parse_jump },      { "continue", parse_jump },
    };

    if (p->now.kind != TOKEN_NAME)
        return parser_fail(p, "expected the name of a tag") != NULL;
    if (str_is(p->now.text, "print"))
        return parse_print(p, body);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (str_is(p->now.text, tags[i].name))
            return parser_advance(p) && parser_append(p, body, tags[i].parse(p));
    return parser_fail(p, "unknown or misplaced tag '%.*s'", (int)(p->now.text.n > 40 ? 40 : p->now.text.n),
                       p->now.text.at) != NULL;
}

static bool parse_text(struct parser *p, struct node_list *body)
{
    struct node *node = parser_node(p, NODE_TEXT, p->now.line);

    if (!node || !(node->value = arena_alloc(p->arena, sizeof *node->value)))
        return err_memory(p->err, "the template");
    *node->value = value_string(p->now.text, false);
    return parser_append(p, body, node) && parser_advance(p);
}

static bool parse_output(struct parser *p, struct node_list *body)
{
    struct node *node = parser_node(p, NODE_PRINT, p->now.line);

    if (!node || !parser_advance(p) || !(node->a = parse_tuple(p, true, NULL)))
        return false;
    if (p->now.kind != TOKEN_VARIABLE_END)
        return parser_fail(p, "expected }} here") != NULL;
    return parser_append(p, body, parser_close(p, node)) && parser_advance(p);
}

static bool is_end(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_is_name(p, *ends))
            return true;
    return false;
}

bool parse_statements(struct parser *p, struct node_list *body, const char *const *ends)
{
    if (!parser_enter(p))
        return false;
    while (p->now.kind != TOKEN_END) {
        bool ok = true;
        if (p->now.kind == TOKEN_DATA) {
            ok = parse_text(p, body);
        } else if (p->now.kind == TOKEN_VARIABLE_BEGIN) {
            ok = parse_output(p, body);
        } else {
            if (!parser_advance(p))
                return false;
            if (is_end(p, ends)) {
                p->depth--;
                return true;
            }
            ok = parse_tag(p, body);
            if (ok && p->now.kind != TOKEN_BLOCK_END)
                return parser_fail(p, "expected %%} here") != NULL;
            ok = ok && parser_advance(p);
        }
        if (!ok)
            return false;
    }
    p->depth--;
    return !ends || parser_fail(p, "the template ends where {%% %s %%} was expected", ends[0]) != NULL;
}

bool template_parse(struct template **out, struct str source, const struct template_limits *limits,
                    struct err *err)
{
    struct arena *arena;
    struct parser *p = mem_alloc(sizeof *p);
    struct template *t;

    *out = NULL;
    limits = limits ? limits : &template_limits_default;
    if (source.n > limits->source_bytes) {
        mem_free(p);
        return err_set(err, ERR_LIMIT, "template: %zu bytes; at most %zu are allowed", source.n,
                       limits->source_bytes);
    }
    arena = p ? arena_create(limits->memory_bytes) : NULL;
    t = arena ? arena_alloc(arena, sizeof *t) : NULL;
    bool ok = t || err_memory(err, "the template");
    if (ok) {
        *t = (struct template){ .arena = arena, .limits = *limits };
        *p = (struct parser){ .t = t, .arena = arena, .err = err };
        ok = lexer_start(&p->lexer, source, arena, err) && lexer_next(&p->lexer, &p->next) &&
             parser_advance(p) && parse_statements(p, &t->body, NULL);
    }
    mem_free(p);
    if (ok)
        *out = t;
    else
        arena_destroy(arena);
    return ok;
}

void template_free(struct template *t)
{
    if (t)
        arena_destroy(t->arena);
}

static bool uses(const struct node *n, struct str name);

static bool list_uses(const struct node_list *list, struct str name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] && uses(list->at[i], name))
            return true;
    return false;
}

static bool uses(const struct node *n, struct str name)
{
    bool calls = n->kind == NODE_CALL || n->kind == NODE_FILTER || n->kind == NODE_TEST;
    const struct node_arguments *a = calls ? n->arguments : NULL;

    if (n->kind == NODE_NAME && str_eq(n->name, name))
        return true;
    if ((n->a && uses(n->a, name)) || (n->b && uses(n->b, name)) || (n->c && uses(n->c, name)))
        return true;
    if (list_uses(&n->items, name) || list_uses(&n->body, name) || list_uses(&n->other, name))
        return true;
    return a && (list_uses(&a->positional, name) || list_uses(&a->keywords, name) ||
                 (a->splat && uses(a->splat, name)) || (a->splat_keywords && uses(a->splat_keywords, name)));
}

bool template_uses(const struct template *t, const char *name)
{
    return list_uses(&t->body, str_from(name));
}
