// draft_model.h - a smaller model with the same vocabulary, which drafts what the larger one then checks.
//
// It is an engine of its own whose slots are those of the engine that it drafts for. It reads what the
// requests have read, at most a step's rows at a time, and draws tokens by their sampling parameters and
// their random numbers: where it would say the same, it draws the same. All drafted tokens of a step are
// queued on its device at once; they come back in one read. A prompt with pictures has no drafts of it.
//
// Where its layers carry a state, a slot's own is behind the request's tokens, and the one that moves on with
// the drawn ones lies in a spare row: of these, the accepted ones are read again.
#pragma once
#include "engine/engine.h"

struct draft_model;

// On the engine's first device, with its options; e is loaded. Fails when tokens do not mean the same.
bool draft_model_open(struct draft_model **d, const struct engine *e, struct err *err);
void draft_model_close(struct draft_model *d); // NULL is allowed
// Drafts for the requests where it pays, before a step; `stepping` is held.
bool draft_model_run(struct engine *e, struct err *err);
