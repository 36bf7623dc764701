// template_parse.c - expressions: tokens to a tree, with Jinja's precedence.
//
// Precedence, lowest first: "a if b else c", or, and, not, comparisons (chained), + and -, ~, * / // %, **,
// unary minus; then postfix .name [key] (arguments); then filters and tests. The height of every node is
// bounded when it is made, so that long chains of one operator are bounded like nested brackets. Statements
// are in template_parse_statement.c.
#include <stdarg.h>
#include "text/template/template_char.h"
#include "text/template/template_parser.h"
#include "text/template/template_run.h"

enum level {
    LEVEL_NONE = -1,
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_ADD,
    LEVEL_CONCAT,
    LEVEL_MUL,
    LEVEL_POW
};

static struct node *parse_binary(struct parser *p, enum level min);

uint32_t node_hash(struct str name)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < name.n; i++)
        hash = (hash ^ (unsigned char)name.at[i]) * 16777619u;
    return hash;
}

struct node *parser_fail(struct parser *p, const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char_make_line(what);
    err_set(p->err, ERR_INPUT, "template line %u: %s", p->now.line, what);
    return NULL;
}

static const char *token_describe(const struct token *token)
{
    static const char *const names[] = {
        [TOKEN_END] = "end of template", [TOKEN_DATA] = "text",         [TOKEN_VARIABLE_BEGIN] = "{{",
        [TOKEN_VARIABLE_END] = "}}",     [TOKEN_BLOCK_BEGIN] = "{%",    [TOKEN_BLOCK_END] = "%}",
        [TOKEN_NAME] = "name",           [TOKEN_STRING] = "string",     [TOKEN_INT] = "number",
        [TOKEN_FLOAT] = "number",        [TOKEN_OPERATOR] = "operator",
    };
    return names[token->kind];
}

static struct node *fail_unexpected(struct parser *p, const char *expected)
{
    struct str text = p->now.kind == TOKEN_NAME || p->now.kind == TOKEN_OPERATOR ? p->now.text : STR("");
    return parser_fail(p, "unexpected %s%s%.*s; expected %s", token_describe(&p->now), text.n ? " " : "",
                       (int)(text.n > 40 ? 40 : text.n), text.at, expected);
}

bool parser_advance(struct parser *p)
{
    p->before = p->now;
    p->now = p->next;
    return lexer_next(&p->lexer, &p->next);
}

bool parser_is(const struct parser *p, const char *op)
{
    return p->now.kind == TOKEN_OPERATOR && str_is(p->now.text, op);
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return p->now.kind == TOKEN_NAME && str_is(p->now.text, name);
}

bool parser_expect(struct parser *p, const char *op)
{
    return parser_is(p, op) ? parser_advance(p) : fail_unexpected(p, op) != NULL;
}

bool parser_enter(struct parser *p)
{
    if (p->depth++ < p->t->limits.parse_depth)
        return true;
    err_set(p->err, ERR_LIMIT, "template line %u: nested deeper than %u", p->now.line,
            p->t->limits.parse_depth);
    return false;
}

static void *parser_alloc(struct parser *p, size_t n, size_t bytes)
{
    void *memory = arena_alloc_array(p->arena, n, bytes);

    if (!memory)
        err_set(p->err, ERR_LIMIT, "template line %u: the parsed template needs more than %zu bytes",
                p->now.line, p->t->limits.memory_bytes);
    return memory;
}

struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line)
{
    struct node *node = parser_alloc(p, 1, sizeof *node);

    if (node) {
        node->kind = (uint8_t)kind;
        node->line = line;
    }
    return node;
}

bool parser_append(struct parser *p, struct node_list *list, struct node *node)
{
    if (!node)
        return false;
    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct node **at = parser_alloc(p, capacity, sizeof *at);
        if (!at)
            return false;
        if (list->n)
            memcpy(at, list->at, list->n * sizeof *at);
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->n++] = node;
    return true;
}

static void raise_height(struct node *node, const struct node *child)
{
    if (child && child->height >= node->height)
        node->height = (uint16_t)(child->height + 1);
}

