// schedule.h - which rows run next.
//
// Requests are served by priority, then by age. Every one that is generating gets its row; prompts fill what is left of the token
// budget in chunks, so a long prompt never holds up the others for more than one step. Requests join and leave between steps. When
// pages run out the last of the order is paused; it goes on later with the same tokens.
#pragma once
#include "engine/engine.h"

// Ends what was cancelled or is too late, admits what fits, and fills the batch. The state lock is held.
void schedule_next(struct engine *e);
void schedule_add(struct engine *e, struct request *r);
void schedule_remove(struct engine *e, struct request *r); // does nothing when it is not in the list
