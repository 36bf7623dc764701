// profile_result.h - everything that one ingot profile measured, and sums over commands.
#pragma once
#include "engine/api/memory_use.h"
#include "engine/api/step_profile.h"
#include "engine/stage/device_limits.h"
#include "engine/stage/devices.h"
#include "model_tools/profile/profile_energy.h"

enum profile_step { STEP_DECODE, STEP_EIGHT, STEP_PREFILL, STEP_PICTURE, N_PROFILE_STEPS };

struct named_step {
    const char *name;       // "decode"
    struct step_profile at; // n_plays 0: not measured
    char left_out[200];     // why not; else empty
};

struct profile_device {
    char name[16];
    struct device_limits limits;
};

struct profile_result {
    const char *model; // as given; "" is the one inside ingot
    struct ingot_engine_info info;
    uint32_t n_threads;
    struct profile_device devices[MAX_DEVICES]; // [n_devices]
    uint32_t n_devices;
    struct phases phases;
    struct named_step steps[N_PROFILE_STEPS];
    bool brief; // --short: energy is left out
    struct profile_energy energy;
    struct memory_use predicted, taken; // by ingot plan's sums before loading; by the engine after all steps
    double resident_bytes;              // that the process grew by since before loading; negative: not known
    bool complete;                      // else the run was stopped
};

enum group_bound_by { BOUND_MEMORY, BOUND_ARITHMETIC, BOUND_LAUNCH, BOUND_WAITING, N_BOUNDS };

// Commands that have something in common: an operation, or a layer.
struct command_group {
    const char *name;  // of the operation, or NULL
    uint32_t layer, n; // NO_LAYER: of none; commands
    double ns, wait_ns, alone_ns;
    struct cost cost;
    double limits_ns[N_BOUNDS]; // how long it takes at least, by each of them; waiting: wait_ns
};
enum { MOST_KINDS = 64 };

const char *group_bound_name(enum group_bound_by bound);
enum group_bound_by group_bound(const struct command_group *g); // what takes most of its time
// Time at the limit of memory or arithmetic, over time; 0 where nothing was measured.
double group_share(const struct command_group *g);
// By operation, the longest first. Returns the number.
uint32_t groups_by_kind(const struct profile_result *r, const struct step_profile *p,
                        struct command_group groups[MOST_KINDS]);
// By layer, in order; those without a layer last. *groups is the caller's, for mem_free. 0: out of memory.
uint32_t groups_by_layer(const struct profile_result *r, const struct step_profile *p,
                         struct command_group **groups);
