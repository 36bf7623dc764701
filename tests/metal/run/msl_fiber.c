// msl_fiber.c - one threadgroup: its fibers, simdgroups, barriers and the schedule in which they run.
//
// A lane runs until it waits. Then the next lane of its simdgroup runs; when none can, the operation that
// they all wait at is carried out. Lanes that ended or that wait elsewhere do not take part in a simdgroup
// function, as on the hardware; lanes that wait at two different ones, or a barrier that some threads do not
// reach, are errors of the kernel and are reported. Forward progress between threadgroups is not modelled:
// they run one after the other. x86-64 only.
#include "msl_fiber.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../../fiber_switch.h"

__thread struct msl_lane *msl_self __attribute__((tls_model("initial-exec")));
__thread struct msl_worker *msl_worker_self __attribute__((tls_model("initial-exec")));

static void *pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        abort();
    return at;
}

struct msl_worker *msl_worker_create(void)
{
    struct msl_worker *w = pages(sizeof *w);

    w->simds = pages(sizeof *w->simds * (MSL_THREADS / MSL_LANES));
    w->lanes = pages(sizeof *w->lanes * MSL_THREADS);
    w->stacks = pages((size_t)MSL_STACK_BYTES * MSL_THREADS);
    w->group.memory = pages(MSL_THREADGROUP_BYTES);
    for (uint32_t i = 0; i < MSL_THREADS; i++) // a lane that runs off its stack stops at once
        mprotect(w->stacks + (size_t)i * MSL_STACK_BYTES, 4096, PROT_NONE);
    return w;
}

void msl_worker_error(struct msl_worker *w, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(w->error, sizeof w->error, format, list);
    va_end(list);
    w->failed = true;
}

bool msl_stack_of(const void *at, uint32_t *lane)
{
    size_t offset = (size_t)((const unsigned char *)at - msl_worker_self->stacks);

    *lane = (uint32_t)(offset / MSL_STACK_BYTES);
    return offset < (size_t)MSL_STACK_BYTES * MSL_THREADS;
}

void msl_fail(const char *format, ...)
{
    struct msl_worker *w = msl_worker_self;
    struct msl_uint3 at = w->group.position;
    char what[MSL_ERROR_BYTES / 2];
    void *unused;
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    msl_worker_error(w, "%s: threadgroup (%u,%u,%u) thread %u: %s", w->dispatch->kernel->name, at.x, at.y,
                     at.z, msl_self->index, what);
    fiber_switch(&unused, w->main_stack_pointer);
    abort();
}

static uint32_t random_next(struct msl_worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random;
}

static struct msl_lane *simd_pick(struct msl_worker *w, struct msl_simd *s, uint32_t after)
{
    uint32_t ready = s->ready, above, below;

    if (!ready)
        return NULL;
    if (msl_settings.schedule == MSL_RANDOM)
        after = random_next(w) % MSL_LANES;
    below = ready & ((1u << after) - 1);
    above = ready & ~((2u << after) - 1);
    if (msl_settings.schedule == MSL_REVERSE)
        return &s->lanes[31 - __builtin_clz(below ? below : ready)];
    return &s->lanes[__builtin_ctz(above ? above : ready)];
}

static void lane_run(struct msl_worker *w, struct msl_lane *lane)
{
    struct msl_lane *from = msl_self;

    if (lane == from)
        return;
    msl_self = lane;
    fiber_switch(from ? &from->stack_pointer : &w->main_stack_pointer, lane->stack_pointer);
}

static void main_run(struct msl_worker *w)
{
    struct msl_lane *from = msl_self;

    msl_self = NULL;
    fiber_switch(&from->stack_pointer, w->main_stack_pointer);
}

static void meeting_check(struct msl_simd *s)
{
    struct msl_lane *first = &s->lanes[__builtin_ctz(s->meeting)];

    for (uint32_t rest = s->meeting & (s->meeting - 1); rest; rest &= rest - 1) {
        struct msl_lane *lane = &s->lanes[__builtin_ctz(rest)];
        if (lane->what != first->what || lane->site != first->site)
            msl_fail("lanes %u and %u of a simdgroup wait at different simdgroup functions", first->lane,
                     lane->lane);
    }
}

