// matcher.h - where an answer stands in its grammar, and which tokens may come next.
//
// All ways to read the answer so far are kept at once, as threads: a node of the network and a stack of calls. Stacks share their lower
// ends. Sets of threads are numbered, and what a byte leads to is remembered per set, so that the text inside a string, say, costs one
// look-up a byte: the network becomes a table of states while it is used. Everything is bounded: a grammar that needs more ends the
// answer with an error, never the process.
#pragma once
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

struct matcher; // one answer's: one thread at a time

bool matcher_create(struct matcher **m, const struct grammar *g, struct err *err); // the grammar outlives it
void matcher_free(struct matcher *m);                                              // NULL is allowed

// Goes on by these bytes. False with ERR_INPUT: they do not fit (the matcher stays where it was), or a limit was reached.
bool matcher_accept(struct matcher *m, struct str bytes, struct err *err);
bool matcher_can_end(const struct matcher *m); // what was read is a whole answer

// Sets bit t of mask (words of 32) for each token t that may come next, tokens that end an answer when it may end, and clears all others
// below n_bits. False when a limit was reached, or when nothing may come: the vocabulary lacks what the grammar asks for.
bool matcher_mask(struct matcher *m, const struct token_trie *trie, uint32_t *mask, uint32_t n_bits, struct err *err);