static void raise_height_list(struct node *node, const struct node_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        raise_height(node, list->at[i]);
}

static struct node *check_height(struct parser *p, struct node *node)
{
    if (node->height < p->t->limits.parse_depth)
        return node;
    err_set(p->err, ERR_LIMIT, "template line %u: nested deeper than %u", node->line,
            p->t->limits.parse_depth);
    return NULL;
}

struct node *parser_close(struct parser *p, struct node *node)
{
    bool has_arguments = node->kind == NODE_CALL || node->kind == NODE_FILTER || node->kind == NODE_TEST;

    raise_height(node, node->a);
    raise_height(node, node->b);
    raise_height(node, node->c);
    raise_height_list(node, &node->items);
    raise_height_list(node, &node->body);
    raise_height_list(node, &node->other);
    if (has_arguments && node->arguments) {
        raise_height_list(node, &node->arguments->positional);
        raise_height_list(node, &node->arguments->keywords);
        raise_height(node, node->arguments->splat);
        raise_height(node, node->arguments->splat_keywords);
    }
    if (node->kind == NODE_BRANCH && node->height > 0)
        node->height--; // a branch has the level of its if
    return check_height(p, node);
}

static struct node *constant(struct parser *p, struct value value, uint32_t line)
{
    struct node *node = parser_node(p, NODE_CONST, line);

    if (!node || !(node->value = parser_alloc(p, 1, sizeof *node->value)))
        return NULL;
    *node->value = value;
    return node;
}

// A node with two children, or with one when both are the same; NULL when a child is.
static struct node *parent(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
    struct node *node = a && b ? parser_node(p, kind, a->line) : NULL;

    if (!node)
        return NULL;
    node->a = a;
    node->b = a == b ? NULL : b;
    return parser_close(p, node);
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct value value;
    } words[] = {
        { "true", { .kind = VALUE_BOOL, .b = true } },
        { "True", { .kind = VALUE_BOOL, .b = true } },
        { "false", { .kind = VALUE_BOOL, .b = false } },
        { "False", { .kind = VALUE_BOOL, .b = false } },
        { "none", { .kind = VALUE_NONE } },
        { "None", { .kind = VALUE_NONE } },
    };
    static const char *const reserved[] = { "and", "or", "not", "if", "else", "in", "is", "elif" };
    struct str name = p->now.text;

    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (str_is(name, reserved[i]))
            return fail_unexpected(p, "a value");
    if (!parser_advance(p))
        return NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(name, words[i].name))
            return constant(p, words[i].value, p->before.line);
    struct node *node = parser_node(p, NODE_NAME, p->before.line);
    p->mentions |= str_is(name, "varargs")  ? MACRO_USES_VARARGS
                   : str_is(name, "kwargs") ? MACRO_USES_KWARGS
                                            : 0;
    if (node) {
        node->name = name;
        node->hash = node_hash(name);
    }
    return node;
}

// Strings that follow each other are one string.
static struct node *parse_strings(struct parser *p)
{
    struct str text = p->now.text;
    uint32_t line = p->now.line;

    if (!parser_advance(p))
        return NULL;
    while (p->now.kind == TOKEN_STRING) {
        char *both = parser_alloc(p, text.n + p->now.text.n + 1, 1);
        if (!both)
            return NULL;
        memcpy(both, text.at, text.n);
        memcpy(both + text.n, p->now.text.at, p->now.text.n);
        text = (struct str){ both, text.n + p->now.text.n };
        if (!parser_advance(p))
            return NULL;
    }
    return constant(p, value_string(text, false), line);
}

// Expressions up to the closing bracket; pairs: "key: value" each, appended one after the other.
static bool parse_items(struct parser *p, struct node_list *items, const char *close, bool pairs)
{
    while (!parser_is(p, close)) {
        if (items->n && !parser_expect(p, ","))
            return false;
        if (parser_is(p, close))
            break;
        if (!parser_append(p, items, parse_expression(p, true)))
            return false;
        if (pairs && (!parser_expect(p, ":") || !parser_append(p, items, parse_expression(p, true))))
            return false;
    }
    return parser_advance(p);
}