// Every lane of the simdgroup waits or has ended. true: some of them can go on.
static bool simd_release(struct msl_simd *s)
{
    if (s->meeting) {
        int parity = s->parity;
        meeting_check(s);
        s->active[parity] = s->meeting;
        if (s->finish)
            s->finish(s, parity);
        s->ready = s->meeting;
        s->meeting = 0;
        s->parity = !parity;
        return true;
    }
    if (!s->at_simdgroup_barrier)
        return false;
    if (s->at_threadgroup_barrier || s->done)
        msl_fail("simdgroup_barrier reached by %u of %u lanes",
                 (unsigned)__builtin_popcount(s->at_simdgroup_barrier), s->n_lanes);
    msl_check_barrier((int)s->index, s->lanes[0].what);
    s->ready = s->at_simdgroup_barrier;
    s->at_simdgroup_barrier = 0;
    return true;
}

// This lane cannot go on: another of its simdgroup does, or another simdgroup.
static void lane_wait(void)
{
    struct msl_worker *w = msl_worker_self;
    struct msl_simd *s = msl_self->simd;
    struct msl_lane *next = simd_pick(w, s, msl_self->lane);

    if (!next && simd_release(s) && !(msl_settings.schedule == MSL_RANDOM && random_next(w) % 4 == 0))
        next = simd_pick(w, s, msl_settings.schedule == MSL_REVERSE ? 0 : MSL_LANES - 1);
    if (next)
        lane_run(w, next);
    else
        main_run(w);
}

static void lane_leave(struct msl_lane *lane, uint32_t *waiting)
{
    uint32_t bit = 1u << lane->lane;

    lane->simd->ready &= ~bit;
    *waiting |= bit;
    lane_wait();
}

int msl_meet_simd(uint32_t what, void (*finish)(struct msl_simd *, int))
{
    struct msl_lane *me = msl_self;
    int parity = me->simd->parity;

    me->what = what;
    me->site = __builtin_return_address(0);
    me->simd->finish = finish;
    lane_leave(me, &me->simd->meeting);
    return parity;
}

void msl_meet_simdgroup_barrier(uint32_t flags)
{
    struct msl_lane *me = msl_self;

    me->what = flags;
    lane_leave(me, &me->simd->at_simdgroup_barrier);
}

void msl_meet_threadgroup_barrier(uint32_t flags)
{
    struct msl_lane *me = msl_self;

    me->what = flags;
    me->site = __builtin_return_address(0);
    lane_leave(me, &me->simd->at_threadgroup_barrier);
}

void *msl_threadgroup_variable(uint32_t slot, const char *name, size_t bytes, size_t align)
{
    struct msl_group *g = &msl_worker_self->group;
    struct msl_variable *v = &g->variables[slot];

    if (!v->bytes) {
        v->name = name;
        v->offset = (g->memory_bytes + (uint32_t)align - 1) & ~((uint32_t)align - 1);
        v->bytes = (uint32_t)bytes;
        if (v->offset + bytes > MSL_THREADGROUP_BYTES)
            msl_fail("threadgroup memory of %u bytes; at most %d", v->offset + (uint32_t)bytes,
                     MSL_THREADGROUP_BYTES);
        g->memory_bytes = v->offset + (uint32_t)bytes;
    }
    return g->memory + v->offset;
}

static void lane_main(void)
{
    struct msl_worker *w = msl_worker_self;
    struct msl_lane *me = msl_self;

    w->dispatch->kernel->call(w->dispatch->kernel, &w->group, me);
    w->n_done++;
    lane_leave(me, &me->simd->done);
    abort();
}

static void lane_start(struct msl_worker *w, uint32_t i)
{
    struct msl_lane *lane = &w->lanes[i];
    struct msl_uint3 n = w->group.threads;
    // Neighbours' frames must not fall into the same cache sets: 128 bytes apart, not a multiple of 4096.
    void **stack = (void **)(w->stacks + (size_t)(i + 1) * MSL_STACK_BYTES - 64 - i % MSL_LANES * 128);

    *--stack = NULL;
    *--stack = (void *)lane_main;
    stack -= 6; // registers
    memset(stack, 0, 6 * sizeof *stack);
    lane->stack_pointer = stack;
    lane->simd = &w->simds[i / MSL_LANES];
    lane->index = i;
    lane->lane = i % MSL_LANES;
    lane->place = lane->lane ^ (msl_settings.shuffle_matrices ? msl_settings.seed * 7 % MSL_LANES : 0);
    lane->position = (struct msl_uint3){ i % n.x, i / n.x % n.y, i / (n.x * n.y) };
}

