// msl_run.c - runs a dispatch: checks it, shares its threadgroups among a few threads of the host, collects
// the first error.
//
// Threadgroups are handed out one by one; each worker has its own fibers and threadgroup memory. Kernels must
// not depend on the order of threadgroups, so the reverse and the random schedule change it. One dispatch
// runs at a time: a caller holds its queue.
#include "msl_fiber.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct msl_settings msl_settings;

enum { MAX_WORKERS = 8 };

static struct thread_team {
    pthread_mutex_t lock;
    pthread_cond_t start, end;
    struct msl_worker *workers[MAX_WORKERS];
    const struct msl_dispatch *dispatch;
    uint64_t turn; // counts dispatches that were shared
    uint32_t n_threads, n_busy, n_groups, next_group;
    bool failed;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER,
           .start = PTHREAD_COND_INITIALIZER,
           .end = PTHREAD_COND_INITIALIZER };

static uint32_t group_at(uint32_t k)
{
    uint32_t n = pool.n_groups;

    if (msl_settings.schedule == MSL_FORWARD || n == 1)
        return k;
    if (msl_settings.schedule == MSL_REVERSE)
        return n - 1 - k;
    return (uint32_t)(((uint64_t)k * (n - 1) + msl_settings.seed) % n); // n - 1 and n have no common factor
}

static bool dispatch_fill(struct msl_worker *w, const struct msl_dispatch *d)
{
    struct msl_group *g = &w->group;
    const uint32_t *grid = d->grid;
    uint32_t bytes = 0;

    w->dispatch = d;
    w->failed = false;
    w->error[0] = 0;
    g->buffers = d->buffers;
    g->groups = (struct msl_uint3){ d->groups[0], d->groups[1], d->groups[2] };
    g->dispatch_threads = (struct msl_uint3){ d->threads[0], d->threads[1], d->threads[2] };
    g->grid = grid[0] ? (struct msl_uint3){ grid[0], grid[1], grid[2] }
                      : (struct msl_uint3){ d->groups[0] * d->threads[0], d->groups[1] * d->threads[1],
                                            d->groups[2] * d->threads[2] };
    memset(g->variables, 0, sizeof g->variables);
    for (int i = 0; i < MSL_BUFFERS; i++) {
        g->threadgroup[i] = d->threadgroup_bytes[i] ? g->memory + bytes : NULL;
        if (d->threadgroup_bytes[i] > MSL_THREADGROUP_BYTES - bytes) {
            msl_worker_error(w, "%s: threadgroup memory above %d bytes", d->kernel->name,
                             MSL_THREADGROUP_BYTES);
            return false;
        }
        bytes += (uint32_t)d->threadgroup_bytes[i];
    }
    g->dispatch_bytes = bytes;
    g->memory_bytes = bytes;
    return true;
}

static bool dispatch_check(struct msl_worker *w, const struct msl_dispatch *d)
{
    const struct msl_kernel *k = d->kernel;
    uint64_t n = (uint64_t)d->threads[0] * d->threads[1] * d->threads[2],
             most = k->max_threads ? k->max_threads : MSL_THREADS;

    if (!n || n > most) {
        msl_worker_error(w, "%s: %llu threads in a threadgroup; expected 1 to %llu", k->name,
                         (unsigned long long)n, (unsigned long long)most);
        return false;
    }
    for (int i = 0; i < k->n_bindings; i++) {
        const struct msl_binding *b = &k->bindings[i];
        if (b->source == MSL_BUFFER && !d->buffers[b->index]) {
            msl_worker_error(w, "%s: buffer(%d) is not bound", k->name, b->index);
            return false;
        }
        if (b->source == MSL_THREADGROUP && !d->threadgroup_bytes[b->index]) {
            msl_worker_error(w, "%s: threadgroup(%d) has no length", k->name, b->index);
            return false;
        }
    }
    return true;
}

static void groups_run(struct msl_worker *w)
{
    uint32_t k;

    while (!__atomic_load_n(&pool.failed, __ATOMIC_RELAXED) &&
           (k = __atomic_fetch_add(&pool.next_group, 1, __ATOMIC_RELAXED)) < pool.n_groups) {
        msl_worker_group(w, group_at(k));
        if (w->failed)
            __atomic_store_n(&pool.failed, true, __ATOMIC_RELAXED);
    }
}

static void *worker_thread(void *arg)
{
    struct msl_worker *w = arg;
    uint64_t seen = 0;

    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.turn == seen)
            pthread_cond_wait(&pool.start, &pool.lock);
        seen = pool.turn;
        pthread_mutex_unlock(&pool.lock);
        dispatch_fill(w, pool.dispatch);
        groups_run(w);
        pthread_mutex_lock(&pool.lock);
        if (--pool.n_busy == 0)
            pthread_cond_signal(&pool.end);
    }
    return NULL;
}

static void pool_start(void)
{
    long n = msl_settings.workers ? (long)msl_settings.workers : sysconf(_SC_NPROCESSORS_ONLN);

    if (n > MAX_WORKERS)
        n = MAX_WORKERS;
    pool.workers[0] = msl_worker_create();
    for (long i = 1; i < n; i++) {
        pthread_t thread;
        pool.workers[i] = msl_worker_create();
        if (pthread_create(&thread, NULL, worker_thread, pool.workers[i]))
            break;
        pthread_detach(thread);
        pool.n_threads++;
    }
}

static void pool_share(struct msl_worker *own)
{
    pthread_mutex_lock(&pool.lock);
    pool.turn++;
    pool.n_busy = pool.n_threads;
    pthread_cond_broadcast(&pool.start);
    pthread_mutex_unlock(&pool.lock);
    groups_run(own);
    pthread_mutex_lock(&pool.lock);
    while (pool.n_busy)
        pthread_cond_wait(&pool.end, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

static const char *first_error(void)
{
    for (uint32_t i = 0; i <= pool.n_threads; i++)
        if (pool.workers[i]->failed)
            return pool.workers[i]->error;
    return NULL;
}

bool msl_run(const struct msl_dispatch *d, char *error)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    struct msl_worker *own;
    const char *finding;

    pthread_mutex_lock(&one);
    if (!pool.workers[0])
        pool_start();
    for (uint32_t i = 0; i <= pool.n_threads; i++)
        pool.workers[i]->failed = false;
    own = pool.workers[0];
    pool.dispatch = d;
    pool.failed = false;
    pool.next_group = 0;
    pool.n_groups = d->groups[0] * d->groups[1] * d->groups[2];
    if (dispatch_fill(own, d) && dispatch_check(own, d)) {
        msl_worker_self = own;
        if (d->check)
            msl_check_begin(d, &own->group);
        if (pool.n_groups > 1 && pool.n_threads && !d->check)
            pool_share(own);
        else
            groups_run(own);
    }
    finding = first_error();
    if (!finding && d->check)
        finding = msl_check_finding();
    if (finding)
        snprintf(error, MSL_ERROR_BYTES, "%s", finding);
    pthread_mutex_unlock(&one);
    return !finding;
}
