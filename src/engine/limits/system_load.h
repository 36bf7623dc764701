// system_load.h - how much of this machine other programs use: its processors, its memory, and whether it
// runs hot or on the last of a battery.
//
// Linux: /proc/stat less our own CPU time, /proc/meminfo less our own memory, /sys/class/power_supply and
// /sys/class/thermal. What a system does not tell is SYSTEM_LOAD_UNKNOWN, never 0. Not here: GPUs, which a
// device tells about (load_watch.h).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define SYSTEM_LOAD_UNKNOWN (-1.0)

struct system_load {             // shares of the whole machine, 0 to 1, of other programs alone
    double cpu, memory;          // or SYSTEM_LOAD_UNKNOWN
    bool is_hot, is_battery_low; // a zone is at its passive trip point; below 20 % and discharging
};

struct system_load_meter {
    const char *root;          // "" ; a test gives a folder that holds proc/ and sys/
    uint64_t (*own_ns)(void);  // CPU time of this process; NULL: by getrusage
    uint64_t total, busy, own; // ticks at the last reading
    bool has_before;           // these hold; the processors' share is over the time between two readings
};

// Takes less than a millisecond.
struct system_load system_load_read(struct system_load_meter *m);
// Memory still available to this process, in bytes: the system's MemAvailable, and no more than its control
// group's limit leaves. Half of the physical memory where the system does not say.
uint64_t system_load_available(const struct system_load_meter *m);
