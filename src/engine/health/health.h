// health.h - do the devices still compute right, and what is done when one does not.
//
// A question with a known answer (stage/device_check.h) goes to each device at the start, before a step that
// follows 60 s without one, and after NaN in a row. A device that fails ends all requests with its error.
// Then it is closed, the layers are placed anew on the devices that are left, from the model's file, and
// requests that come after are served; sessions begin at their first token again. It stays as it is when one
// device was all, when what is left has no room, and for models with eyes or with experts elsewhere.
#pragma once
#include "engine/stage/device_check.h"
#include "engine/stage/devices.h"

struct engine;

struct health {
    struct device_check checks[MAX_DEVICES + 1]; // by device; the last is that of the experts'
    uint64_t seen_ns;                            // when a step or a check was last over
    bool in_doubt, gave_up;
    char lost[64]; // names of lost devices
};

// Makes the questions and asks them. The devices are open.
bool health_begin(struct engine *e, struct err *err);
void health_end(struct engine *e);
// The state lock is held: whether to ask before the batch is played.
bool health_is_due(const struct engine *e);
// Asks all devices. stepping is held.
bool health_check(struct engine *e, struct err *err);
// The engine has failed, and all requests have ended: places the model anew if that can be. Both locks are
// held; the state lock is released meanwhile, which takes as long as loading.
void health_recover(struct engine *e);
