// probe.h - how fast a device computes a layer of a model, and its head: by playing them.
#pragma once
#include "engine/stage/device_limits.h"
#include "engine/stage/stage.h"

// The steps that are played: one row; a row of each of many sequences, and of half of them; a prompt's piece.
enum probe_step { PROBE_ONE, PROBE_HALF, PROBE_MANY, PROBE_PROMPT, N_PROBE_STEPS };

struct probe_part { // first quartiles of some plays
    uint64_t layer_ns, head_ns;
    uint64_t away_ns;  // of a layer whose experts are elsewhere; 0: there is none
    uint64_t stage_ns; // of a stage beside its layers and head
};

struct probe_work { // of a layer, or of the head with its norm and sampling, in a step of one row
    double bytes, operations, commands;
};

struct probe_speed {
    uint32_t n_rows[N_PROBE_STEPS];
    struct probe_part at[N_PROBE_STEPS];
    struct probe_work layer, head;
    struct device_limits limits; // zero when nobody asked
};

struct probe_link { // zero: activations stay in place
    double bytes;   // per second
    double latency_ns;
};

struct probe_request {
    struct device *device, *experts; // experts: of the shape's n_away layers, or NULL
    const struct model *model;
    const struct stage_shape *shape;
    uint32_t depth; // tokens in the context before the step
    bool limits;    // measure those, too: a second more
    bool no_repack; // as the device was opened
};

// How many sequences may have a row in a step; the probe has up to 64 of them.
uint32_t probe_n_many(const struct stage_shape *shape);
// Takes some of the last layers' weights to the device, plays them at that depth, and gives them back.
bool probe_device(const struct probe_request *p, struct probe_speed *speed, struct err *err);
// How activations come from one device to another, as links between stages pass them on.
bool probe_links(struct device *from, struct device *to, struct probe_link *link, struct err *err);
