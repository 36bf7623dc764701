// pool.h - embeddings: pools the hidden states of a prompt's rows, after the last norm, into one unit vector.
//
// The hidden states are read from the last stage's block and normalised here, so that the tape needs no
// command for it and the LM head runs for the last row only. Not here: embedding models with bidirectional
// attention.
#pragma once
#include "engine/stage/batch.h"
#include "ingot.h"

struct engine;

struct pool {
    enum ingot_embed kind; // INGOT_EMBED_NONE: no embedding is wanted
    uint32_t n_cols, n_rows;
    double *sum;   // [n_cols]
    float *vector; // [n_cols], the result
};

bool pool_create(struct pool *p, struct engine *e, enum ingot_embed kind, struct err *err);
void pool_release(struct pool *p);
// Adds the rows of the step that was just played to the requests that pool them.
bool pool_collect(struct engine *e, struct err *err);
// After all rows of the prompt. False: the vector has no direction, because a hidden state was zero or not
// finite.
bool pool_finish(struct pool *p, struct err *err);