static struct node *parse_bracketed(struct parser *p)
{
    bool list = parser_is(p, "[");
    struct node *node;

    if (parser_is(p, "(")) {
        if (!parser_advance(p))
            return NULL;
        node = parser_is(p, ")") ? parser_node(p, NODE_TUPLE, p->now.line) : parse_tuple(p, true, NULL);
        return node && parser_expect(p, ")") ? node : NULL;
    }
    node = parser_node(p, list ? NODE_LIST : NODE_DICT, p->now.line);
    if (!node || !parser_advance(p) || !parse_items(p, &node->items, list ? "]" : "}", !list))
        return NULL;
    return parser_close(p, node);
}

struct node *parse_primary(struct parser *p)
{
    struct token token = p->now;

    switch (token.kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_strings(p);
    case TOKEN_INT:
        return parser_advance(p) ? constant(p, value_int(token.i), token.line) : NULL;
    case TOKEN_FLOAT:
        return parser_advance(p) ? constant(p, value_float(token.f), token.line) : NULL;
    default:
        if (parser_is(p, "(") || parser_is(p, "[") || parser_is(p, "{"))
            return parse_bracketed(p);
        return fail_unexpected(p, "a value");
    }
}

static bool at_tuple_end(const struct parser *p, const char *end)
{
    return p->now.kind == TOKEN_VARIABLE_END || p->now.kind == TOKEN_BLOCK_END || parser_is(p, ")") ||
           parser_is(p, "=") || (end && parser_is_name(p, end));
}

struct node *parse_tuple(struct parser *p, bool with_condition, const char *end)
{
    struct node *first = parse_expression(p, with_condition), *tuple;

    if (!first || !parser_is(p, ","))
        return first;
    tuple = parser_node(p, NODE_TUPLE, first->line);
    if (!tuple || !parser_append(p, &tuple->items, first))
        return NULL;
    while (parser_is(p, ",")) {
        if (!parser_advance(p))
            return NULL;
        if (at_tuple_end(p, end))
            break;
        if (!parser_append(p, &tuple->items, parse_expression(p, with_condition)))
            return NULL;
    }
    return parser_close(p, tuple);
}

static bool parse_keyword(struct parser *p, struct node_arguments *arguments)
{
    struct node_list *keywords = &arguments->keywords;
    struct str name = p->now.text;

    if (!parser_advance(p) || !parser_advance(p) || !parser_append(p, keywords, parse_expression(p, true)))
        return false;
    if ((keywords->n & (keywords->n - 1)) == 0) {
        struct str *names = parser_alloc(p, keywords->n * 2, sizeof *names);
        if (!names)
            return false;
        if (keywords->n > 1)
            memcpy(names, arguments->names, (keywords->n - 1) * sizeof *names);
        arguments->names = names;
    }
    arguments->names[keywords->n - 1] = name;
    return true;
}

static bool parse_argument(struct parser *p, struct node_arguments *arguments)
{
    bool splat = parser_is(p, "*");

    if (splat || parser_is(p, "**")) {
        struct node **slot = splat ? &arguments->splat : &arguments->splat_keywords;
        if (*slot)
            return parser_fail(p, "an argument with * is given twice") != NULL;
        return parser_advance(p) && (*slot = parse_expression(p, true)) != NULL;
    }
    if (p->now.kind == TOKEN_NAME && p->next.kind == TOKEN_OPERATOR && str_is(p->next.text, "="))
        return parse_keyword(p, arguments);
    if (arguments->keywords.n || arguments->splat || arguments->splat_keywords)
        return parser_fail(p, "an argument without a name after one with a name") != NULL;
    return parser_append(p, &arguments->positional, parse_expression(p, true));
}

static struct node_arguments *parse_arguments(struct parser *p)
{
    struct node_arguments *arguments = parser_alloc(p, 1, sizeof *arguments);
    bool more = false;

