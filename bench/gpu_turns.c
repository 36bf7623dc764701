// gpu_turns.c - see gpu_turns.h.
#include "gpu_turns.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "device/step.h"

enum { WARM_RUNS = 3, RUN_NS = 4000000 };

struct device *gpu;

void must(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

uint32_t random_word(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

struct buffer device_buffer(const void *from, uint64_t bytes)
{
    struct buffer b;
    struct err err = { 0 };

    must(buffer_alloc(gpu, bytes, &b, &err) && (!from || buffer_write(&b, 0, from, bytes, &err)), &err);
    return b;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Microseconds of a turn.
static double run(struct contender *c)
{
    struct err err = { 0 };
    uint64_t start = clock_ns(), turns = 0;

    for (uint64_t k = 0; k < c->n_plays; k++)
        turns += c->play(c->arg);
    must(gpu->ops->wait(gpu, &err), &err);
    return (double)(clock_ns() - start) * 1e-3 / (double)turns;
}

void race(struct contender *c, uint32_t n, double *medians)
{
    for (int i = -WARM_RUNS; i < TURNS_RUNS; i++)
        for (uint32_t k = 0; k < n; k++) {
            if (!c[k].play)
                continue;
            c[k].n_plays = c[k].n_plays ? c[k].n_plays : 1;
            uint64_t start = clock_ns();
            double us = run(&c[k]);
            if (i < 0)
                c[k].n_plays = 1 + RUN_NS * c[k].n_plays / (clock_ns() - start + 1);
            else
                c[k].us[i] = us;
        }
    for (uint32_t k = 0; k < n; k++) {
        qsort(c[k].us, TURNS_RUNS, sizeof *c[k].us, by_size);
        medians[k] = c[k].us[TURNS_RUNS / 2];
    }
}

struct recorded record_begin(uint32_t n_rows, uint32_t turns, enum gemm gemm)
{
    struct tape_limits limits = { .max_rows = n_rows, .max_outputs = 1, .gemm = gemm };
    struct recorded r = { .tape = tape_create(gpu, limits), .turns = turns };
    struct step head = { .n_rows = n_rows, .max_rows = n_rows, .max_outputs = 1 };
    struct err err = { 0 };

    must(r.tape != NULL, &err);
    r.step = device_buffer(NULL, step_bytes(n_rows, 1));
    must(buffer_write(&r.step, 0, &head, sizeof head, &err), &err);
    return r;
}

void record_end(struct recorded *r)
{
    tape_destroy(r->tape);
    buffer_release(&r->step);
}

uint32_t play_tape(void *recorded)
{
    struct recorded *r = recorded;
    struct err err = { 0 };

    must(tape_play(r->tape, &r->step, &err), &err);
    return r->turns;
}
