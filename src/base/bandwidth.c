// bandwidth.c - see bandwidth.h.
//
// Each thread sums its own part. Eight independent sums keep enough loads in flight; the hardware's prefetcher does the rest.
#include "base/bandwidth.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

enum { PASSES = 7, LANES = 8 };
static const size_t BLOCK_BYTES = (size_t)1 << 29, LEAST_BYTES = (size_t)1 << 26;

struct probe {
    uint64_t *block;
    size_t n_threads, n; // words
};

static void part(const struct probe *p, unsigned thread, size_t *first, size_t *last)
{
    size_t each = p->n / p->n_threads / LANES * LANES;
    *first = each * thread;
    *last = *first + each;
}

// The thread that will read a page also touches it first.
static void fill(void *arg, unsigned thread)
{
    struct probe *p = arg;
    size_t first, last;

    part(p, thread, &first, &last);
    memset(p->block + first, 1, (last - first) * sizeof *p->block);
}

static void sum(void *arg, unsigned thread)
{
    struct probe *p = arg;
    uint64_t sums[LANES] = { 0 };
    size_t first, last;

    part(p, thread, &first, &last);
    for (size_t i = first; i < last; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++)
            sums[lane] += p->block[i + lane];
    }
    for (size_t lane = 1; lane < LANES; lane++)
        sums[0] += sums[lane];
    volatile uint64_t sink = sums[0]; // or the compiler would leave the reading out
    (void)sink;
}

double bandwidth_read(unsigned n_threads)
{
    struct team *team = team_create(n_threads);
    struct probe p = { .n_threads = n_threads };
    double best = 0;

    for (size_t bytes = BLOCK_BYTES; team && !p.block && bytes >= LEAST_BYTES; bytes /= 2) {
        p.block = mem_alloc_aligned(bytes, 4096);
        p.n = bytes / sizeof *p.block;
    }
    if (p.block)
        team_run(team, fill, &p);
    for (int pass = 0; p.block && pass < PASSES; pass++) {
        uint64_t from = clock_ns();
        team_run(team, sum, &p);
        double rate = (double)(p.n * sizeof *p.block) * 1e9 / (double)(clock_ns() - from);
        best = rate > best ? rate : best;
    }
    mem_free_aligned(p.block);
    team_destroy(team);
    return best;
}
