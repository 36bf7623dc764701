// eval_text.h - the text of an evaluation: tokens in chunks of equal length, each of which is read alone.
//
// Chunks and what is scored of them are llama-perplexity's, so that figures can be compared: the text is
// tokenised once, with the model's BOS where it has one; the rest that fills no chunk is left out; BOS takes
// the place of each chunk's first token; the first half of a chunk is context, and every later token but the
// chunk's own last row predicts its successor.
#pragma once
#include "base/err.h"
#include "base/sha256.h"
#include "ingot.h"

struct eval_text {
    uint32_t n_vocab;           // of a row of logits
    uint32_t n_chunk, n_chunks; // tokens of a chunk; chunks
    struct sha256 vocabulary;   // of all tokens' spellings: ids mean the same only where it is equal
    uint32_t *tokens;           // [n_chunks, n_chunk]
};

struct eval_text_source {
    const char *text;
    size_t n_bytes;
    uint32_t n_chunk, most_chunks; // most_chunks 0: all
    bool parse_special;            // control tokens written in the text count as such
};

enum { EVAL_CHUNK_MIN = 4, EVAL_CHUNK_MAX = 1 << 24 };

bool eval_text_make(struct eval_text *t, const struct ingot_engine *engine,
                    const struct eval_text_source *source, struct err *err);
void eval_text_free(struct eval_text *t);
// The sum for eval_text.vocabulary.
bool eval_text_vocabulary(const struct ingot_engine *engine, struct sha256 *sum, struct err *err);

// Rows first to n_chunk - 2 of a chunk are scored, each by the token behind it.
static inline uint32_t eval_text_first(const struct eval_text *t)
{
    return t->n_chunk / 2;
}
static inline uint32_t eval_text_scored(const struct eval_text *t)
{
    return t->n_chunk - 1 - t->n_chunk / 2;
}
