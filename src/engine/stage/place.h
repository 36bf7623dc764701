// place.h - placement: which layers form which stage, and the memory that they need.
#pragma once
#include "engine/stage/stage.h"

enum { MAX_STAGES = 64 };

// Parses "4,8": a new stage begins at layers 4 and 8. NULL or empty: one stage. Returns the number of ranges;
// 0: error.
uint32_t place_stages(const char *text, uint32_t n_layers, struct layer_range ranges[MAX_STAGES],
                      struct err *err);

// Bytes that an engine of this shape needs, computed before loading. Weights count with their size in the
// file: where the device has a copy of its own, the file's memory is released.
struct place_memory {
    uint64_t weights, pages, scratch;
};
struct place_memory place_memory(const struct model *m, const struct stage_shape *shape);
// Fails when the need exceeds the free memory of a device with its own queue, or the memory of the host; the
// message has all figures.
bool place_check(const struct place_memory *need, struct device *d, struct err *err);
