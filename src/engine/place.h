// place.h - which layers form which stage, and what it will cost in memory.
#pragma once
#include "engine/stage.h"

enum { MAX_STAGES = 64 };

// Parses "4,8": a new stage begins at layers 4 and 8. NULL or empty: one stage. Fills ranges, returns how many; 0 on error.
uint32_t place_stages(const char *text, uint32_t n_layers, struct layer_range ranges[MAX_STAGES], struct err *err);

// Bytes that an engine of this shape needs, before anything is loaded. Weights are counted as they lie in the file: where the
// device makes a copy of its own, the file's memory is given back.
struct place_memory {
    uint64_t weights, pages, scratch;
};
struct place_memory place_memory(const struct model *m, const struct stage_shape *shape);
// Fails with a message that holds all figures when they exceed what is free on a device with its own queue, or what the host has.
bool place_check(const struct place_memory *need, struct device *d, struct err *err);
