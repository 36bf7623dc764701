// template_builtin.h - filters, tests, global functions and methods: the rows of template_builtins.def, and
// the arguments of their functions.
#pragma once
#include "text/template/template_value.h"

enum builtin_of { OF_FILTER, OF_TEST, OF_GLOBAL, OF_STRING, OF_DICT, OF_LIST, OF_LOOP };
enum builtin_self { SELF, TEXT };

// Modes. test_kind takes a set of kinds, text_case and text_has_case an enum string_case, text_strip an enum
// char_strip_side.
enum { SELECT_WANTED = 1, SELECT_BY_ATTRIBUTE = 2 };
enum { ORDER_LESS = 1, ORDER_SAME = 2, ORDER_GREATER = 4 };
enum { FIND_LAST = 1, FIND_MUST = 2 };
enum { PAD_LEFT, PAD_RIGHT, PAD_BOTH };
enum { CHARS_DIGIT = 1, CHARS_LETTER = 2, CHARS_SPACE = 4 };
#define KIND(kind)     (1 << (kind))
#define KINDS_ITERABLE (KIND(VALUE_STRING) | KIND(VALUE_DICT) | KIND(VALUE_UNDEFINED) | KIND(VALUE_LIST))
#define KINDS_CALLABLE (KIND(VALUE_MACRO) | KIND(VALUE_BOUND) | KIND(VALUE_BUILTIN) | KIND(VALUE_LOOP))

enum { CALL_MAX_PARAMETERS = 4 };
struct call {
    const struct value *self;                     // the filtered, tested or owning value
    const struct value *arg[CALL_MAX_PARAMETERS]; // VALUE_ABSENT where not given
    int64_t number[CALL_MAX_PARAMETERS];          // of parameters that are numbers or booleans
    const struct call_arguments *raw;
    struct value *out;
    int mode;
};

struct builtin {
    uint8_t of, self, n_name;
    int16_t mode;
    const char *name, *parameters;
    bool (*run)(struct render *r, struct call *c);
};

// NULL: no such name.
const struct builtin *builtin_find(enum builtin_of of, struct str name);
const struct builtin *builtin_find_method(const struct value *self, struct str name);

// An argument as a number or string: `otherwise` when absent or None. An error names the type found.
bool call_argument_int(struct render *r, const struct value *v, int64_t otherwise, int64_t *out);
bool call_argument_string(struct render *r, const struct value *v, struct value *out);

#define BUILTIN(of, name, self, parameters, function, mode) bool function(struct render *r, struct call *c);
#include "text/template/template_builtins.def"
#undef BUILTIN
