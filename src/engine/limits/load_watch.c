// load_watch.c - see load_watch.h.
#include "engine/limits/load_watch.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/wait.h"

void load_watch_lower_priority(const struct usage_limits *limits)
{
    if (limits->nice && setpriority(PRIO_PROCESS, 0, (int)limits->nice) != 0)
        log_line(LOG_WARN, "limits", "the priority stays as it is: nice %u: %s", limits->nice,
                 strerror(errno));
#if defined(__linux__)
    enum { WHO_PROCESS = 1, CLASS_SHIFT = 13, CLASS_BEST_EFFORT = 2, CLASS_IDLE = 3 };
    long value = limits->io == LIMITS_IDLE_IO ? CLASS_IDLE << CLASS_SHIFT
                                              : (CLASS_BEST_EFFORT << CLASS_SHIFT) | (long)limits->io;
    if (limits->io && syscall(SYS_ioprio_set, WHO_PROCESS, 0, value) != 0)
        log_line(LOG_WARN, "limits", "the priority of reading files stays as it is: %s", strerror(errno));
#endif
}

static bool has_own_memory(const struct device *d)
{
    return str_starts(str_from(d->name), STR("cuda")); // an Apple GPU tells of this process alone
}

static uint64_t used_bytes(struct device *d, uint64_t *all)
{
    struct device_info info = { 0 };

    d->ops->info(d, &info);
    *all = info.memory_bytes;
    return info.memory_bytes > info.free_bytes ? info.memory_bytes - info.free_bytes : 0;
}

void load_watch_begin(struct load_watch *w, const struct devices *d)
{
    uint64_t all;

    for (uint32_t i = 0; i < d->n; i++) {
        w->others_bytes[i] = has_own_memory(d->at[i]) ? used_bytes(d->at[i], &all) : 0;
        w->own_bytes[i] = UINT64_MAX;
    }
}

void load_watch_loaded(struct load_watch *w, const struct devices *d)
{
    uint64_t all;

    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t used = has_own_memory(d->at[i]) ? used_bytes(d->at[i], &all) : 0;
        w->own_bytes[i] = used > w->others_bytes[i] ? used - w->others_bytes[i] : 0;
    }
}

// The fullest one's share that is not ours. Without a GPU there is no load.
static double gpu_load(const struct engine *e)
{
    const struct devices *d = &e->loaded->devices;
    double most = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t all, used;
        if (!d->at[i]->queue)
            continue;
        if (!has_own_memory(d->at[i]))
            return SYSTEM_LOAD_UNKNOWN;
        used = used_bytes(d->at[i], &all);
        used = used > e->watch.own_bytes[i] ? used - e->watch.own_bytes[i] : 0;
        double part = all ? (double)used / (double)all : 0;
        most = part > most ? part : most;
    }
    return most;
}

// The state lock is held.
static void wait_for_check(struct engine *e, uint32_t seconds)
{
    uint64_t now, until = pace_clock(&e->pace) + seconds * 1000000000ull;

    while (!e->watch.stop && (now = pace_clock(&e->pace)) < until)
        wait_sleep(e, until - now);
}

// The processors' load is that between two readings: the first look is a second after the start.
static void *look_on(void *arg)
{
    struct engine *e = arg;

    thread_name("ingot load");
    system_load_read(&e->watch.meter);
    pthread_mutex_lock(&e->state);
    wait_for_check(e, 1);
    while (!e->watch.stop) {
        pthread_mutex_unlock(&e->state);
        struct pace_load load = { .system = system_load_read(&e->watch.meter) };
        pthread_mutex_lock(&e->state); // no device is closed meanwhile
        load.gpu = gpu_load(e);
        pace_note_load(&e->pace, &load);
        wait_wake(e);
        wait_for_check(e, e->pace.set.check_s);
    }
    pthread_mutex_unlock(&e->state);
    return NULL;
}

bool load_watch_start(struct engine *e, struct err *err)
{
    char text[LIMITS_TEXT_BYTES];

    if (!usage_limits_any(&e->pace.set))
        return true;
    usage_limits_print(&e->pace.set, text);
    log_line(LOG_INFO, "limits", "%s", text);
    load_watch_loaded(&e->watch, &e->loaded->devices);
    if (!usage_limits_watch(&e->pace.set))
        return true;
    e->watch.runs = pthread_create(&e->watch.thread, NULL, look_on, e) == 0;
    return e->watch.runs || err_set(err, ERR_MEMORY, "no thread to watch the machine's load");
}

void load_watch_stop(struct engine *e)
{
    if (!e->watch.runs)
        return;
    pthread_mutex_lock(&e->state);
    e->watch.stop = true;
    wait_wake(e);
    pthread_mutex_unlock(&e->state);
    pthread_join(e->watch.thread, NULL);
    e->watch.runs = false;
}
