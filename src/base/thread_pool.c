// thread_pool.c - see thread_pool.h. A run is started by raising a number of each thread that takes part; a
// barrier is one counter that only grows.
//
// A waiting thread spins for a moment, without giving up its core: yielding to a foreign busy loop costs that
// loop's whole time slice. Then it sleeps, which lets the system move a thread here that waits for a busy
// core.
#include "base/thread_pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { SPIN_RUN_NS = 100000, SPIN_BARRIER_NS = 10000, PAUSES_PER_LOOK = 64, LINE = 64 };

struct wait_queue { // threads that sleep until the same event
    atomic_uint n_sleeping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

struct thread_pool {
    unsigned n, n_used; // all threads; those of the current run
    void (*work)(void *arg, unsigned thread);
    void *arg;
    _Alignas(LINE) atomic_uint arrived;  // barrier arrivals in this run
    _Alignas(LINE) atomic_uint finished; // workers done with the current run
    atomic_uint_fast64_t busy;           // CPU time of this run in nanoseconds
    atomic_bool stop;
    struct wait_queue queue;
    struct member {
        _Alignas(LINE) atomic_uint n_asked; // runs asked of it
        struct wait_queue queue;
        struct thread_pool *pool;
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

// Whether a counter has passed a number.
static bool has_passed(const atomic_uint *counter, unsigned number)
{
    return (int)(atomic_load(counter) - number) >= 0;
}

static void queue_init(struct wait_queue *queue)
{
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->wake, NULL);
}

static void queue_destroy(struct wait_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->wake);
}

static void wait_for(struct wait_queue *queue, const atomic_uint *counter, unsigned number, uint64_t spin_ns)
{
    uint64_t until = clock_ns() + spin_ns;

    for (unsigned n = 1; !has_passed(counter, number); n++) {
        pause_briefly();
        if (n % PAUSES_PER_LOOK != 0 || clock_ns() < until)
            continue;
        pthread_mutex_lock(&queue->lock);
        atomic_fetch_add(&queue->n_sleeping, 1);
        while (!has_passed(counter, number))
            pthread_cond_wait(&queue->wake, &queue->lock);
        atomic_fetch_sub(&queue->n_sleeping, 1);
        pthread_mutex_unlock(&queue->lock);
    }
}

// Called after a counter has changed. A thread that goes to sleep counts itself first and reads the counter
// then, so that no thread is missed.
static void wake_sleepers(struct wait_queue *queue)
{
    if (atomic_load(&queue->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&queue->lock);
    pthread_cond_broadcast(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
}

static void work_timed(struct thread_pool *pool, unsigned thread)
{
    uint64_t start = clock_thread_ns();

    pool->work(pool->arg, thread);
    atomic_fetch_add(&pool->busy, clock_thread_ns() - start);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct thread_pool *pool = m->pool;

    thread_name("ingot pool");
    for (unsigned run = 1;; run++) {
        wait_for(&m->queue, &m->n_asked, run, SPIN_RUN_NS);
        if (atomic_load(&pool->stop))
            return NULL;
        unsigned n_workers = pool->n_used - 1; // the next run may begin as soon as the last one has finished
        work_timed(pool, m->index);
        if (atomic_fetch_add(&pool->finished, 1) + 1 == n_workers)
            wake_sleepers(&pool->queue);
    }
}

// The other threads stay asleep: a thread woken without work would take a CPU from one that has work.
static void start_run(struct thread_pool *pool, unsigned n_threads)
{
    for (unsigned i = 1; i < n_threads; i++) {
        atomic_fetch_add(&pool->members[i].n_asked, 1);
        wake_sleepers(&pool->members[i].queue);
    }
}

struct thread_pool *thread_pool_create(unsigned n_threads)
{
    size_t bytes = sizeof(struct thread_pool) + n_threads * sizeof(struct member);
    struct thread_pool *pool = mem_alloc_aligned((bytes + LINE - 1) / LINE * LINE, LINE);

    if (!pool)
        return NULL;
    __builtin_memset(pool, 0, bytes);
    queue_init(&pool->queue);
    for (pool->n = 1; pool->n < n_threads; pool->n++) {
        struct member *m = &pool->members[pool->n];
        m->pool = pool;
        m->index = pool->n;
        queue_init(&m->queue);
        if (pthread_create(&m->thread, NULL, member_main, m) != 0) {
            queue_destroy(&m->queue);
            thread_pool_destroy(pool);
            return NULL;
        }
    }
    return pool;
}

void thread_pool_destroy(struct thread_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    start_run(pool, pool->n);
    for (unsigned i = 1; i < pool->n; i++) {
        pthread_join(pool->members[i].thread, NULL);
        queue_destroy(&pool->members[i].queue);
    }
    queue_destroy(&pool->queue);
    mem_free_aligned(pool);
}

unsigned thread_pool_size(const struct thread_pool *pool)
{
    return pool->n;
}

void thread_pool_run(struct thread_pool *pool, void (*work)(void *arg, unsigned thread), void *arg)
{
    thread_pool_run_some(pool, pool->n, work, arg);
}

struct thread_pool_time thread_pool_run_some(struct thread_pool *pool, unsigned n_threads,
                                             void (*work)(void *arg, unsigned thread), void *arg)
{
    uint64_t start = clock_ns();

    pool->work = work;
    pool->arg = arg;
    pool->n_used = n_threads;
    atomic_store_explicit(&pool->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->busy, 0, memory_order_relaxed);
    start_run(pool, n_threads);
    work_timed(pool, 0);
    wait_for(&pool->queue, &pool->finished, n_threads - 1, SPIN_BARRIER_NS);
    return (struct thread_pool_time){ clock_ns() - start, atomic_load(&pool->busy) };
}

void thread_pool_barrier(struct thread_pool *pool)
{
    unsigned n = pool->n_used;

    if (n == 1)
        return;
    // starts at 0 in every run, so it cannot wrap in practice
    unsigned ticket = atomic_fetch_add(&pool->arrived, 1);
    unsigned goal = ticket - ticket % n + n;

    if (ticket + 1 == goal)
        wake_sleepers(&pool->queue);
    else
        wait_for(&pool->queue, &pool->arrived, goal, SPIN_BARRIER_NS);
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

unsigned thread_count_available(void)
{
    unsigned n = n_processors(), quota = cgroup_n_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota && quota < n ? quota : n;
}

unsigned thread_count_capped(unsigned wanted)
{
    unsigned n = thread_count_available();

    if (wanted <= n)
        return wanted ? wanted : n;
    log_line(LOG_WARN, "threads", "found %u, but this process may use %u processors: taking %u", wanted, n,
             n);
    return n;
}

void thread_name(const char *name)
{
#if defined(__linux__)
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
#elif defined(__APPLE__)
    (void)pthread_setname_np(name);
#else
    (void)name;
#endif
}
