// threads.h - a team of threads that run the same function together.
//
// Built for work in pieces of microseconds: between two runs the workers spin for about 100 us, then sleep. Waking a sleeping thread
// costs 300 times as much as a spinning one, and a barrier less than either (bench/results/2026-11-22-cpu-kernel-choices.md), so a whole
// step of a model is one run with barriers inside. Within a run a spinner sleeps after 10 us: a foreign busy loop must not stop the team.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct team;

// n_threads counts the caller's own thread; at least 1. NULL when threads cannot be had.
struct team *team_create(unsigned n_threads);
void team_destroy(struct team *team); // NULL is allowed
unsigned team_size(const struct team *team);

// Runs work(arg, 0..n-1) on all threads, the caller being thread 0; returns when all are done. One caller at a time.
void team_run(struct team *team, void (*work)(void *arg, unsigned thread), void *arg);

// The same with the first n_threads of them, 1 to team_size. Says how long it took, and how long processors ran for it in that time.
struct team_time {
    uint64_t wall, busy; // nanoseconds; busy: of all threads together
};
struct team_time team_run_some(struct team *team, unsigned n_threads, void (*work)(void *arg, unsigned thread), void *arg);

// Inside work: waits until every thread of the run is here. What was written before is seen by all after.
void team_barrier(struct team *team);

// Processors this process may use, by its affinity and its control group's quota; at least 1.
unsigned threads_available(void);
// As many threads as somebody typed: 0 means all, and more than there are processors would wait for each other: a warning, and all.
unsigned threads_capped(unsigned wanted);
