// constraint.h - what the tokens of one answer must obey: a grammar, and biases on single tokens.
//
// Before each token the grammar's mask goes to the device beside the sampling parameters; after it, the grammar moves on. The first
// mask is made when the request is, so that a grammar that cannot be followed is refused there and then.
#pragma once
#include "ops/sample/sample.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

struct engine;
struct ingot_request_options;

struct constraint {
    struct grammar *grammar; // NULL: none
    struct matcher *matcher;
    const struct token_trie *trie; // the engine's
    uint32_t *mask;                // [sample_mask_words]; what may come next
    uint32_t n_vocab;
    struct sample_bias *biases; // [n_biases]
    uint32_t n_biases;
};

bool constraint_create(struct constraint *c, struct engine *e, const struct ingot_request_options *o, struct err *err);
void constraint_release(struct constraint *c);
// The token was drawn: makes the next mask. Tokens that end an answer change nothing.
bool constraint_accept(struct constraint *c, const struct tokenizer *t, uint32_t token, struct err *err);