static void group_start(struct msl_worker *w)
{
    uint32_t n = w->group.n_threads;

    w->n_done = 0;
    w->n_simds = (n + MSL_LANES - 1) / MSL_LANES;
    for (uint32_t i = 0; i < w->n_simds; i++) {
        struct msl_simd *s = &w->simds[i];
        s->n_lanes = n - i * MSL_LANES < MSL_LANES ? n - i * MSL_LANES : MSL_LANES;
        s->ready = s->n_lanes == MSL_LANES ? ~0u : (1u << s->n_lanes) - 1;
        s->meeting = s->at_simdgroup_barrier = s->at_threadgroup_barrier = s->done = 0;
        s->parity = 0;
        s->index = i;
        s->lanes = &w->lanes[i * MSL_LANES];
    }
    for (uint32_t i = 0; i < n; i++)
        lane_start(w, i);
    memset(w->group.memory, 0xff, MSL_THREADGROUP_BYTES); // NaN as float, half and bfloat
}

static void barrier_release(struct msl_worker *w)
{
    const void *site = NULL;
    uint32_t flags = ~0u, n = 0;

    for (uint32_t i = 0; i < w->group.n_threads; i++) {
        struct msl_lane *lane = &w->lanes[i];
        if (!(lane->simd->at_threadgroup_barrier >> lane->lane & 1))
            continue;
        n++;
        flags &= lane->what;
        if (site && lane->site != site) {
            msl_worker_error(w, "%s: thread %u waits at another threadgroup_barrier",
                             w->dispatch->kernel->name, i);
            return;
        }
        site = lane->site;
    }
    if (n != w->group.n_threads) {
        msl_worker_error(w, "%s: threadgroup_barrier reached by %u of %u threads", w->dispatch->kernel->name,
                         n, w->group.n_threads);
        return;
    }
    msl_check_barrier(-1, flags);
    for (uint32_t i = 0; i < w->n_simds; i++) {
        w->simds[i].ready = w->simds[i].at_threadgroup_barrier;
        w->simds[i].at_threadgroup_barrier = 0;
    }
}

static bool simds_run(struct msl_worker *w)
{
    bool ran = false;
    uint32_t n = w->n_simds, start = msl_settings.schedule == MSL_RANDOM ? random_next(w) % n : 0;

    for (uint32_t k = 0; k < n && !w->failed; k++) {
        uint32_t i = msl_settings.schedule == MSL_REVERSE ? n - 1 - k : (k + start) % n;
        struct msl_lane *lane =
            simd_pick(w, &w->simds[i], msl_settings.schedule == MSL_REVERSE ? 0 : MSL_LANES - 1);
        if (!lane)
            continue;
        ran = true;
        lane_run(w, lane);
        msl_self = NULL;
    }
    return ran;
}

static uint32_t at_most(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void msl_worker_group(struct msl_worker *w, uint32_t index)
{
    const struct msl_dispatch *d = w->dispatch;
    struct msl_group *g = &w->group;

    g->position = (struct msl_uint3){ index % d->groups[0], index / d->groups[0] % d->groups[1],
                                      index / (d->groups[0] * d->groups[1]) };
    g->threads = (struct msl_uint3){ at_most(d->threads[0], g->grid.x - g->position.x * d->threads[0]),
                                     at_most(d->threads[1], g->grid.y - g->position.y * d->threads[1]),
                                     at_most(d->threads[2], g->grid.z - g->position.z * d->threads[2]) };
    g->n_threads = g->threads.x * g->threads.y * g->threads.z;
    w->random = (msl_settings.seed + 1) * 2654435761u ^ (index + 1) * 40503u;
    w->random += !w->random;
    msl_worker_self = w;
    group_start(w);
    if (d->check)
        msl_check_group();
    while (w->n_done < g->n_threads && !w->failed)
        if (!simds_run(w) && !w->failed)
            barrier_release(w);
    msl_self = NULL;
}