    if (!arguments || !parser_expect(p, "("))
        return NULL;
    while (!parser_is(p, ")")) {
        if (more && !parser_expect(p, ","))
            return NULL;
        if (parser_is(p, ")"))
            break;
        if (!parse_argument(p, arguments))
            return NULL;
        more = true;
    }
    return parser_advance(p) ? arguments : NULL;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *call = parser_node(p, NODE_CALL, p->now.line);

    if (!call || !(call->arguments = parse_arguments(p)))
        return NULL;
    call->a = callee;
    return parser_close(p, call);
}

static struct node *parse_attribute(struct parser *p, struct node *object)
{
    uint32_t line = p->now.line;
    struct node *node;

    if (!parser_advance(p))
        return NULL;
    if (p->now.kind == TOKEN_INT) {
        struct node *key = constant(p, value_int(p->now.i), line);
        return parser_advance(p) ? parent(p, NODE_ITEM, object, key) : NULL;
    }
    if (p->now.kind != TOKEN_NAME)
        return fail_unexpected(p, "a name or number after '.'");
    if (!(node = parser_node(p, NODE_ATTRIBUTE, line)) || !parser_advance(p))
        return NULL;
    node->name = p->before.text;
    node->a = object;
    return parser_close(p, node);
}

// One part of a slice, up to ':' or the end; NULL is appended when it is left out.
static bool parse_slice_part(struct parser *p, struct node *slice, bool absent)
{
    static struct node none; // marks a part that is left out, while appending
    struct node *part = absent ? &none : parse_expression(p, true);

    if (!parser_append(p, &slice->items, part))
        return false;
    if (absent)
        slice->items.at[slice->items.n - 1] = NULL;
    return true;
}

static struct node *parse_slice(struct parser *p, struct node *object, struct node *start)
{
    struct node *slice = parser_node(p, NODE_SLICE, object->line);
    static struct node none;

    if (!slice || !parser_append(p, &slice->items, start ? start : &none) || !parser_expect(p, ":"))
        return NULL;
    slice->items.at[0] = start;
    slice->a = object;
    if (!parse_slice_part(p, slice, parser_is(p, ":") || parser_is(p, "]")))
        return NULL;
    bool step = parser_is(p, ":");
    if (step && !parser_advance(p))
        return NULL;
    if (!parse_slice_part(p, slice, !step || parser_is(p, "]")) || !parser_expect(p, "]"))
        return NULL;
    return parser_close(p, slice);
}

static struct node *parse_subscript(struct parser *p, struct node *object)
{
    struct node *key;

    if (!parser_advance(p))
        return NULL;
    if (parser_is(p, ":"))
        return parse_slice(p, object, NULL);
    if (!(key = parse_expression(p, true)))
        return NULL;
    if (parser_is(p, ":"))
        return parse_slice(p, object, key);
    if (parser_is(p, ",")) {
        struct node *tuple = parser_node(p, NODE_TUPLE, key->line);
        if (!tuple || !parser_append(p, &tuple->items, key) || !parser_advance(p) ||
            !parse_items(p, &tuple->items, "]", false) || !parser_close(p, tuple))
            return NULL;
        return parent(p, NODE_ITEM, object, tuple);
    }
    return parser_expect(p, "]") ? parent(p, NODE_ITEM, object, key) : NULL;
}

