// energy.h - joules that this machine has used, where it tells: the processors' packages by RAPL, NVIDIA's
// GPUs by NVML, which is loaded at run time.
//
// Both are counters of all that runs on the machine. RAPL's file is root's alone on most systems and hidden
// in containers; NVML moves in steps of 20 to 100 ms, so that two seconds are the least to measure over. What
// cannot be read is told as such and never as 0.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { ENERGY_MOST_SOURCES = 16 };

struct energy_meter {
    struct energy_source {
        char path[96];             // of RAPL's counter; empty: a GPU
        void *gpu;                 // NVML's handle
        uint64_t last, range, sum; // of the counter: RAPL's is in microjoules and wraps at `range`
    } sources[ENERGY_MOST_SOURCES];
    uint32_t n_sources;
    void *nvml; // the library, or NULL
};

struct energy_reading {
    bool has_processor, has_gpus;
    double processor_joules, gpu_joules; // since the meter was opened
};

// folder: /sys/class/powercap. Finds what can be read, which may be nothing.
void energy_open(struct energy_meter *m, const char *folder);
// At least once a minute, so that no wrap is missed.
struct energy_reading energy_read(struct energy_meter *m);
void energy_close(struct energy_meter *m);
