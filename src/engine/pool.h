// pool.h - embeddings and scores: pools the hidden states of a prompt's rows, after the last norm, into one
// vector.
//
// The hidden states are read from the last stage's block, and all that follows is computed here: the last
// norm, the products that some models have behind pooling, a reranker's head. So the tape needs no command
// for it, and it is the same on every device.
#pragma once
#include "engine/stage/batch.h"
#include "ingot.h"

struct engine;

struct pool {
    enum ingot_embed kind; // INGOT_EMBED_NONE: no embedding is wanted; never MODEL
    bool is_first;         // of RANK: the first row counts, else the last one
    bool no_normalize;
    uint32_t n_cols, n_rows;
    uint32_t n_numbers; // of the vector
    double *sum;        // [n_cols]
    float *vector;      // [as many as a vector has before it is cut]
};

struct pool_room;                            // what the requests of an engine share
void pool_room_free(struct pool_room *room); // NULL is allowed

bool pool_create(struct pool *p, struct engine *e, const struct ingot_request_options *o, struct err *err);
void pool_release(struct pool *p);
// Whether the row of the prompt at this position counts.
bool pool_wants(const struct pool *p, uint32_t position, uint32_t n_prompt);
// Adds the rows of the step that was just played to the requests that pool them.
bool pool_collect(struct engine *e, struct err *err);
// After all rows of the prompt. False: the vector has no direction, because a hidden state was zero or not
// finite.
bool pool_finish(struct pool *p, const struct engine *e, struct err *err);

// Whether pairs of texts can be scored: by a head of the model's own, or by two words of its vocabulary.
bool pool_ranks(const struct engine *e);
