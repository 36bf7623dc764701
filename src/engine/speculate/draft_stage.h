// draft_stage.h - the model's own layer that drafts (models/draft), beside its last layers.
//
// After each step it is played once, for the same rows: the last stage's block still holds what the model
// made of them, and the tokens behind them are known now, the last ones drawn by the step itself. So it reads
// all that a request reads, without keeping anything from step to step but its pages, which have the places
// of the request's own. For the last row of a request whose draft would pay, it also draws: by the request's
// sampling parameters and the random number of the token that it guesses, so that it guesses the same where
// it would say the same. A row that it has not read (of a step that was queued before the one before it was
// over, or where drafts did not pay for a while) ends it for its request.
#pragma once
#include "engine/engine.h"

enum { DRAFT_STAGE_MOST = 1 }; // tokens

struct draft_stage;

// Of a model with such a layer, whose stages are there. The shape is theirs.
bool draft_stage_open(struct draft_stage **d, const struct engine *e, const struct stage_shape *shape,
                      struct err *err);
void draft_stage_close(struct draft_stage *d); // NULL is allowed
// Whether it has read what the request has, and goes on reading.
bool draft_stage_reads(const struct request *r);
// Reads the rows of the step before, and drafts for the next; `stepping` is held.
bool draft_stage_run(struct engine *e, struct err *err);
// For tests and sums.
const struct stage *draft_stage_of(const struct draft_stage *d);
