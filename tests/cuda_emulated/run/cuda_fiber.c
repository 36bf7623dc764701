// cuda_fiber.c - the fibers of one block, the meetings of its warps and of all, and the launch around them.
//
// A lane runs until it waits; then another lane of its warp that can run does. When none can, the groups of
// lanes that wait for each other at the same warp function with the same mask go on; when no warp can, the
// block's barrier does. Lanes of a mask that wait elsewhere, a barrier that some threads do not reach, and
// threads at two different barriers are errors of the kernel.
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "../../fiber_switch.h"
#include "cuda_run.h"

struct cuda_run_settings cuda_run_settings;
__thread struct cuda_run_counts cuda_run_counts;
__thread struct cuda_run_thread *cuda_run_self;
__thread struct cuda_run_block cuda_run_block;

enum { STACK_BYTES = 64 * 1024, N_WARPS = CUDA_RUN_THREADS / CUDA_RUN_LANES };

static __thread struct fiber_room {
    struct cuda_run_thread threads[CUDA_RUN_THREADS];
    struct cuda_run_warp warps[N_WARPS];
    unsigned char *stacks;
    void *main_stack_pointer;
    const struct cuda_run_launch *launch;
    uint32_t n_threads, n_warps, n_done, random;
    bool failed, paused;
    char error[CUDA_RUN_ERROR_BYTES];
} room;

bool cuda_run_on_stack(const void *at, uint32_t *thread)
{
    size_t offset = (size_t)((const unsigned char *)at - room.stacks);

    *thread = (uint32_t)(offset / STACK_BYTES);
    return offset < (size_t)STACK_BYTES * CUDA_RUN_THREADS;
}

static void note_error(const char *what)
{
    struct cuda_run_uint3 b = cuda_run_block.position;
    int n = snprintf(room.error, sizeof room.error, "%s: block (%u,%u,%u)", room.launch->name, b.x, b.y, b.z);

    if (cuda_run_self)
        n += snprintf(room.error + n, sizeof room.error - (size_t)n, " thread %u", cuda_run_self->index);
    snprintf(room.error + n, sizeof room.error - (size_t)n, ": %s", what);
    room.failed = true;
}

void cuda_run_fail(const char *format, ...)
{
    char what[CUDA_RUN_ERROR_BYTES / 2];
    void *unused;
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    note_error(what);
    fiber_switch(&unused, room.main_stack_pointer);
    abort();
}

static uint32_t random_next(void)
{
    room.random ^= room.random << 13;
    room.random ^= room.random >> 17;
    room.random ^= room.random << 5;
    return room.random;
}

struct cuda_run_uint3 cuda_run_thread_position(void)
{
    return cuda_run_self->position;
}
struct cuda_run_uint3 cuda_run_block_position(void)
{
    return cuda_run_block.position;
}
struct cuda_run_uint3 cuda_run_block_threads(void)
{
    return cuda_run_block.threads;
}
struct cuda_run_uint3 cuda_run_grid_blocks(void)
{
    return cuda_run_block.grid;
}

// The lanes that wait with `first`, if all of its mask that have not ended do; or 0.
static uint32_t group_of(const struct cuda_run_warp *w, uint32_t first)
{
    const struct cuda_run_thread *f = &w->threads[first];
    uint32_t wanted = f->mask & ~w->done;

    if (wanted & ~w->meeting)
        return 0;
    for (uint32_t rest = wanted; rest; rest &= rest - 1) {
        const struct cuda_run_thread *t = &w->threads[__builtin_ctz(rest)];
        if (t->mask != f->mask || t->what != f->what)
            return 0;
    }
    return wanted;
}

// No lane of the warp can run. Groups of lanes that wait for each other go on.
static void warp_release(struct cuda_run_warp *w)
{
    uint32_t all = w->meeting | w->at_barrier;

    for (uint32_t rest = w->meeting; rest;) {
        uint32_t first = (uint32_t)__builtin_ctz(rest), group = group_of(w, first);
        rest &= rest - 1;
        if (!group)
            continue;
        for (uint32_t g = group; g; g &= g - 1) {
            struct cuda_run_thread *t = &w->threads[__builtin_ctz(g)];
            w->view[t->lane] = t->slot;
            t->members = group;
        }
        w->meeting &= ~group;
        w->ready |= group;
        rest &= ~group;
        if (group == all)
            cuda_check_warp(w->index, w->threads[first].what == 0);
    }
}

static struct cuda_run_thread *lane_pick(const struct cuda_run_warp *w)
{
    uint32_t lane = (uint32_t)__builtin_ctz(w->ready);

    if (cuda_run_settings.schedule == CUDA_RUN_REVERSE)
        lane = 31 - (uint32_t)__builtin_clz(w->ready);
    if (cuda_run_settings.schedule == CUDA_RUN_RANDOM) {
        uint32_t above = w->ready & ~0u << random_next() % CUDA_RUN_LANES;
        lane = (uint32_t)__builtin_ctz(above ? above : w->ready);
    }
    return &w->threads[lane];
}

