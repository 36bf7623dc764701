// step_spread.h - how evenly the rows of a step chose their experts, in one layer.
//
// Read from a command that has just run: the ids that experts_up has read, or, where a layer's experts are
// one command, those that this left in its workspace (ops/moe/moe.h). So it is what the device chose, not
// what another device would have.
#pragma once
#include "device/tape.h"

// Of one layer: experts that rows chose, and how many rows the most and the mean of all n had.
struct expert_spread {
    uint32_t layer, n, n_used, most;
    double mean;
};

// Whether the command sends rows to experts that it or an earlier one chose.
bool step_spread_has(const struct command *c);
// Of a command that has one, when it has run and before the next command does; all but the layer.
bool step_spread_read(const struct command *c, uint32_t n_rows, struct expert_spread *spread,
                      struct err *err);
