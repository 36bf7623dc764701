// schedule.h - which rows run next.
//
// Decode first: every request that is generating gets its row. Prompts fill what is left of the token budget, the oldest first, in
// chunks, so a long prompt never holds up the others for more than one step. Requests join and leave between steps.
#pragma once
#include "engine/engine.h"

// Ends what was cancelled, admits what fits, and fills the batch. The state lock is held.
void schedule_next(struct engine *e);
void schedule_add(struct engine *e, struct request *r);
void schedule_remove(struct engine *e, struct request *r); // does nothing when it is not in the list
