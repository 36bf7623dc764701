// transfer.h - the bar of a pull: how much of how much, how fast, how long still. On a terminal only.
#pragma once
#include "hub/hub_pull.h"

struct transfer {
    uint64_t drawn_ns, rate_ns, received; // received: at rate_ns
    double rate;                          // bytes per second, smoothed; 0: not known yet
    bool drawn;
};

void transfer_show(struct transfer *t, const struct hub_progress *p); // draws at most ten times a second
void transfer_end(struct transfer *t);                                // wipes the bar