static struct node *parse_postfix(struct parser *p, struct node *node)
{
    while (node) {
        if (parser_is(p, "."))
            node = parse_attribute(p, node);
        else if (parser_is(p, "["))
            node = parse_subscript(p, node);
        else if (parser_is(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

struct node *parse_filters(struct parser *p, struct node *input, bool first_without_bar)
{
    while (input && (first_without_bar || parser_is(p, "|"))) {
        if (!first_without_bar && !parser_advance(p))
            return NULL;
        first_without_bar = false;
        if (p->now.kind != TOKEN_NAME)
            return fail_unexpected(p, "the name of a filter");
        struct node *filter = parser_node(p, NODE_FILTER, p->now.line);
        if (!filter || !parser_advance(p))
            return NULL;
        filter->name = p->before.text;
        filter->a = input;
        if (parser_is(p, "(") && !(filter->arguments = parse_arguments(p)))
            return NULL;
        input = parser_close(p, filter);
    }
    return input;
}

static bool test_has_operand(const struct parser *p)
{
    if (p->now.kind == TOKEN_NAME)
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and") &&
               !parser_is_name(p, "if") && !parser_is_name(p, "in") && !parser_is_name(p, "not");
    return p->now.kind == TOKEN_STRING || p->now.kind == TOKEN_INT || p->now.kind == TOKEN_FLOAT ||
           parser_is(p, "[") || parser_is(p, "{");
}

static struct node *parse_test(struct parser *p, struct node *input)
{
    struct node *test = parser_node(p, NODE_TEST, p->now.line);
    bool negated;

    if (!test || !parser_advance(p))
        return NULL;
    negated = parser_is_name(p, "not");
    if (negated && !parser_advance(p))
        return NULL;
    if (p->now.kind != TOKEN_NAME)
        return fail_unexpected(p, "the name of a test");
    if (!parser_advance(p))
        return NULL;
    test->name = p->before.text;
    test->a = input;
    if (parser_is(p, "(")) {
        if (!(test->arguments = parse_arguments(p)))
            return NULL;
    } else if (test_has_operand(p)) {
        if (parser_is_name(p, "is"))
            return parser_fail(p, "two tests cannot be chained with 'is'");
        test->arguments = parser_alloc(p, 1, sizeof *test->arguments);
        if (!test->arguments ||
            !parser_append(p, &test->arguments->positional, parse_postfix(p, parse_primary(p))))
            return NULL;
    }
    if (!parser_close(p, test))
        return NULL;
    return negated ? parent(p, NODE_NOT, test, test) : test;
}

static struct node *parse_filters_and_tests(struct parser *p, struct node *node)
{
    while (node) {
        if (parser_is(p, "|"))
            node = parse_filters(p, node, false);
        else if (parser_is_name(p, "is"))
            node = parse_test(p, node);
        else if (parser_is(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    struct node *node;

    if (parser_is(p, "-") || parser_is(p, "+")) {
        enum node_kind kind = parser_is(p, "-") ? NODE_NEGATE : NODE_PLUS;
        if (!parser_enter(p) || !parser_advance(p))
            return NULL;
        node = parse_unary(p, false);
        node = parent(p, kind, node, node);
        p->depth--;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    return with_filters ? parse_filters_and_tests(p, node) : node;
}

struct operator_found {
    enum level level;
    enum operator_kind op;
    uint32_t n_tokens;
};

static struct operator_found operator_here(const struct parser *p)
{
    static const struct {
        const char *text;
        struct operator_found found;
    } table[] = {
        { "+", { LEVEL_ADD, OP_ADD, 1 } },     { "-", { LEVEL_ADD, OP_SUB, 1 } },
        { "*", { LEVEL_MUL, OP_MUL, 1 } },     { "/", { LEVEL_MUL, OP_DIV, 1 } },
        { "%", { LEVEL_MUL, OP_MOD, 1 } },     { "//", { LEVEL_MUL, OP_FLOOR_DIV, 1 } },
        { "**", { LEVEL_POW, OP_POW, 1 } },    { "~", { LEVEL_CONCAT, OP_ADD, 1 } },
        { "==", { LEVEL_COMPARE, OP_EQ, 1 } }, { "!=", { LEVEL_COMPARE, OP_NE, 1 } },
        { "<", { LEVEL_COMPARE, OP_LT, 1 } },  { "<=", { LEVEL_COMPARE, OP_LE, 1 } },
        { ">", { LEVEL_COMPARE, OP_GT, 1 } },  { ">=", { LEVEL_COMPARE, OP_GE, 1 } },
        { "or", { LEVEL_OR, OP_ADD, 1 } },     { "and", { LEVEL_AND, OP_ADD, 1 } },
        { "in", { LEVEL_COMPARE, OP_IN, 1 } },
    };
    const struct token *token = &p->now;

    if (token->kind != TOKEN_OPERATOR && token->kind != TOKEN_NAME)
        return (struct operator_found){ LEVEL_NONE, OP_ADD, 0 };
    if (parser_is_name(p, "not") && p->next.kind == TOKEN_NAME && str_is(p->next.text, "in"))
        return (struct operator_found){ LEVEL_COMPARE, OP_NOT_IN, 2 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_is(token->text, table[i].text))
            return table[i].found;
    return (struct operator_found){ LEVEL_NONE, OP_ADD, 0 };
}

static bool append_compared(struct parser *p, struct node *chain, enum operator_kind op, struct node *right)
{
    uint32_t n = chain->items.n;

    if (n == 0 || (n & (n - 1)) == 0) {
        uint8_t *ops = parser_alloc(p, n ? n * 2 : 1, 1);
        if (!ops)
            return false;
        if (n)
            memcpy(ops, chain->ops, n);
        chain->ops = ops;
    }
    chain->ops[n] = (uint8_t)op;
    return parser_append(p, &chain->items, right);
}

// left OP right; comparisons and ~ in a row go into one node, which *chain remembers.
static struct node *parse_operation(struct parser *p, struct node *left, struct operator_found o,
                                    struct node **chain)
{
    static const uint8_t kinds[] = {
        [LEVEL_OR] = NODE_OR,         [LEVEL_AND] = NODE_AND,    [LEVEL_COMPARE] = NODE_COMPARE,
        [LEVEL_CONCAT] = NODE_CONCAT, [LEVEL_ADD] = NODE_BINARY, [LEVEL_MUL] = NODE_BINARY,
        [LEVEL_POW] = NODE_BINARY
    };
    enum node_kind kind = kinds[o.level];
    struct node *node = left, *right;

    for (uint32_t i = 0; i < o.n_tokens; i++)
        if (!parser_advance(p))
            return NULL;
    if (!(right = parse_binary(p, o.level + 1)))
        return NULL;
    if (kind == NODE_OR || kind == NODE_AND || kind == NODE_BINARY) {
        if ((node = parent(p, kind, left, right)) != NULL)
            node->op = (uint8_t)o.op;
        return node;
    }
    if (*chain != left || left->kind != kind) {
        if (!(node = parser_node(p, kind, left->line)))
            return NULL;
        if (kind == NODE_COMPARE)
            node->a = left;
        else if (!parser_append(p, &node->items, left))
            return NULL;
        raise_height(node, left);
    }
    *chain = node;
    if (!(kind == NODE_COMPARE ? append_compared(p, node, o.op, right)
                               : parser_append(p, &node->items, right)))
        return NULL;
    raise_height(node, right);
    return check_height(p, node);
}

static struct node *parse_binary(struct parser *p, enum level min)
{
    struct node *left, *chain = NULL;

    if (!parser_enter(p))
        return NULL;
    if (min <= LEVEL_NOT && parser_is_name(p, "not")) {
        left = parser_advance(p) ? parse_binary(p, LEVEL_NOT) : NULL;
        left = parent(p, NODE_NOT, left, left);
    } else {
        left = parse_unary(p, true);
    }
    while (left) {
        struct operator_found o = operator_here(p);
        if (o.level == LEVEL_NONE || o.level < min)
            break;
        left = parse_operation(p, left, o, &chain);
    }
    p->depth--;
    return left;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    struct node *value = parse_binary(p, LEVEL_OR);

    while (value && with_condition && parser_is_name(p, "if")) {
        struct node *node = parser_node(p, NODE_CONDITION, p->now.line);
        if (!node || !parser_advance(p) || !(node->b = parse_binary(p, LEVEL_OR)))
            return NULL;
        node->a = value;
        if (parser_is_name(p, "else")) {
            if (!parser_enter(p) || !parser_advance(p) || !(node->c = parse_expression(p, true)))
                return NULL;
            p->depth--;
        }
        value = parser_close(p, node);
    }
    return value;
}
