// load_memory.h - what an engine's stages take, before they are made, and whether they fit on its devices.
#pragma once
#include "engine/engine.h"
#include "engine/stage/place.h"

struct load_needs { // by stage of the placement, or by rank of a layer's
    struct place_memory stages[MAX_STAGES];
    struct place_memory experts[MAX_STAGES]; // of the stage, on the device for experts
    uint32_t n;
};

// Weights and pages by the files' and the pages' sizes, scratch by an outline of the stages. The placement
// was chosen; the devices are nobody else's.
bool load_memory_needs(const struct engine_loaded *l, const struct stage_shape *shape,
                       struct load_needs *needs, struct err *err);
// On the device, and on those that share its memory; NULL: on all.
struct place_memory load_memory_sum(const struct engine_loaded *l, const struct load_needs *needs,
                                    const struct device *device);
// Fails with what would fit. Where only the layer that drafts has no room, shape->drafts becomes false.
bool load_memory_fits(const struct engine_loaded *l, struct stage_shape *shape, struct err *err);