// This lane waits: another of its warp goes on, or another warp.
static void lane_leave(uint32_t *waiting)
{
    struct cuda_run_thread *me = cuda_run_self;

    me->warp->ready &= ~(1u << me->lane);
    *waiting |= 1u << me->lane;
    if (!me->warp->ready)
        warp_release(me->warp);
    if (!me->warp->ready) {
        cuda_run_self = NULL;
        fiber_switch(&me->stack_pointer, room.main_stack_pointer);
        return;
    }
    cuda_run_self = lane_pick(me->warp);
    if (cuda_run_self != me)
        fiber_switch(&me->stack_pointer, cuda_run_self->stack_pointer);
}

uint64_t cuda_run_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cuda_run_pause(void)
{
    struct cuda_run_thread *me = cuda_run_self;

    room.paused = true;
    cuda_run_self = NULL;
    fiber_switch(&me->stack_pointer, room.main_stack_pointer);
}

uint32_t cuda_run_meet_warp(uint32_t what, uint32_t mask, uint64_t v)
{
    struct cuda_run_thread *me = cuda_run_self;

    if (!(mask >> me->lane & 1))
        cuda_run_fail("lane %u is not in its own mask 0x%x", me->lane, mask);
    me->what = what;
    me->mask = mask;
    me->slot = v;
    lane_leave(&me->warp->meeting);
    return me->members;
}

uint64_t cuda_run_take(uint32_t lane)
{
    const struct cuda_run_thread *me = cuda_run_self;

    if (lane >= CUDA_RUN_LANES || !(me->members >> lane & 1))
        cuda_run_fail("a shuffle reads lane %u, which does not take part", lane);
    return me->warp->view[lane];
}

__attribute__((noinline)) struct cuda_run_votes cuda_run_meet_block(uint32_t vote)
{
    struct cuda_run_thread *me = cuda_run_self;

    me->vote = vote;
    me->site = __builtin_return_address(0);
    lane_leave(&me->warp->at_barrier);
    return cuda_run_block.votes;
}

static bool warps_run(void)
{
    bool ran = false;
    uint32_t n = room.n_warps, start = cuda_run_settings.schedule == CUDA_RUN_RANDOM ? random_next() % n : 0;

    for (uint32_t k = 0; k < n && !room.failed; k++) {
        uint32_t i = cuda_run_settings.schedule == CUDA_RUN_REVERSE ? n - 1 - k : (k + start) % n;
        struct cuda_run_warp *w = &room.warps[i];
        ran |= w->ready != 0;
        if (!w->ready)
            continue;
        cuda_run_self = lane_pick(w);
        fiber_switch(&room.main_stack_pointer, cuda_run_self->stack_pointer);
        cuda_run_self = NULL;
    }
    if (room.paused) // once for all warps: what they look for comes from another thread
        sched_yield();
    room.paused = false;
    return ran;
}

static void stuck(void)
{
    uint32_t n = 0, n_meeting = 0;
    char what[128];

    for (uint32_t i = 0; i < room.n_threads; i++) {
        const struct cuda_run_warp *w = room.threads[i].warp;
        n += w->at_barrier >> room.threads[i].lane & 1;
        n_meeting += w->meeting >> room.threads[i].lane & 1;
    }
    if (n_meeting)
        snprintf(what, sizeof what,
                 "%u threads wait at a warp function for lanes of their mask that do not come", n_meeting);
    else
        snprintf(what, sizeof what, "__syncthreads reached by %u of %u threads", n, room.n_threads);
    note_error(what);
}

// Every thread waits. All at the same barrier: they go on.
static void barrier_release(void)
{
    struct cuda_run_votes *b = &cuda_run_block.votes;
    const void *site = room.threads[0].site;

    b->any = b->count = 0;
    b->all = 1;
    for (uint32_t i = 0; i < room.n_threads; i++) {
        struct cuda_run_thread *t = &room.threads[i];
        if (!(t->warp->at_barrier >> t->lane & 1)) {
            stuck();
            return;
        }
        if (t->site != site) {
            note_error("threads wait at different barriers");
            return;
        }
        b->any |= t->vote != 0;
        b->all &= t->vote != 0;
        b->count += t->vote != 0;
    }
    for (uint32_t i = 0; i < room.n_warps; i++) {
        room.warps[i].ready = room.warps[i].at_barrier;
        room.warps[i].at_barrier = 0;
    }
    cuda_run_counts.barriers++;
    cuda_check_barrier();
}

struct most_params { // as large as any kernel's
    unsigned char bytes[CUDA_RUN_PARAMS_BYTES];
};

