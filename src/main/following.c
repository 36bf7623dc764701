// following.c - see following.h.
//
// When a rank dies, mpirun sends SIGCONT to the others, SIGTERM a second later, and SIGKILL after another.
// Rank 0 asks who is there at the first, and has the rest for its answers. The others leave after it.
#include "main/following.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "engine/api/follow.h"
#include "engine/ranks/ranks.h"
#include "engine/stage/remote.h"
#include "main/terminal/fail.h"

static void on_alarm(int signal)
{
    ranks_alarm();
    if (signal == SIGTERM)
        raise(SIGINT); // which asks the work to end
}

static void set_handler(int signal, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };

    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

bool following_any(void)
{
    uint32_t rank;

    return options_ranks(&rank) > 1;
}

// mpirun ties a rank to one core unless it is told not to.
static void warn_of_binding(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    if (n > 1 && thread_count_available() == 1)
        log_line(LOG_WARN, "ranks",
                 "this rank may use 1 of %ld processors; 'mpirun --bind-to none' lets it use all", n);
}

int following(const struct ingot_engine_options *options)
{
    uint32_t rank;
    struct err err = { 0 };

    if (options_ranks(&rank) == 1)
        return -1;
    remote_want();
    warn_of_binding();
    if (rank == 0) {
        set_handler(SIGCONT, on_alarm);
        set_handler(SIGTERM, on_alarm); // a server sets its own, which does this too
        return -1;
    }
    set_handler(SIGINT, SIG_IGN);
    set_handler(SIGTERM, SIG_IGN);
    switch (engine_follow(options, &err)) {
    case FOLLOW_CLOSED:
        return STATUS_OK;
    case FOLLOW_LOST:
        return STATUS_RANK_LOST;
    default:
        return fail_status(STATUS_ERROR, "rank %u: %s", rank, err.message);
    }
}

int following_status(int status)
{
    return ranks_were_lost() ? STATUS_RANK_LOST : status;
}

static void *watch(void *arg)
{
    int pipe = (int)(intptr_t)arg;
    const struct timespec pause = { 0, 50000000 };

    while (!ranks_were_lost())
        nanosleep(&pause, NULL);
    (void)!write(pipe, "", 1);
    return NULL;
}

void following_watch(int pipe)
{
    pthread_t thread;

    if (following_any() && pthread_create(&thread, NULL, watch, (void *)(intptr_t)pipe) == 0)
        pthread_detach(thread);
}
