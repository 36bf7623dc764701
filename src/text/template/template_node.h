// template_node.h - the parsed form of a template: a tree. Shared by the files of the template language only.
//
// One struct for every kind of node; the comment of each kind lists the fields that it uses. A node's height
// is checked while parsing, so that a walk of the tree may recurse.
#pragma once
#include "base/arena.h"
#include "text/template/template.h"
#include "text/template/template_value.h"

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
