// gpu_turns.h - how operations on a GPU are timed: several sides take turns, each playing a tape or a graph
// many times between two waits.
#pragma once
#include <stdint.h>
#include "device/device.h"
#include "device/tape.h"

enum { TURNS_RUNS = 9 };
static const uint64_t COLD_BYTES = 256 << 20; // well above any L2 cache

extern struct device *gpu;

void must(bool ok, const struct err *err); // else prints the message and exits
uint32_t random_word(void);
struct buffer device_buffer(const void *from, uint64_t bytes); // from NULL: zeros

// Queues all turns once and returns how many products or layers that were.
typedef uint32_t queue_turns(void *arg);

struct contender {
    queue_turns *play; // NULL: takes no part
    void *arg;
    uint64_t n_plays; // that fill a run
    double us[TURNS_RUNS];
};

// All take turns; the first rounds warm up and say how many plays fill a run. medians: microseconds of a
// turn, 0 for who takes no part.
void race(struct contender *c, uint32_t n, double *medians);

struct recorded {
    struct tape *tape;
    struct buffer step;
    uint32_t turns;
};

struct recorded record_begin(uint32_t n_rows, uint32_t turns, enum gemm gemm);
void record_end(struct recorded *r);
uint32_t play_tape(void *recorded);
