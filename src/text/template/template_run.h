// template_run.h - the state of statements: scopes, macros, loops. Shared by the files of the template
// language only.
#pragma once
#include "text/template/template_node.h"

struct variable {
    struct str name;
    uint32_t hash;
    struct value value;
};
struct scope {
    struct scope *parent;
    struct variable *at;
    size_t n, capacity;
    bool kept; // a macro refers to it
};

enum { MACRO_USES_VARARGS = 1, MACRO_USES_KWARGS = 2 }; // node->op of a macro
struct macro {
    const struct node *node; // NODE_MACRO or NODE_CALL_BLOCK
    struct scope *scope;     // where it was defined
};

struct loop {
    const struct node *node;
    struct scope *outside;
    struct list items;
    size_t index;
    uint32_t depth;
    struct value changed; // the last arguments of loop.changed(), a tuple
};
