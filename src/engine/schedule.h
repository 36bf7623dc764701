// schedule.h - which rows run next.
//
// Continuous batching: requests join and leave between steps, by priority, then by age. Every decoding
// request gets its row; chunks of prompts fill the rest of the token budget, so a long prompt delays the
// others by one step at most. Among prompts of one priority the oldest gets half of that rest, or all of it
// when no shorter one waits; the other half goes to the prompt with the least left to read. So no prompt
// takes more than twice the steps that it and the older ones need, a short prompt does not wait for a long
// one, and equal prompts are read one after the other. When pages run out, the last request in this order is
// paused; it resumes with the same tokens.
#pragma once
#include "engine/engine.h"

// Ends cancelled requests and those past their deadline, admits what fits, and fills the batch. The state
// lock is held.
void schedule_next(struct engine *e);
void schedule_add(struct engine *e, struct request *r);
void schedule_remove(struct engine *e, struct request *r); // no effect when it is not in the list
// Fills e->ahead, the step after the running one, before the running step's tokens are known: the first stage
// reads them from its token history. Prefill as in schedule_next, but without preemption. The rows of a
// request that ends meanwhile are discarded. Returns false if a request needs the running step's results, or
// there is nothing to do. The state lock is held.
bool schedule_ahead(struct engine *e);
// Whether this step, by its number, is one of answers alone although prompts wait: few of their rows beside
// many answers make a step of a GPU far longer, so that they wait up to three steps for more. The state lock
// is held.
bool schedule_prompts_wait(const struct engine *e, uint64_t step);
// Whether a request that runs or waits wants rows of logits or hidden states, or brings pictures. What is
// read back must have been played last, so its steps have nothing else in flight. The state lock is held.
bool schedule_reads_back(const struct engine *e);
