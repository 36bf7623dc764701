// token_logprobs.h - log-probabilities of one position, from its row of logits: of one token, and of the
// likeliest ones.
#pragma once
#include "base/err.h"
#include "ingot.h"

enum { MAX_TOP_LOGPROBS = 1024 };

struct token_logprobs {
    bool wanted;
    uint32_t n_top;
    struct ingot_logprob *at; // [1 + n_top] of the event that was taken last
};

bool token_logprobs_create(struct token_logprobs *p, const struct ingot_request_options *o, struct err *err);
void token_logprobs_release(struct token_logprobs *p);
// Fills `at`: the token, then the n_top likeliest in descending order, the lowest id first among equals.
void token_logprobs_fill(struct token_logprobs *p, const float *logits, uint32_t n_vocab, uint32_t token);
