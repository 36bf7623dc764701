// load_place.h - which layers go to which device of an engine.
//
// One device that has room takes all, and nothing is measured. Several are planned (stage/plan.h). Where
// nothing fits, the host's memory may take experts, and layers too if nobody named the devices; what is
// faster is taken.
#pragma once
#include "engine/engine.h"
#include "engine/stage/plan.h"

struct place_ask {
    struct plan *plan; // to be filled by predictions, also of one device; NULL: choose only
    uint32_t depth;    // tokens in the context of what is predicted
};

// Sets the placement; may open more devices, and close those that nobody named and nobody uses.
bool load_places_choose(struct engine *e, struct stage_shape *shape, const struct place_ask *ask,
                        struct err *err);
// Chooses the rows of a step (max_rows) where the options give none: LOAD_LEAST_ROWS if the devices have no
// memory for more, and makes the KV pages again for them. May open more GPUs, if the options name none and
// one has too little memory. *fits: weights, pages and scratch fit.
bool load_rows_choose(struct engine *e, struct stage_shape *shape, bool *fits, struct err *err);
