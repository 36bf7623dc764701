// constraint.h - constrained decoding of one request: a grammar's logit mask, and logit biases.
//
// The grammar's mask goes to the device with the sampling parameters of each token; the token that was drawn
// advances the grammar. The first mask is computed when the request is created, so that a grammar which
// allows no token is refused at once.
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
    uint32_t *mask;                // [sample_mask_words]; the tokens allowed next
    uint32_t n_vocab;
    struct sample_bias *biases; // [n_biases]
    uint32_t n_biases;
};

bool constraint_create(struct constraint *c, struct engine *e, const struct ingot_request_options *o,
                       struct err *err);
void constraint_release(struct constraint *c);
// Advances the grammar by the token that was drawn and computes the next mask. End tokens change nothing.
bool constraint_accept(struct constraint *c, const struct tokenizer *t, uint32_t token, struct err *err);
