// outline.h - the scratch that stages and a tower will take, found before they are made: stages without
// memory are made and their tapes recorded and sealed (`outlines` of struct device: what is made so is
// released before it is reset). place.h has rough sums that need no device, by which layers are placed.
#pragma once
#include "engine/stage/devices.h"
#include "engine/stage/place.h"
#include "engine/stage/vision.h"

struct outline_request {
    const struct model *model;
    const struct devices *devices;
    const struct stage_shape *shape;
    const struct placement *placement;
    const struct adapters *adapters; // or NULL
    bool exact;                      // also on devices that are not plain
};

struct outline { // bytes by stage
    uint64_t scratch[MAX_STAGES];
    uint64_t experts[MAX_STAGES]; // of the stage's experts on a device of their own
};

// The devices are nobody else's meanwhile.
bool outline_stages(const struct outline_request *r, struct outline *outline, struct err *err);
bool outline_vision(const struct vision_plan *plan, uint64_t *scratch, struct err *err);
// What a stage takes beside weights, pages and states: its tapes' scratch, and the buffers that steps read
// and write. Experts elsewhere and other ranks of its layers have their own.
uint64_t stage_scratch_bytes(const struct stage *s);
