// threads.c - see threads.h. A run is started by raising a generation number; a barrier is one counter that only grows.
#include "base/threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"

enum { SPIN_NS = 100000, PAUSES_BEFORE_YIELD = 1000, LINE = 64 };

struct team {
    unsigned n;
    void (*work)(void *arg, unsigned thread);
    void *arg;
    _Alignas(LINE) atomic_uint generation; // odd or even does not matter: a change starts a run
    _Alignas(LINE) atomic_uint arrived;    // barrier arrivals in this run
    _Alignas(LINE) atomic_uint finished;   // workers done with the current run
    atomic_uint n_sleeping;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct member {
        struct team *team;
        pthread_t thread;
        unsigned index;
    } members[];
};

static inline void pause_briefly(unsigned *n)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (++*n % PAUSES_BEFORE_YIELD == 0)
        sched_yield();
}

static void wait_for_run(struct team *team, unsigned seen)
{
    unsigned n = 0;
    uint64_t until = clock_ns() + SPIN_NS;

    while (atomic_load_explicit(&team->generation, memory_order_acquire) == seen) {
        pause_briefly(&n);
        if (n % 64 != 0 || clock_ns() < until)
            continue;
        pthread_mutex_lock(&team->lock);
        atomic_fetch_add(&team->n_sleeping, 1);
        while (atomic_load(&team->generation) == seen)
            pthread_cond_wait(&team->wake, &team->lock);
        atomic_fetch_sub(&team->n_sleeping, 1);
        pthread_mutex_unlock(&team->lock);
    }
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct team *team = m->team;

    for (unsigned seen = 0;; seen++) {
        wait_for_run(team, seen);
        if (atomic_load(&team->stop))
            return NULL;
        team->work(team->arg, m->index);
        atomic_fetch_add_explicit(&team->finished, 1, memory_order_release);
    }
}

static void start_run(struct team *team)
{
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->n_sleeping) > 0) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
    }
}

struct team *team_create(unsigned n_threads)
{
    size_t bytes = sizeof(struct team) + n_threads * sizeof(struct member);
    struct team *team = mem_alloc_aligned((bytes + LINE - 1) / LINE * LINE, LINE);

    if (!team)
        return NULL;
    __builtin_memset(team, 0, bytes);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    for (team->n = 1; team->n < n_threads; team->n++) {
        struct member *m = &team->members[team->n];
        *m = (struct member){ .team = team, .index = team->n };
        if (pthread_create(&m->thread, NULL, member_main, m) != 0) {
            team_destroy(team);
            return NULL;
        }
    }
    return team;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    atomic_store(&team->stop, true);
    start_run(team);
    for (unsigned i = 1; i < team->n; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->wake);
    mem_free_aligned(team);
}

unsigned team_size(const struct team *team)
{
    return team->n;
}

void team_run(struct team *team, void (*work)(void *arg, unsigned thread), void *arg)
{
    unsigned n = 0;

    team->work = work;
    team->arg = arg;
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    if (team->n > 1)
        start_run(team);
    work(arg, 0);
    while (atomic_load_explicit(&team->finished, memory_order_acquire) != team->n - 1)
        pause_briefly(&n);
}

void team_barrier(struct team *team)
{
    if (team->n == 1)
        return;
    unsigned ticket = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    unsigned goal = ticket - ticket % team->n + team->n, n = 0;

    // arrived starts at 0 in every run (team_run), so it cannot wrap in practice.
    while ((int)(atomic_load_explicit(&team->arrived, memory_order_acquire) - goal) < 0)
        pause_briefly(&n);
}

unsigned threads_available(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set) > 0 ? (unsigned)CPU_COUNT(&set) : 1;
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}
