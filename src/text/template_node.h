// template_node.h - the parsed form of a template: tokens and the tree. Shared by the files of the template language only.
//
// One struct serves every kind of node; the comment of each kind says which fields it uses. A node's height is checked while
// parsing, so that whatever walks the tree may recurse.
#pragma once
#include "base/arena.h"
#include "text/template.h"
#include "text/template_value.h"

enum node_kind {
    // expressions
    NODE_CONST,     // value
    NODE_NAME,      // name, hash
    NODE_LIST,      // items
    NODE_TUPLE,     // items
    NODE_DICT,      // items: key, value, key, value
    NODE_ATTRIBUTE, // a.name
    NODE_ITEM,      // a[b]
    NODE_SLICE,     // a[items[0]:items[1]:items[2]], NULL where left out
    NODE_CALL,      // a(arguments)
    NODE_FILTER,    // a | name(arguments)
    NODE_TEST,      // a is name(arguments)
    NODE_NOT,       // not a
    NODE_NEGATE,    // -a
    NODE_PLUS,      // +a
    NODE_AND,       // a and b
    NODE_OR,        // a or b
    NODE_BINARY,    // a op b
    NODE_CONCAT,    // items joined by ~
    NODE_COMPARE,   // a, then items[i] compared by ops[i]
    NODE_CONDITION, // a if b else c (c may be NULL)
    NODE_CAPTURED,  // the text of the enclosing filter block
    // statements
    NODE_TEXT,       // value
    NODE_PRINT,      // a
    NODE_IF,         // items: NODE_BRANCH each; other
    NODE_BRANCH,     // if a: body
    NODE_FOR,        // for a in b if c: body, else other; flag: recursive
    NODE_SET,        // a = b
    NODE_SET_BLOCK,  // a = body through the filters b (may be NULL)
    NODE_MACRO,      // name, hash, items: NODE_NAME with its default in a; body
    NODE_CALL_BLOCK, // call a with a caller macro made of items and body
    NODE_FILTER_BLOCK,
    NODE_WITH,  // targets items[0], items[2].. = items[1], items[3]..; body
    NODE_SCOPE, // body, in a scope of its own
    NODE_BREAK,
    NODE_CONTINUE,
};

enum operator_kind {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR_DIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct node_list {
    struct node **at;
    uint32_t n, capacity;
};

struct node_arguments {
    struct node_list positional, keywords; // keywords: values; names in parallel
    struct str *names;
    struct node *splat, *splat_keywords; // *a, **b
};

struct node {
    uint8_t kind, op;
    bool flag;
    uint16_t height;
    uint32_t line, hash;
    struct str name;
    struct node *a, *b, *c;
    struct node_list items, body, other;
    union {
        struct node_arguments *arguments;
        uint8_t *ops;
        struct value *value;
    };
};

struct template
{
    struct arena *arena;
    struct template_limits limits;
    struct node_list body;
};

uint32_t node_hash(struct str name);

// Tokens.
enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, // text is the operator
};

struct token {
    enum token_kind kind;
    uint32_t line;
    struct str text; // data, name, string (unescaped), operator
    int64_t i;
    double f;
};

enum { LEXER_MAX_BRACKETS = 512 };
struct lexer {
    struct str source; // newlines normalised
    size_t at;
    uint32_t line;
    enum token_kind inside; // TOKEN_DATA, TOKEN_VARIABLE_BEGIN or TOKEN_BLOCK_BEGIN
    bool line_starting;     // the last token ended with a newline
    enum token_kind pending;
    char brackets[LEXER_MAX_BRACKETS]; // the closing ones that are expected
    uint32_t n_brackets;
    struct arena *arena;
    struct err *err;
};

// Normalises newlines and drops one at the end, as Jinja does; the text must be UTF-8.
bool lexer_start(struct lexer *l, struct str source, struct arena *arena, struct err *err);
bool lexer_next(struct lexer *l, struct token *token);

// The parser's state, shared by expressions and statements.
struct parser {
    struct template *t;
    struct arena *arena;
    struct err *err;
    struct lexer lexer;
    struct token now, next;
    uint32_t depth;
    uint32_t loops;      // around this place, within the macro
    uint8_t mentions;    // MACRO_USES_... of the macro
    struct token before; // the last one consumed
};

bool parser_advance(struct parser *p);
struct node *parser_fail(struct parser *p, const char *format, ...) PRINTF_LIKE(2, 3);
struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line);
bool parser_append(struct parser *p, struct node_list *list, struct node *node);
// Sets the node's height from its children; false when it is too high. The node itself, or NULL after an error.
struct node *parser_close(struct parser *p, struct node *node);
bool parser_is(const struct parser *p, const char *op);
bool parser_is_name(const struct parser *p, const char *name);
bool parser_expect(struct parser *p, const char *op);
bool parser_enter(struct parser *p);

struct node *parse_expression(struct parser *p, bool with_condition);
// Expressions separated by commas make a tuple. end: a name that ends it ("in", "recursive"), or NULL.
struct node *parse_tuple(struct parser *p, bool with_condition, const char *end);
struct node *parse_primary(struct parser *p);
struct node *parse_filters(struct parser *p, struct node *input, bool first_without_bar);
bool parse_statements(struct parser *p, struct node_list *body, const char *const *ends);
