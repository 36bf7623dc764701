// plan_choose.h - the best way to deal a chain of layers to a row of devices.
#pragma once
#include "engine/stage/place.h"

#define PLAN_DOES_NOT_FIT UINT64_MAX

// n_steps: how many steps are on their way at the same time, which have the rows between them.
struct plan_costs {
    // When layers [first, last) are on a device; or PLAN_DOES_NOT_FIT.
    uint64_t (*cost)(const void *arg, uint32_t device, struct layer_range layers, uint32_t n_steps);
    // Of passing activations on.
    uint64_t (*link)(const void *arg, uint32_t from, uint32_t to, uint32_t n_steps);
    const void *arg;
    uint32_t n_devices, n_layers;
    // 1: stages compute one after the other, and all costs add up. More: up to so many stages compute at the
    // same time, each another step, as many steps as stages; all of them are through once the slowest stage
    // or link has had each.
    uint32_t most_steps;
    bool may_add_up; // all rows may also be in one step: the lower cost of both ways counts
};

// The placement with the least cost. Devices keep their order, each has one range or none; of equal
// ones that with fewer devices. False: nothing fits, or out of memory, which err tells apart (ERR_NONE,
// ERR_MEMORY).
bool plan_choose(const struct plan_costs *costs, struct placement *p, uint64_t *cost, struct err *err);
