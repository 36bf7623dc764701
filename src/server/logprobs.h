// logprobs.h - log-probabilities of tokens, from a row of logits, as OpenAI's two formats tell them.
//
// They are those of the model itself: before temperature, penalties and the cuts of sampling.
#pragma once
#include <jansson.h>
#include "text/tokenizer.h"

struct logprobs_row {
    const float *logits; // [n_vocab]
    uint32_t n_vocab, token, n_top;
};

// {"token", "logprob", "bytes", "top_logprobs": [...]}; NULL without memory.
json_t *logprobs_entry(const struct tokenizer *t, const struct logprobs_row *row);
// An array of entries as {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; *offset: characters before, and after.
json_t *logprobs_legacy(json_t *entries, size_t *offset);
