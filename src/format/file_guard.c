// file_guard.c - see file_guard.h. The handler reads the table without a lock: a row is in use as long as its
// `first` is not 0, and `end` is set before.
#include "format/file_guard.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_GUARDS = 1024 };

static struct file_guard_row {
    atomic_uintptr_t first, end;
    atomic_bool lost;
} rows[MOST_GUARDS];
static atomic_uint n_rows; // that have ever been used
static uintptr_t page_bytes;
static struct sigaction before;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// The rest of the file is replaced, not the page alone: a page each would be a fault and a mapping each.
static bool replace(struct file_guard_row *r, uintptr_t at)
{
    uintptr_t first = atomic_load(&r->first), end = atomic_load(&r->end);

    if (first == 0 || at < first || at >= end)
        return false;
    at -= at % page_bytes;
    atomic_store(&r->lost, true);
    return mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

static void pass_on(int number, siginfo_t *info, void *thread)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, thread);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else
        sigaction(SIGBUS, &before, NULL); // the same read ends the process now
}

static void on_bus_error(int number, siginfo_t *info, void *thread)
{
    for (uint32_t i = 0; i < atomic_load(&n_rows); i++)
        if (replace(&rows[i], (uintptr_t)info->si_addr))
            return;
    pass_on(number, info, thread);
}

// For every file, since the program may have set another handler meanwhile. The lock is held.
static void install(void)
{
    struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK }, now;

    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error)
        return;
    before = now;
    sigaction(SIGBUS, &action, NULL);
}

uint32_t file_guard(const struct file_map *map)
{
    uint32_t i = 0;

    if (!map->base)
        return 0;
    pthread_mutex_lock(&lock);
    install();
    while (i < MOST_GUARDS && atomic_load(&rows[i].first))
        i++;
    if (i < MOST_GUARDS) {
        atomic_store(&rows[i].lost, false);
        atomic_store(&rows[i].end, (uintptr_t)map->base + map->bytes);
        atomic_store(&rows[i].first, (uintptr_t)map->base);
        if (i >= atomic_load(&n_rows))
            atomic_store(&n_rows, i + 1);
    }
    pthread_mutex_unlock(&lock);
    return i < MOST_GUARDS ? i + 1 : 0;
}

void file_unguard(uint32_t guard)
{
    if (guard)
        atomic_store(&rows[guard - 1].first, 0);
}

bool file_guard_lost(uint32_t guard)
{
    return guard && atomic_load_explicit(&rows[guard - 1].lost, memory_order_relaxed);
}
