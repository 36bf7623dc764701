// thread_pool.h - a pool of threads that run the same function together.
//
// Built for work in pieces of microseconds: between two runs the workers spin for about 100 us, then sleep.
// Waking a sleeping thread costs 300 times as much as a spinning one, and a barrier less than either
// (bench/results/2026-11-22-cpu-kernel-choices.md), so a whole step of a model is one run with barriers
// inside. Within a run a waiting thread spins too, for 10 us or, in a patient pool, for 2 ms. With 16 threads
// of 10 us every barrier ends in wake-ups, one after the other. But where a foreign busy loop has a thread's
// CPU, the one that waits must sleep, so that the system can move the other to its CPU.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct thread_pool;

// n_threads counts the caller's own thread; at least 1. NULL when threads cannot be had.
struct thread_pool *thread_pool_create(unsigned n_threads);
void thread_pool_destroy(struct thread_pool *pool); // NULL is allowed
unsigned thread_pool_size(const struct thread_pool *pool);

// Runs work(arg, 0..n-1) on all threads, the caller being thread 0; returns when all are done. One caller at
// a time.
void thread_pool_run(struct thread_pool *pool, void (*work)(void *arg, unsigned thread), void *arg);

// From the next run on. A new pool is not patient.
void thread_pool_be_patient(struct thread_pool *pool, bool patient);

// The same with the first n_threads of them, 1 to thread_pool_size. Returns, in nanoseconds, the run's
// duration; and, summed over its threads, the CPU time and the time that they were runnable without a CPU.
struct thread_pool_time {
    uint64_t wall, busy, lost;
};
struct thread_pool_time thread_pool_run_some(struct thread_pool *pool, unsigned n_threads,
                                             void (*work)(void *arg, unsigned thread), void *arg);

// A barrier, called by `work`: thread number `thread` waits for all threads of the run. Memory that they
// wrote before the barrier is visible to all of them after it.
void thread_pool_barrier(struct thread_pool *pool, unsigned thread);

// Names the calling thread for top, perf and debuggers: at most 15 bytes.
void thread_name(const char *name);

// CPUs that this process may use, by its affinity and its control group's quota; at least 1.
unsigned thread_count_available(void);
// The number of threads for a user's wish: 0 means all. More than there are CPUs would wait for each other:
// a warning, and all.
unsigned thread_count_capped(unsigned wanted);
