// grammar.h - context-free grammars for constrained decoding, in GBNF, llama.cpp's notation.
//
// The text is compiled to a pushdown automaton over bytes: code points and classes are expanded to UTF-8, so
// that a token may end in the middle of a character. Rules call each other; matcher.h runs the automaton.
// Errors with a line: left recursion, undefined rules, and nesting, repetition or sizes beyond the limits
// below. Recursion is at most MAX_DEPTH deep.
// <[1234]> is the control token with that id, which has no text; a matcher reads it as the bytes of
// grammar_token.
// Not here: tokens by name, tokens with text by id, look-ahead.
#pragma once
#include "base/str.h"

enum {
    GRAMMAR_MAX_BYTES = 4 << 20,  // of the text
    GRAMMAR_MAX_RULES = 1 << 16,  // including those that repetition makes
    GRAMMAR_MAX_NODES = 1 << 18,  // after repetition is expanded
    GRAMMAR_MAX_SETS = 1 << 10,   // different classes of bytes
    GRAMMAR_MAX_DEPTH = 128,      // of parentheses
    GRAMMAR_MAX_REPEAT = 1 << 16, // in x{m,n}
};

struct grammar; // read-only after grammar_create: any number of threads

// The rule "root" is the whole answer.
bool grammar_create(struct grammar **g, struct str text, struct err *err);
void grammar_free(struct grammar *g); // NULL is allowed

// The bytes that represent a control token; UTF-8 text never contains them.
enum { GRAMMAR_TOKEN_BYTES = 5 };
void grammar_token(uint32_t token, char bytes[GRAMMAR_TOKEN_BYTES]);
