// load_memory.h - whether an engine's stages fit on its devices, before they are made.
#pragma once
#include "engine/engine.h"
#include "engine/stage/place.h"

// Adds what a stage on the device needs.
void load_memory_add(struct place_memory *sum, struct place_memory need, const struct device *d);
// Fails with what would fit. Where only the layer that drafts has no room, shape->drafts becomes false.
bool load_memory_fits(const struct engine_loaded *l, struct stage_shape *shape, struct err *err);
