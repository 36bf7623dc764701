// grammar_node.h - the inside of a grammar: parsed expressions, and the automaton compiled from them.
#pragma once
#include "base/arena.h"
#include "text/grammar/grammar.h"

// ---- expressions, in the arena of the parser

enum expr_kind { EXPR_TEXT, EXPR_CLASS, EXPR_RULE, EXPR_SEQUENCE, EXPR_CHOICE, EXPR_REPEAT };

struct code_range {
    uint32_t first, last;
};

struct expr {
    enum expr_kind kind;
    struct expr *next;        // in its list
    struct expr *parts;       // of a sequence or choice, in reverse order; the one part of a repetition
    struct str text;          // EXPR_TEXT: bytes
    struct code_range *range; // EXPR_CLASS: sorted and disjoint
    uint32_t n_ranges;
    uint32_t rule;
    uint32_t min, max; // EXPR_REPEAT; max UINT32_MAX: without end
};

struct rule_source {
    struct str name;
    struct expr *body; // NULL: not defined
    uint32_t line;     // of its first use
};

struct grammar_source {
    struct arena *arena;
    struct rule_source *rules; // [n_rules]
    uint32_t n_rules, capacity;
};

// Parses GBNF. The arena is the caller's; free rules by mem_free.
bool grammar_parse(struct grammar_source *source, struct str text, struct err *err);

// ---- the automaton

enum grammar_node_kind {
    NODE_RETURN, // the end of a rule
    NODE_BYTES,  // one byte of a set, then next
    NODE_SPLIT,  // next or other
    NODE_CALL,   // rule `other`, then next
};

struct grammar_node {
    uint32_t kind, next, other; // NODE_BYTES: other is the set
};

struct byte_set {
    uint64_t words[4];
};

struct grammar {
    struct grammar_node *nodes; // node 0 is the only NODE_RETURN
    uint32_t n_nodes, node_capacity;
    uint32_t *starts; // [n_rules] first node of each rule
    uint32_t n_rules, root;
    struct byte_set *sets; // [n_sets]
    uint32_t n_sets;
    uint8_t byte_class[256];    // bytes that are in the same sets share a class
    uint8_t class_example[256]; // a byte of each class
    uint32_t n_classes;         // 1 to 256
    uint32_t single_sets[256];  // while compiling: the set of one byte, plus 1
};

static inline bool byte_set_has(const struct byte_set *s, uint8_t byte)
{
    return s->words[byte >> 6] >> (byte & 63) & 1;
}
