// transfer.h - the bar of a pull: how much of how much, how fast, how long still. On a terminal only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct transfer {
    uint64_t begun_ns, drawn_ns, rate_ns, last; // last: done at rate_ns
    double rate;                                // bytes per second, smoothed
    bool drawn;
};

// Draws at most ten times a second.
void transfer_show(struct transfer *t, const char *what, uint64_t done, uint64_t total);
void transfer_end(struct transfer *t); // wipes the bar
