// ngram.h - where the last tokens of a text stood before in it, and so what may follow them now.
//
// Answers repeat their prompts and themselves: code that is edited, names, quotations, tables. Every run of
// NGRAM_LEAST tokens is found by its hash; of the places where it stood, the one counts before which most
// tokens agree, among equals the last.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum { NGRAM_LEAST = 3, NGRAM_MOST = 32 }; // tokens that agree; more are not counted

struct ngram {
    uint32_t *last;                   // [mask + 1] by hash: the position behind the last such run, or 0
    uint32_t *before;                 // [capacity] by position: the one before with the same hash, or 0
    uint32_t mask, capacity, n_known; // n_known: tokens that are indexed
};

struct ngram_match {
    uint32_t at, length; // position of what followed; tokens before it that agree, 0: there is no such place
};

// For texts of at most `capacity` tokens: 8 to 12 bytes a token.
bool ngram_create(struct ngram *g, uint32_t capacity, struct err *err);
void ngram_release(struct ngram *g);
// The place before the end of tokens[n] that its end agrees with best. The tokens before are those of the
// call before.
struct ngram_match ngram_find(struct ngram *g, const uint32_t *tokens, uint32_t n);
