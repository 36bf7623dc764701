// thread_pool.c - see thread_pool.h. A run starts by incrementing a counter of each thread that takes part.
//
// A barrier has log2 n rounds (a dissemination barrier): in round r each thread signals the one 2^r behind it
// and waits for the one 2^r before it. Each number that is waited for has one writer and one reader, and each
// sleeper its own waker. Two threads are as fast on one counter; 16 are two to four times slower (measured:
// bench/results/2026-11-28-cpu-threads.md).
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
#include "base/str.h"
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum {
    SPIN_RUN_NS = 100000,
    SPIN_BARRIER_NS = 10000,
    SPIN_PATIENT_NS = 2000000,
    WAKE_NS = 1000000, // a thread whose CPU is free wakes sooner, even as the last of many
    PAUSES_PER_LOOK = 64,
    MAX_ROUNDS = 10, // 1024 threads
    LINE = 64
};

struct wait_queue { // threads that sleep until the same event
    atomic_uint n_sleeping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t woken_at; // under lock
};

static _Thread_local uint64_t slept_ns; // of this thread in this run, by its own wish

struct thread_pool {
    unsigned n, n_used; // all threads; those of the current run
    uint64_t spin_ns;   // at barriers
    void (*work)(void *arg, unsigned thread);
    void *arg;
    _Alignas(LINE) atomic_uint finished; // workers done with the current run
    atomic_uint_fast64_t busy, lost;     // of this run; see thread_pool_time
    atomic_bool stop;
    struct wait_queue queue;
    struct member {
        _Alignas(LINE) atomic_uint n_asked; // runs asked of it
        struct wait_queue queue;
        struct thread_pool *pool;
        pthread_t thread;
        unsigned index;
        _Alignas(
            LINE) unsigned n_awaited[MAX_ROUNDS]; // signals that it has waited for, by round of a barrier
        struct signal {
            _Alignas(LINE) atomic_uint n; // that it got
        } signals[MAX_ROUNDS];
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

static void sleep_until(struct wait_queue *queue, const atomic_uint *counter, unsigned number)
{
    uint64_t from = clock_ns();

    pthread_mutex_lock(&queue->lock);
    atomic_fetch_add(&queue->n_sleeping, 1);
    while (!has_passed(counter, number))
        pthread_cond_wait(&queue->wake, &queue->lock);
    atomic_fetch_sub(&queue->n_sleeping, 1);
    uint64_t now = clock_ns(), woken_at = queue->woken_at > from ? queue->woken_at : from;
    pthread_mutex_unlock(&queue->lock);
    slept_ns += now - woken_at < WAKE_NS ? now - from : woken_at - from;
}

static void wait_for(struct wait_queue *queue, const atomic_uint *counter, unsigned number, uint64_t spin_ns)
{
    uint64_t until = 0; // a short wait reads no clock

    for (unsigned n = 1; !has_passed(counter, number); n++) {
        pause_briefly();
        if (n % PAUSES_PER_LOOK != 0)
            continue;
        uint64_t now = clock_ns();
        until = until ? until : now + spin_ns;
        if (now >= until)
            sleep_until(queue, counter, number);
    }
}

// Called after a counter has changed. A thread that goes to sleep counts itself first and reads the counter
// then, so that no thread is missed.
static void wake_sleepers(struct wait_queue *queue)
{
    if (atomic_load(&queue->n_sleeping) == 0)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->woken_at = clock_ns();
    pthread_cond_broadcast(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
}

static void work_timed(struct thread_pool *pool, unsigned thread)
{
    uint64_t start = clock_ns(), start_cpu = clock_thread_ns();

    slept_ns = 0;
    pool->work(pool->arg, thread);
    uint64_t busy = clock_thread_ns() - start_cpu, wanted = clock_ns() - start - slept_ns;
    atomic_fetch_add(&pool->busy, busy);
    atomic_fetch_add(&pool->lost, wanted > busy ? wanted - busy : 0);
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
    pool->spin_ns = SPIN_BARRIER_NS;
    queue_init(&pool->queue);
    queue_init(&pool->members[0].queue);
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
    queue_destroy(&pool->members[0].queue);
    queue_destroy(&pool->queue);
    mem_free_aligned(pool);
}

void thread_pool_be_patient(struct thread_pool *pool, bool patient)
{
    pool->spin_ns = patient ? SPIN_PATIENT_NS : SPIN_BARRIER_NS;
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
    atomic_store_explicit(&pool->busy, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->lost, 0, memory_order_relaxed);
    start_run(pool, n_threads);
    work_timed(pool, 0);
    wait_for(&pool->queue, &pool->finished, n_threads - 1, pool->spin_ns);
    return (struct thread_pool_time){ clock_ns() - start, atomic_load(&pool->busy),
                                      atomic_load(&pool->lost) };
}

void thread_pool_barrier(struct thread_pool *pool, unsigned thread)
{
    struct member *own = &pool->members[thread];
    const unsigned n = pool->n_used;

    for (unsigned round = 0, step = 1; step < n; round++, step *= 2) {
        struct member *behind = &pool->members[(thread + step) % n];
        atomic_fetch_add(&behind->signals[round].n, 1);
        wake_sleepers(&behind->queue);
        wait_for(&own->queue, &own->signals[round].n, ++own->n_awaited[round], pool->spin_ns);
    }
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
    log_line(LOG_WARN, "threads", "found %u, but this process may use %u processor%s: taking %u", wanted, n,
             str_plural(n), n);
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
