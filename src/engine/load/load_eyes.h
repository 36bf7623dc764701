// load_eyes.h - the vision tower of an engine: where it is found, and what it will need.
#pragma once
#include "engine/engine.h"

// A file that was found and not asked for must not keep the model from reading text.
bool load_eyes_open(struct engine *e, struct engine_loaded *l, struct stage_shape *shape, struct err *err);
// Adds what they will need to the shape. An error is told by load_eyes_open, or is none.
void load_eyes_count(struct engine_loaded *l, struct stage_shape *shape);
