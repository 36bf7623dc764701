// logprobs.h - log-probabilities of tokens in OpenAI's two formats.
//
// They are the model's own, before temperature, penalties, top-k, top-p and min-p.
#pragma once
#include <jansson.h>
#include "ingot.h"

struct logprobs_row {
    // [n]: of the token, then of the likeliest ones; none for the first token of a prompt
    const struct ingot_logprob *at;
    uint32_t n, token;
    size_t *offset; // in characters, of the token in the text; advanced to the next one. NULL: left out
    bool of_prompt, with_id; // with_id: also the token ids, as llama.cpp's server
};

// {"token", "logprob", "bytes", "top_logprobs": [...]}, and "text_offset"; NULL without memory.
json_t *logprobs_entry(const struct ingot_engine *engine, const struct logprobs_row *row);
// An array of entries with offsets as {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
json_t *logprobs_legacy(json_t *entries);
