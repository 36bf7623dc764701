// probe.h - how fast a device computes a layer of a model, and its head: by playing them.
#pragma once
#include "engine/stage/stage.h"

struct probe_speed {                          // medians
    uint32_t n_rows;                          // of a prompt's step
    uint64_t layer_ns, head_ns;               // of one row; the head with its norm and sampling
    uint64_t layer_prompt_ns, head_prompt_ns; // of n_rows, one of which has logits
};

// Takes the last layers' weights to the device, plays them at the start of a context, and gives them back.
bool probe_device(struct device *d, const struct model *m, const struct stage_shape *shape,
                  struct probe_speed *speed, struct err *err);
