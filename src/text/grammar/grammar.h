// grammar.h - a context-free grammar that an answer has to follow, from GBNF text: the notation that llama.cpp's users know.
//
// The text becomes a network of nodes over bytes: code points and classes are spelt out as UTF-8, so that a token may end in the
// middle of a character. Rules call each other; matcher.h walks the network. Refused with the line at fault: left recursion, rules
// that are not defined, nesting, repetition and sizes beyond the limits below. Nothing recurses deeper than MAX_DEPTH.
// <[1234]> is the control token of that number, which has no text; a matcher reads it as the bytes of grammar_token.
// Not here: tokens by name, those that have text by number, look-ahead.
#pragma once
#include "base/str.h"

enum {
    GRAMMAR_MAX_BYTES = 4 << 20,  // of the text
    GRAMMAR_MAX_RULES = 1 << 16,  // those that repetition makes included
    GRAMMAR_MAX_NODES = 1 << 18,  // after repetition was spelt out
    GRAMMAR_MAX_SETS = 1 << 10,   // different classes of bytes
    GRAMMAR_MAX_DEPTH = 128,      // of parentheses
    GRAMMAR_MAX_REPEAT = 1 << 16, // in x{m,n}
};

struct grammar; // read-only after grammar_create: any number of threads

// The rule "root" is the whole answer.
bool grammar_create(struct grammar **g, struct str text, struct err *err);
void grammar_free(struct grammar *g); // NULL is allowed

// What stands for a control token: bytes that no text in UTF-8 has.
enum { GRAMMAR_TOKEN_BYTES = 5 };
void grammar_token(uint32_t token, char bytes[GRAMMAR_TOKEN_BYTES]);
