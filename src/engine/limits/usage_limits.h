// usage_limits.h - how much of a machine an engine may use, as people say it: a preset, values, or both.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum { LIMITS_IDLE_IO = 8, LIMITS_TEXT_BYTES = 256 };

// 0 in any member: no limit.
struct usage_limits {
    float memory;         // share of a device's free memory that the placement counts with
    float compute;        // share of the time in which steps are played
    uint32_t nice, io;    // of our threads: setpriority's 0 to 19; I/O level 1 to 7, or LIMITS_IDLE_IO
    uint32_t interval_ms; // between the starts of two requests at least
    uint32_t batch;       // requests that run at the same time at most
    float cpu, gpu, ram;  // pause while other programs use more than this share
    uint32_t check_s;     // between two looks at the load
    uint32_t pause_s;     // how long a pause is at least
    bool no_power;        // pay no heed to heat and battery
};

// Parses "balanced", "compute=0.5,nice=10", "conservative,batch=3": a preset first, then keys. Keys: memory,
// compute, cpu, gpu, ram (0 to 1, 0: off), nice (0 to 19), io (idle, or 0 to 7), interval (ms), batch, check
// and pause (s), power (on, off). NULL and "": no limits.
bool usage_limits_read(struct usage_limits *l, const char *text, struct err *err);
bool usage_limits_any(const struct usage_limits *l);
bool usage_limits_watch(const struct usage_limits *l); // some of them need the machine's load
// While a machine is hot or its battery low: shares and pauses no wider than the next lower preset's.
struct usage_limits usage_limits_lower(const struct usage_limits *l);
// "memory 0.7, compute 0.8, ...", those that are set.
void usage_limits_print(const struct usage_limits *l, char to[LIMITS_TEXT_BYTES]);
