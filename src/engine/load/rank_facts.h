// rank_facts.h - what must be the same on all ranks of an engine, and what they cannot do together.
#pragma once
#include "engine/engine.h"

// A line for each fact, which the ranks compare. Fails without memory.
bool rank_facts_add(const struct engine *e, const struct stage_shape *s, struct buf *facts, struct err *err);
// Whether the options leave out what one process alone can do.
bool rank_facts_fit(const struct engine_loaded *l, struct err *err);
