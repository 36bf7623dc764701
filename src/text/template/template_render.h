// template_render.h - one rendering: its limits, scopes and calls. Shared by the files of the template
// language only.
//
// Evaluation walks the parsed tree. Its recursion is as deep as the tree is high, for each active macro; both
// are bounded, and `depth` bounds their sum, and so the C stack. Every function here fills the error before
// it returns false.
#pragma once
#include "base/arena.h"
#include "text/template/template.h"

struct value;
struct builtin;
struct node;
struct node_list;
struct builder;

struct render {
    const struct template *t;
    const struct template_limits *limits;
    struct arena *arena;
    struct err *err;
    uint64_t fuel;  // left
    uint32_t depth; // of evaluation
    uint32_t calls; // macros active
    uint32_t line;  // of what is being evaluated, for messages
    int64_t unix_time;
    struct scope *scope;
    const struct dict *variables;
    struct builder *out;    // where output goes
    struct value *captured; // the text a filter block works on
    struct value *caller;   // of the call block whose call is evaluated next, which consumes it
};

enum { RENDER_MAX_DEPTH = 768, VALUE_MAX_DEPTH = 200 };

// "template line N: ..."
bool render_fail(struct render *r, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);
bool render_spend(struct render *r, uint64_t fuel);
// Zeroed memory of the rendering, or NULL after an error.
void *render_alloc(struct render *r, size_t n, size_t bytes);
// Room for one more of n items behind `at`: the same memory, or twice as much with the items copied. NULL
// after an error.
void *render_grow(struct render *r, void *at, size_t n, size_t *capacity, size_t bytes);

// The arguments of a call as evaluated.
struct keyword {
    struct str name;
    struct value *value;
};
struct call_arguments {
    struct value *at;
    size_t n;
    struct keyword *keywords;
    size_t n_keywords;
};
// NULL: not given
const struct value *render_keyword(const struct call_arguments *arguments, struct str name);

bool render_builtin(struct render *r, const struct builtin *b, const struct value *self,
                    const struct call_arguments *arguments, struct value *out);
bool render_filter(struct render *r, struct str name, const struct value *self,
                   const struct call_arguments *arguments, struct value *out);
bool render_test(struct render *r, struct str name, const struct value *self,
                 const struct call_arguments *arguments, bool *out);

bool render_eval(struct render *r, const struct node *n, struct value *out);
// object.name and object[key], as Jinja looks them up.
bool render_attribute(struct render *r, const struct value *object, struct str name, struct value *out);
bool render_item(struct render *r, const struct value *object, const struct value *key, struct value *out);
bool render_call_macro(struct render *r, const struct value *macro, const struct call_arguments *arguments,
                       struct value *out);
bool render_call_loop(struct render *r, struct value *items, const struct value *loop, struct value *out);
bool render_loop_attribute(struct render *r, const struct value *loop, struct str name, struct value *out);
bool render_scope_find(struct render *r, struct str name, uint32_t hash, struct value *out);
