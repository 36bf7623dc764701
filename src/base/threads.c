// threads.c - see threads.h. A run is started by raising a generation number; a barrier is one counter that only grows.
//
// Who waits spins for a moment, without giving up its core: yielding to a foreign busy loop costs that loop's whole slice. Then it sleeps,
// which lets the system move a partner here that waits for its turn on a busy core.
#include "base/threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"

enum { SPIN_RUN_NS = 100000, SPIN_BARRIER_NS = 10000, PAUSES_PER_LOOK = 64, LINE = 64 };

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

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// What is waited for: a counter that has passed a number.
static bool has_passed(const atomic_uint *counter, unsigned number)
{
    return (int)(atomic_load(counter) - number) >= 0;
}

static void wait_for(struct team *team, const atomic_uint *counter, unsigned number, uint64_t spin_ns)
{
    uint64_t until = clock_ns() + spin_ns;

    for (unsigned n = 1; !has_passed(counter, number); n++) {
        pause_briefly();
        if (n % PAUSES_PER_LOOK != 0 || clock_ns() < until)
            continue;
        pthread_mutex_lock(&team->lock);
        atomic_fetch_add(&team->n_sleeping, 1);
        while (!has_passed(counter, number))
            pthread_cond_wait(&team->wake, &team->lock);
        atomic_fetch_sub(&team->n_sleeping, 1);
        pthread_mutex_unlock(&team->lock);
    }
}

// After a counter has moved. Whoever goes to sleep counts itself first and looks at the counter then, so that nobody is missed.
static void wake_sleepers(struct team *team)
{
    if (atomic_load(&team->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct team *team = m->team;

    for (unsigned run = 1;; run++) {
        wait_for(team, &team->generation, run, SPIN_RUN_NS);
        if (atomic_load(&team->stop))
            return NULL;
        team->work(team->arg, m->index);
        if (atomic_fetch_add(&team->finished, 1) + 2 == team->n)
            wake_sleepers(team);
    }
}

static void start_run(struct team *team)
{
    atomic_fetch_add(&team->generation, 1);
    wake_sleepers(team);
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
    team->work = work;
    team->arg = arg;
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    if (team->n > 1)
        start_run(team);
    work(arg, 0);
    wait_for(team, &team->finished, team->n - 1, SPIN_BARRIER_NS);
}

void team_barrier(struct team *team)
{
    if (team->n == 1)
        return;
    unsigned ticket = atomic_fetch_add(&team->arrived, 1); // starts at 0 in every run, so it cannot wrap in practice
    unsigned goal = ticket - ticket % team->n + team->n;

    if (ticket + 1 == goal)
        wake_sleepers(team);
    else
        wait_for(team, &team->arrived, goal, SPIN_BARRIER_NS);
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
