// plan.h - which layers go to which device, by measured speed and free memory.
#pragma once
#include "engine/stage/devices.h"
#include "engine/stage/place.h"
#include "engine/stage/probe.h"

enum { PLAN_MOST_LAYERS = 1024 };
#define PLAN_DOES_NOT_FIT UINT64_MAX

// What it costs when layers [first, last) are on a device, or PLAN_DOES_NOT_FIT.
struct plan_costs {
    uint64_t (*cost)(const void *arg, uint32_t device, struct layer_range layers);
    const void *arg;
    uint32_t n_devices, n_layers;
};

// The placement with the least sum of costs. Devices keep their order, each has one range or none; of equal
// sums the one with fewer devices. False: nothing fits, or out of memory, which err tells apart (ERR_NONE,
// ERR_MEMORY).
bool plan_choose(const struct plan_costs *costs, struct placement *p, uint64_t *sum, struct err *err);

struct plan_request {
    const struct model *model;
    const struct devices *devices;
    const struct stage_shape *shape; // exact holds for devices that are not plain
    const struct placement *pinned;  // NULL: choose
};

struct plan {
    struct placement placement;
    struct place_memory need[MAX_STAGES]; // by stage
    char names[MAX_DEVICES][16];          // by device, as the next two
    struct probe_speed speed[MAX_DEVICES];
    uint64_t room[MAX_DEVICES];   // bytes
    uint64_t token_ns, prompt_ns; // predicted: a token, a step of speed.n_rows of a prompt
};

// Probes the devices, chooses for the least time of a token unless the placement is pinned, and predicts.
// Links are not counted.
bool plan_layers(const struct plan_request *request, struct plan *plan, struct err *err);
