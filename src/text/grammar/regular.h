// regular.h - regular languages: regular expressions with intersection ("both") and complement ("not"), and
// their automata.
//
// Terms are hash-consed: equal terms have one number, so that the states of an automaton (Brzozowski
// derivatives) are compared by number. Patterns follow ECMA 262 with the flag u, including look-ahead, which
// is an intersection with what follows.
// All sizes are bounded: exceeding a limit sets `full`, and every result is then invalid.
// Not here: back references, look-behind, word boundaries, Unicode properties; writing a language as a
// grammar (schema_language.c).
#pragma once
#include "base/hash_index.h"
#include "base/str.h"

enum {
    REGULAR_MAX_TERMS = 1 << 19,
    REGULAR_MAX_SETS = 256,        // different sets of characters in one language
    REGULAR_MAX_RANGES = 4096,     // in total
    REGULAR_MAX_PATTERN = 1 << 13, // bytes
    REGULAR_MAX_STATES = 1 << 13,
    REGULAR_MAX_WORK = 1 << 23, // derivatives, of all strings of a schema
    REGULAR_LAST_CODE = 0x10ffff,
};

enum regular_kind {
    REGULAR_NOTHING,
    REGULAR_EMPTY, // the empty string
    REGULAR_SET,   // one character of set a
    REGULAR_SEQUENCE,
    REGULAR_EITHER,
    REGULAR_BOTH,
    REGULAR_NOT,
    REGULAR_REPEAT, // a, from least to most times
    REGULAR_BEGIN,  // these four only while a pattern is read: ^ $ (?=a) (?!a)
    REGULAR_END,
    REGULAR_AHEAD,
    REGULAR_NOT_AHEAD,
};

// The first numbers.
enum { TERM_NOTHING, TERM_EMPTY, TERM_ANY, TERM_ALL }; // TERM_ANY: one character; TERM_ALL: every string

struct regular_term {
    uint8_t kind;
    bool nullable;   // matches the empty string
    bool is_boolean; // contains "both" or "not"
    bool asserts;    // contains one of the last four kinds
    uint32_t a, b, least, most;
};

struct regular_range {
    uint32_t first, last;
};

struct regular_set {
    uint32_t first, n; // in ranges: sorted and disjoint
};

struct regular {
    struct regular_term *terms;
    uint32_t n_terms, capacity;
    struct hash_index index; // of terms
    struct regular_range ranges[REGULAR_MAX_RANGES];
    struct regular_set sets[REGULAR_MAX_SETS];
    uint32_t n_ranges, n_sets;
    uint32_t *stack; // parts of lists that are being made
    uint32_t n_stack, stack_capacity;
    uint32_t work; // derivatives so far
    bool full;
};

struct regular *regular_create(void); // NULL: out of memory
void regular_free(struct regular *r); // NULL is allowed

uint32_t regular_set(struct regular *r, struct regular_range *ranges, uint32_t n); // sorts ranges
uint32_t regular_text(struct regular *r, struct str text);                         // this string alone
uint32_t regular_sequence(struct regular *r, uint32_t a, uint32_t b);
uint32_t regular_either(struct regular *r, uint32_t a, uint32_t b);
uint32_t regular_both(struct regular *r, uint32_t a, uint32_t b);
// Combines the terms on the stack from `base` on, in pairs. The caller resets n_stack.
uint32_t regular_join(struct regular *r, enum regular_kind either_or_both, uint32_t base, uint32_t n);
void regular_push(struct regular *r, uint32_t term);
uint32_t regular_not(struct regular *r, uint32_t a);
uint32_t regular_repeat(struct regular *r, uint32_t a, uint32_t least, uint32_t most);
uint32_t regular_assertion(struct regular *r, enum regular_kind kind, uint32_t a);

// The strings that contain a match of the pattern.
bool regular_pattern(struct regular *r, struct str pattern, uint32_t *term, struct err *err);

// The automaton of a term, without states that cannot reach the end of a string. State 0 is the start.
struct automaton {
    uint32_t n_states, n_symbols;
    uint32_t *step;               // [n_states][n_symbols] the next state, or UINT32_MAX
    uint32_t *term;               // [n_states] the strings that may follow there
    bool *ends;                   // [n_states]
    uint32_t *symbol_of;          // [n_pieces] the symbol of each piece of the code points
    struct regular_range *pieces; // [n_pieces] in order
    uint32_t n_pieces;
};

enum automaton_result { AUTOMATON_MADE, AUTOMATON_EMPTY, AUTOMATON_TOO_LARGE };
enum automaton_result automaton_make(struct automaton *m, struct regular *r, uint32_t term);
void automaton_free(struct automaton *m);
bool automaton_takes(const struct automaton *m, struct str text);
