// bandwidth.c - see bandwidth.h.
//
// Memory is read as the products read weights: in huge pages, each thread one stream, prefetching 8 KiB ahead
// (measured: bench/results/2026-11-22-cpu-kernel-choices.md). The best of many passes of a few milliseconds
// counts: a shorter one may find some of the block in a cache.
#include "base/bandwidth.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread_pool.h"

enum { LANES = 8, AHEAD_BYTES = 8192, PROBE_NS = 200000000 };
static const size_t BLOCK_BYTES = (size_t)1 << 29, LEAST_BYTES = (size_t)1 << 26;

struct probe {
    uint64_t *block;
    size_t n; // words for each thread
};

// The thread that will read a page also touches it first.
static void fill(void *arg, unsigned thread)
{
    const struct probe *p = arg;

    memset(p->block + p->n * thread, 1, p->n * sizeof *p->block);
}

static void sum(void *arg, unsigned thread)
{
    const struct probe *p = arg;
    const uint64_t *words = p->block + p->n * thread;
    uint64_t sums[LANES] = { 0 };

    for (size_t i = 0; i < p->n; i += LANES) {
        __builtin_prefetch((const char *)(words + i) + AHEAD_BYTES);
        for (size_t lane = 0; lane < LANES; lane++)
            sums[lane] += words[i + lane];
    }
    for (size_t lane = 1; lane < LANES; lane++)
        sums[0] += sums[lane];
    volatile uint64_t sink = sums[0]; // or the compiler would leave the reading out
    (void)sink;
}

// Nanoseconds of the fastest pass.
static uint64_t fastest_pass(struct thread_pool *pool, struct probe *p)
{
    const uint64_t begin = clock_ns();
    uint64_t now = begin, least = UINT64_MAX;

    do {
        uint64_t from = now;
        thread_pool_run(pool, sum, p);
        now = clock_ns();
        least = now - from < least ? now - from : least;
    } while (now - begin < PROBE_NS);
    return least;
}

double bandwidth_read(unsigned n_threads)
{
    struct thread_pool *pool = thread_pool_create(n_threads);
    struct probe p = { 0 };
    double rate = 0;

    for (size_t bytes = BLOCK_BYTES; pool && !p.block && bytes >= LEAST_BYTES; bytes /= 2) {
        p.block = mem_alloc_aligned(bytes, 4096);
        p.n = bytes / sizeof *p.block / n_threads / LANES * LANES;
    }
    if (p.block) {
        thread_pool_run(pool, fill, &p);
        rate = (double)(p.n * n_threads * sizeof *p.block) * 1e9 / (double)fastest_pass(pool, &p);
    }
    mem_free_aligned(p.block);
    thread_pool_destroy(pool);
    return rate;
}
