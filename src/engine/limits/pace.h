// pace.h - when the next step may be played and the next request may start, by the limits that people set.
//
// After a step of t the next one waits t * (1 - share) / share. While other programs keep the machine busy no
// request starts and the share is a quarter: a pause is never a stop. Pure arithmetic on a clock that a test
// replaces; hold.c does the waiting, load_watch.c brings the load. Guarded by the engine's state lock.
#pragma once
#include "engine/limits/system_load.h"
#include "engine/limits/usage_limits.h"

struct pace_counters {
    uint64_t n_started; // requests, while there are limits
    uint64_t n_slowed;  // steps behind which the next one has to wait
    uint64_t n_held;    // requests that waited for a pause or the interval
    uint64_t n_pauses, waited_ns;
};

struct pace {
    struct usage_limits set, now;     // now: lower while the machine is hot
    uint64_t (*clock)(void);          // NULL: clock_ns
    uint64_t step_at, start_at;       // the earliest next step and start of a request
    uint64_t paused_until, low_until; // at least
    bool is_paused, is_low;
    bool told_slow, told_unknown; // one line in the log is enough
    struct pace_counters counters;
};

struct pace_load {
    struct system_load system;
    double gpu; // share of the fullest GPU's memory that other programs hold, or SYSTEM_LOAD_UNKNOWN
};

void pace_set(struct pace *p, const struct usage_limits *limits);
uint64_t pace_clock(const struct pace *p);
// Of the time that steps may take: 0.25 at most in a pause; 1: no limit.
double pace_share(const struct pace *p);
// A step that took ns is over.
void pace_note_step(struct pace *p, uint64_t ns);
bool pace_may_start(const struct pace *p); // a request
void pace_note_start(struct pace *p);
// When to ask again, where a request may not start. At most a check of the load away.
uint64_t pace_start_at(const struct pace *p);
// The machine's load as of now: begins, keeps or ends a pause, and says so.
void pace_note_load(struct pace *p, const struct pace_load *load);
