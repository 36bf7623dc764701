// logprobs.h - log-probabilities of tokens as OpenAI's two formats tell them.
//
// They are those of the model itself: before temperature, penalties and the cuts of sampling.
#pragma once
#include <jansson.h>
#include "ingot.h"

struct logprobs_row {
    const struct ingot_logprob
        *at; // [n]: of the token, and of the likeliest; none for a first token, which nothing precedes
    uint32_t n, token;
    size_t *offset;          // in characters, of the token in the text, and then of the next. NULL: not told
    bool of_prompt, with_id; // with_id: llama.cpp tells the tokens' numbers too
};

// {"token", "logprob", "bytes", "top_logprobs": [...]}, and "text_offset"; NULL without memory.
json_t *logprobs_entry(const struct ingot_engine *engine, const struct logprobs_row *row);
// An array of entries with offsets as {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
json_t *logprobs_legacy(json_t *entries);
