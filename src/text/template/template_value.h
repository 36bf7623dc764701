// template_value.h - values of a rendering: what the template language computes with.
//
// Values live in the rendering's arena. Lists and dicts are immutable, so slices and copies share memory; but
// a generator's front moves, a namespace's entries are set, and a template's list grows at its end. A string
// knows the origin of every byte: `user` when all of it came from the variables, `marks` when it is mixed;
// every function that makes a string from strings keeps this. Numbers, which can become text, have `user`
// too. A `safe` string is Python's Markup: text that is added to it is escaped.
#pragma once
#include "text/template/template_render.h"

enum value_kind {
    VALUE_ABSENT, // an argument that was not given
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_BOUND,   // a method with its object
    VALUE_BUILTIN, // a global function
};

struct value {
    uint8_t kind;
    bool user, safe; // safe: of strings only
    union {
        bool b;
        int64_t i;
        double f;
        struct str s; // of a string; of VALUE_UNDEFINED: the name that was not found
        struct list *list;
        struct dict *dict;
        struct loop *loop;
        struct macro *macro;
        struct bound *bound;
        const struct builtin *builtin;
    };
    union {
        const uint8_t *marks; // of a string of mixed origin: for each byte, 1 = from the variables; or NULL
        const char *owner;    // of VALUE_UNDEFINED: the type whose attribute it was, or NULL
    };
};

enum list_kind { LIST_PLAIN, LIST_TUPLE, LIST_GENERATOR, LIST_RANGE };
struct list {
    enum list_kind kind;
    bool group; // of groupby: a pair that is also called .grouper and .list
    bool grows; // made by the template: append may change it
    struct value *at;
    size_t n, capacity; // capacity: of at, where this list alone may write behind n; else 0
};
struct dict {
    struct entry {
        struct value key, value;
    } * at;
    size_t n, capacity;
};
struct bound {
    struct value self;
    const struct builtin *builtin;
};

#define VALUE_OF_NONE ((struct value){ .kind = VALUE_NONE })
static inline struct value value_bool(bool b)
{
    return (struct value){ .kind = VALUE_BOOL, .b = b };
}
static inline struct value value_int(int64_t i)
{
    return (struct value){ .kind = VALUE_INT, .i = i };
}
static inline struct value value_float(double f)
{
    return (struct value){ .kind = VALUE_FLOAT, .f = f };
}
static inline struct value value_string(struct str s, bool user)
{
    return (struct value){ .kind = VALUE_STRING, .user = user, .s = s };
}
static inline struct value value_undefined(struct str name)
{
    return (struct value){ .kind = VALUE_UNDEFINED, .s = name };
}
static inline bool value_is_number(struct value v)
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT || v.kind == VALUE_FLOAT;
}
static inline bool value_is_integer(struct value v) // as Python counts: a bool is one
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}
static inline int64_t value_as_int(struct value v)
{
    return v.kind == VALUE_BOOL ? v.b : v.i;
}
static inline double value_as_float(struct value v)
{
    return v.kind == VALUE_FLOAT ? v.f : (double)value_as_int(v);
}
static inline struct value value_part(struct value text, size_t from, size_t to) // bytes of a string
{
    text.s = str_from_to(text.s, from, to);
    text.marks = text.marks ? text.marks + from : NULL;
    return text;
}

const char *value_type_name(struct value v);
bool value_truth(struct value v);
// Fails with "'x' is undefined" when v is undefined.
bool value_need_defined(struct render *r, struct value v);
bool value_equal(struct render *r, struct value a, struct value b, bool *equal);
bool value_order(struct render *r, struct value a, struct value b, int *order); // -1, 0, 1; may have none
bool value_length(struct render *r, struct value v, int64_t *n);
bool value_contains(struct render *r, struct value item, struct value in, bool *found);

// Lists. A new list is filled in place by the caller.
bool value_list_new(struct render *r, enum list_kind kind, size_t n, struct value *out);
bool value_list_copy(struct render *r, enum list_kind kind, struct list items, struct value *out);
bool value_list_share(struct render *r, enum list_kind kind, struct list items, struct value *out); // no copy
bool value_list_push(struct render *r, struct list *list, struct value item);
// The items of anything iterable: keys of a dict, characters of a string. Empties a generator.
bool value_items(struct render *r, struct value v, struct list *items);

bool value_dict_new(struct render *r, size_t capacity, struct value *out); // get: VALUE_ABSENT: not there
bool value_dict_get(struct render *r, const struct dict *dict, struct value key, struct value *out);
bool value_dict_set(struct render *r, struct dict *dict, struct value key, struct value value);
// [(key, value), ...].
bool value_dict_items(struct render *r, const struct dict *dict, enum list_kind kind, struct value *out);
// A JSON value. user: strings and numbers in it are marked as such.
bool value_from_json(struct render *r, json_t *json, bool user, struct value *out);

// A string under construction. safe: so is the string, and builder_put_value escapes strings that are not.
struct builder {
    struct render *r;
    char *at;
    uint8_t *marks; // only once the origin is mixed
    size_t n, capacity, max;
    bool user, safe; // user: of all bytes so far
};
struct builder builder_start(struct render *r);
bool builder_put(struct builder *b, struct str s, bool user);
bool builder_put_value(struct builder *b, struct value string);
struct value builder_value(const struct builder *b);
// operands[0] OP operands[1]; op is an enum operator_kind from OP_ADD to OP_POW.
bool value_binary(struct render *r, uint8_t op, const struct value operands[2], struct value *out);
