// template_parser.h - from text to the tree: tokens, the lexer and the parser's state. Shared by the files
// that parse templates.
//
// The lexer makes one token at a time and the parser looks one ahead, so that only the tree is stored. After
// an error, a function that returns a node returns NULL, one that returns bool returns false, and the error
// is filled in.
#pragma once
#include "text/template/template_node.h"

// Tokens.
enum lexeme_kind {
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
    enum lexeme_kind kind;
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
    enum lexeme_kind inside; // TOKEN_DATA, TOKEN_VARIABLE_BEGIN or TOKEN_BLOCK_BEGIN
    bool line_starting;      // the last token ended with a newline
    enum lexeme_kind pending;
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
// Sets the node's height from its children; false when it is too high. The node itself, or NULL after an
// error.
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
