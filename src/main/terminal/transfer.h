// transfer.h - the progress bar of a pull: bytes, total, rate, time left. On a terminal only.
#pragma once
#include "hub/hub_pull.h"

struct transfer {
    uint64_t drawn_ns, rate_ns, received; // received: at rate_ns
    double rate;                          // bytes per second, smoothed; 0: not known yet
    bool drawn;
};

void transfer_show(struct transfer *t, const struct hub_progress *p); // draws at most ten times a second
void transfer_end(struct transfer *t);                                // erases the bar