// A kernel takes one struct by value. The ABI hands over one of up to 16 bytes in two registers, which come
// first here, and a larger one on the stack, where what lies behind it does not matter.
static void lane_main(void)
{
    const struct cuda_run_launch *l = room.launch;
    void (*kernel)(uint64_t, uint64_t, struct most_params) =
        (void (*)(uint64_t, uint64_t, struct most_params))l->function;
    struct most_params params;
    uint64_t head[2];

    memcpy(&params, l->params, sizeof params);
    memcpy(head, l->params, sizeof head);
    kernel(head[0], head[1], params);
    room.n_done++;
    lane_leave(&cuda_run_self->warp->done);
    abort();
}

static void lane_start(uint32_t i)
{
    struct cuda_run_thread *t = &room.threads[i];
    struct cuda_run_uint3 n = room.launch->block;
    // neighbours' frames must not fall into the same cache sets
    void **stack = (void **)(void *)(room.stacks + (size_t)(i + 1) * STACK_BYTES - 64 - i % 32 * 128);

    *--stack = NULL;
    *--stack = (void *)lane_main;
    stack -= 6; // registers
    memset(stack, 0, 6 * sizeof *stack);
    *t = (struct cuda_run_thread){ .stack_pointer = stack,
                                   .warp = &room.warps[i / CUDA_RUN_LANES],
                                   .index = i,
                                   .lane = i % CUDA_RUN_LANES,
                                   .position = { i % n.x, i / n.x % n.y, i / (n.x * n.y) } };
}

static void block_run(uint64_t index)
{
    struct cuda_run_uint3 g = room.launch->grid;

    cuda_run_block.position = (struct cuda_run_uint3){ (uint32_t)(index % g.x), (uint32_t)(index / g.x % g.y),
                                                       (uint32_t)(index / g.x / g.y) };
    room.n_done = 0;
    room.random = (cuda_run_settings.seed + 1) * 2654435761u ^ ((uint32_t)index + 1) * 40503u;
    room.random += !room.random;
    for (uint32_t i = 0; i < room.n_threads; i++)
        lane_start(i);
    for (uint32_t i = 0; i < room.n_warps; i++) {
        uint32_t n = room.n_threads - i * CUDA_RUN_LANES;
        struct cuda_run_warp *w = &room.warps[i];
        w->threads = &room.threads[i * CUDA_RUN_LANES];
        w->index = i;
        w->ready = n >= CUDA_RUN_LANES ? ~0u : (1u << n) - 1;
        w->meeting = w->at_barrier = w->done = 0;
    }
    cuda_check_block(room.launch->shared_bytes);
    while (room.n_done < room.n_threads && !room.failed)
        if (!warps_run() && !room.failed && room.n_done < room.n_threads)
            barrier_release();
}

static uint64_t block_at(uint64_t k, uint64_t n)
{
    if (cuda_run_settings.schedule == CUDA_RUN_FORWARD || n == 1)
        return k;
    if (cuda_run_settings.schedule == CUDA_RUN_REVERSE)
        return n - 1 - k;
    return (k * (n - 1) + cuda_run_settings.seed) % n; // n - 1 and n have no common factor
}

static void stacks_make(void)
{
    room.stacks = mmap(NULL, (size_t)STACK_BYTES * CUDA_RUN_THREADS, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room.stacks == MAP_FAILED)
        abort();
    for (size_t i = 0; i < CUDA_RUN_THREADS; i++) // a lane that runs off its stack stops at once
        mprotect(room.stacks + i * STACK_BYTES, 4096, PROT_NONE);
}

void cuda_run_leave(void)
{
    cuda_check_leave();
    if (room.stacks)
        munmap(room.stacks, (size_t)STACK_BYTES * CUDA_RUN_THREADS);
    room.stacks = NULL;
}

bool cuda_run(const struct cuda_run_launch *l, char *error)
{
    uint64_t n = (uint64_t)l->grid.x * l->grid.y * l->grid.z,
             threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    const char *finding;

    if (!room.stacks)
        stacks_make();
    room.launch = l;
    room.failed = false;
    cuda_run_block = (struct cuda_run_block){ .threads = l->block, .grid = l->grid, .kernel = l->name };
    cuda_run_counts.launches++;
    if (n == 0 || threads == 0 || threads > CUDA_RUN_THREADS) {
        snprintf(error, CUDA_RUN_ERROR_BYTES, "%s: %llu blocks of %llu threads; want blocks of 1 to %d",
                 l->name, (unsigned long long)n, (unsigned long long)threads, CUDA_RUN_THREADS);
        return false;
    }
    room.n_threads = (uint32_t)threads;
    room.n_warps = (room.n_threads + CUDA_RUN_LANES - 1) / CUDA_RUN_LANES;
    for (uint64_t k = 0; k < n && !room.failed; k++)
        block_run(block_at(k, n));
    cuda_run_self = NULL;
    finding = cuda_check_finding();
    if (room.failed || finding)
        snprintf(error, CUDA_RUN_ERROR_BYTES, "%s", room.failed ? room.error : finding);
    return !room.failed && !finding;
}
