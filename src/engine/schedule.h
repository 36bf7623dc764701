// schedule.h - which rows run next.
//
// Requests are served by priority, then by age. Every one that is generating gets its row; prompts fill what is left of the token
// budget in chunks, so a long prompt never holds up the others for more than one step. Among prompts of one priority the oldest gets
// half of that, and all of it unless a shorter one waits; the other half goes to the one with the least left to read. So nobody's prompt
// takes more than twice the steps that it and the older ones need, a short one is not kept by a long one, and of equals one is read after
// the other. Requests join and leave between steps. When pages run out the last of the order is paused; it goes on later with the same
// tokens.
#pragma once
#include "engine/engine.h"

// Ends what was cancelled or is too late, admits what fits, and fills the batch. The state lock is held.
void schedule_next(struct engine *e);
void schedule_add(struct engine *e, struct request *r);
void schedule_remove(struct engine *e, struct request *r); // does nothing when it is not in the list
