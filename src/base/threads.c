// threads.c - see threads.h. A run is started by raising a number of each thread that takes part; a barrier is one counter that only grows.
//
// Who waits spins for a moment, without giving up its core: yielding to a foreign busy loop costs that loop's whole slice. Then it sleeps,
// which lets the system move a partner here that waits for its turn on a busy core.
#include "base/threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { SPIN_RUN_NS = 100000, SPIN_BARRIER_NS = 10000, PAUSES_PER_LOOK = 64, LINE = 64 };

struct bed { // where those sleep who wait for the same thing
    atomic_uint n_sleeping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

struct team {
    unsigned n, n_used; // all threads; those of the current run
    void (*work)(void *arg, unsigned thread);
    void *arg;
    _Alignas(LINE) atomic_uint arrived;  // barrier arrivals in this run
    _Alignas(LINE) atomic_uint finished; // workers done with the current run
    atomic_uint_fast64_t busy;           // nanoseconds of processors in this run
    atomic_bool stop;
    struct bed bed;
    struct member {
        _Alignas(LINE) atomic_uint n_asked; // runs asked of it
        struct bed bed;
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

static void bed_init(struct bed *bed)
{
    pthread_mutex_init(&bed->lock, NULL);
    pthread_cond_init(&bed->wake, NULL);
}

static void bed_destroy(struct bed *bed)
{
    pthread_mutex_destroy(&bed->lock);
    pthread_cond_destroy(&bed->wake);
}

static void wait_for(struct bed *bed, const atomic_uint *counter, unsigned number, uint64_t spin_ns)
{
    uint64_t until = clock_ns() + spin_ns;

    for (unsigned n = 1; !has_passed(counter, number); n++) {
        pause_briefly();
        if (n % PAUSES_PER_LOOK != 0 || clock_ns() < until)
            continue;
        pthread_mutex_lock(&bed->lock);
        atomic_fetch_add(&bed->n_sleeping, 1);
        while (!has_passed(counter, number))
            pthread_cond_wait(&bed->wake, &bed->lock);
        atomic_fetch_sub(&bed->n_sleeping, 1);
        pthread_mutex_unlock(&bed->lock);
    }
}

// After a counter has moved. Whoever goes to sleep counts itself first and looks at the counter then, so that nobody is missed.
static void wake_sleepers(struct bed *bed)
{
    if (atomic_load(&bed->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&bed->lock);
    pthread_cond_broadcast(&bed->wake);
    pthread_mutex_unlock(&bed->lock);
}

static void work_timed(struct team *team, unsigned thread)
{
    uint64_t start = clock_thread_ns();

    team->work(team->arg, thread);
    atomic_fetch_add(&team->busy, clock_thread_ns() - start);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct team *team = m->team;

    for (unsigned run = 1;; run++) {
        wait_for(&m->bed, &m->n_asked, run, SPIN_RUN_NS);
        if (atomic_load(&team->stop))
            return NULL;
        unsigned n_workers = team->n_used - 1; // the next run may begin as soon as the last one has finished
        work_timed(team, m->index);
        if (atomic_fetch_add(&team->finished, 1) + 1 == n_workers)
            wake_sleepers(&team->bed);
    }
}

// Others stay asleep: a thread that is woken only to find nothing to do would take a processor from those that have.
static void start_run(struct team *team, unsigned n_threads)
{
    for (unsigned i = 1; i < n_threads; i++) {
        atomic_fetch_add(&team->members[i].n_asked, 1);
        wake_sleepers(&team->members[i].bed);
    }
}

struct team *team_create(unsigned n_threads)
{
    size_t bytes = sizeof(struct team) + n_threads * sizeof(struct member);
    struct team *team = mem_alloc_aligned((bytes + LINE - 1) / LINE * LINE, LINE);

    if (!team)
        return NULL;
    __builtin_memset(team, 0, bytes);
    bed_init(&team->bed);
    for (team->n = 1; team->n < n_threads; team->n++) {
        struct member *m = &team->members[team->n];
        m->team = team;
        m->index = team->n;
        bed_init(&m->bed);
        if (pthread_create(&m->thread, NULL, member_main, m) != 0) {
            bed_destroy(&m->bed);
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
    start_run(team, team->n);
    for (unsigned i = 1; i < team->n; i++) {
        pthread_join(team->members[i].thread, NULL);
        bed_destroy(&team->members[i].bed);
    }
    bed_destroy(&team->bed);
    mem_free_aligned(team);
}

unsigned team_size(const struct team *team)
{
    return team->n;
}

void team_run(struct team *team, void (*work)(void *arg, unsigned thread), void *arg)
{
    team_run_some(team, team->n, work, arg);
}

struct team_time team_run_some(struct team *team, unsigned n_threads, void (*work)(void *arg, unsigned thread), void *arg)
{
    uint64_t start = clock_ns();

    team->work = work;
    team->arg = arg;
    team->n_used = n_threads;
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&team->busy, 0, memory_order_relaxed);
    start_run(team, n_threads);
    work_timed(team, 0);
    wait_for(&team->bed, &team->finished, n_threads - 1, SPIN_BARRIER_NS);
    return (struct team_time){ clock_ns() - start, atomic_load(&team->busy) };
}

void team_barrier(struct team *team)
{
    unsigned n = team->n_used;

    if (n == 1)
        return;
    unsigned ticket = atomic_fetch_add(&team->arrived, 1); // starts at 0 in every run, so it cannot wrap in practice
    unsigned goal = ticket - ticket % n + n;

    if (ticket + 1 == goal)
        wake_sleepers(&team->bed);
    else
        wait_for(&team->bed, &team->arrived, goal, SPIN_BARRIER_NS);
}

static unsigned n_processors(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

unsigned threads_available(void)
{
    unsigned n = n_processors(), quota = cgroup_n_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota && quota < n ? quota : n;
}

unsigned threads_capped(unsigned wanted)
{
    unsigned n = threads_available();

    if (wanted <= n)
        return wanted ? wanted : n;
    log_line(LOG_WARN, "threads", "found %u, but this process may use %u processors: taking %u", wanted, n, n);
    return n;
}
