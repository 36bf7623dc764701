// thread_count.h - how many of its threads the CPU device plays with: as many as really get CPU time.
//
// Threads that walk a tape together meet at some hundred barriers a step. Another program on one of their
// CPUs takes it for milliseconds at a time, in the middle of a tile, and all others wait: two threads then
// are half as fast as one alone (measured: bench/results/2026-11-22-cpu-kernel-choices.md). The same holds in
// a container that may use less CPU time than it sees CPUs. So the CPU time that the threads get is added up.
// When one thread fewer could have had as much, one fewer plays; now and then one more is tried again. The
// bits are the same.
//
// In the same time it is seen whether other programs take CPU time from the threads. While they take none,
// four and more are patient at barriers (thread_pool.h), and none that sleeps there is lost: 16 of a Xeon
// became 5 to 8 (measured: bench/results/2026-11-28-cpu-threads.md).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/thread_pool.h"

struct thread_count {
    uint32_t n, most;              // threads to play with; all there are
    struct thread_pool_time noted; // since the last decision
    uint32_t trouble; // decisions with a lost thread, less those without: a short disturbance changes nothing
    uint64_t before;  // percent of a CPU had before the last narrowing, to judge it by; 0: judged already
    uint64_t widen_at, narrow_at;
    bool patient;
    uint64_t patient_at, pause; // when to try again; how long the last pause was
};

struct thread_count thread_count_of(uint32_t n_threads);
// After a run with n threads, at the time `now` in ns: decides n again when enough time has been observed.
void thread_count_note(struct thread_count *c, struct thread_pool_time run, uint64_t now);
