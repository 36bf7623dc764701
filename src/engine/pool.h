// pool.h - an embedding: the hidden states of a prompt's rows, after the last norm, made into one vector of length 1.
//
// The states are read from the block where the last stage leaves them, and normed here: the tape needs no command for it, and the LM
// head runs for the last row only. Not here: models made for embeddings whose attention sees ahead.
#pragma once
#include "engine/batch.h"
#include "ingot.h"

struct engine;

struct pool {
    enum ingot_embed kind; // INGOT_EMBED_NONE: no embedding is asked for
    uint32_t n_cols, n_rows;
    double *sum;   // [n_cols]
    float *vector; // [n_cols], the result
};

bool pool_create(struct pool *p, struct engine *e, enum ingot_embed kind, struct err *err);
void pool_release(struct pool *p);
// Rows of the step that was just played, each to the request that asked for it.
bool pool_collect(struct engine *e, struct err *err);
// All rows of the prompt were there. False when there is no direction: a hidden state was zero or no number.
bool pool_finish(struct pool *p, struct err *err);
