// matcher.h - the state of one answer within its grammar, and the mask of tokens that may follow.
//
// The matcher simulates all derivations at once. A thread is a node of the automaton and a call stack; stacks
// share their lower parts. Sets of threads are numbered, and the transition of a set on a byte is cached, so
// that the text inside a string, for example, costs one lookup per byte: a lazily built DFA. All sizes are
// bounded: a grammar that exceeds them ends the answer with an error.
#pragma once
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

struct matcher; // of one answer; used by one thread at a time

// the grammar must outlive it
bool matcher_create(struct matcher **m, const struct grammar *g, struct err *err);
void matcher_free(struct matcher *m); // NULL is allowed

// Advances by these bytes. ERR_INPUT: the grammar does not allow them (the state is unchanged), or a limit
// was reached.
bool matcher_accept(struct matcher *m, struct str bytes, struct err *err);
bool matcher_can_end(const struct matcher *m); // the bytes so far are a complete answer

// Sets bit t of mask (words of 32) for each token t that may come next, and for tokens that end an answer
// when it may end; clears all others below n_bits. False when a limit was reached, or when nothing may come:
// the vocabulary lacks what the grammar needs.
bool matcher_mask(struct matcher *m, const struct token_trie *trie, uint32_t *mask, uint32_t n_bits,
                  struct err *err);
