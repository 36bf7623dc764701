// wait.c - see wait.h.
#include "engine/wait.h"
#include "base/clock.h"

enum { RETRY_NS = 1000000 };

#if defined(__APPLE__) // condition variables have no monotonic clock there, but a relative timeout
static void sleep_until(struct engine *e, uint64_t until_ns)
{
    uint64_t now = clock_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec t = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };

    pthread_cond_timedwait_relative_np(&e->news, &e->state, &t);
}

void wait_create(struct engine *e)
{
    pthread_cond_init(&e->news, NULL);
}
#else
static void sleep_until(struct engine *e, uint64_t until_ns)
{
    struct timespec t = { (time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u) };

    pthread_cond_timedwait(&e->news, &e->state, &t);
}

void wait_create(struct engine *e)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&e->news, &attributes);
    pthread_condattr_destroy(&attributes);
}
#endif

void wait_destroy(struct engine *e)
{
    pthread_cond_destroy(&e->news);
}

void wait_sleep(struct engine *e, uint64_t ns)
{
    sleep_until(e, clock_ns() + ns);
}

void wait_wake(struct engine *e)
{
    pthread_cond_broadcast(&e->news);
}

void wait_turn_begin(struct engine *e)
{
    pthread_mutex_lock(&e->state);
    e->n_turns++;
    pthread_mutex_unlock(&e->state);
    pthread_mutex_lock(&e->stepping);
    pthread_mutex_lock(&e->state);
    e->n_turns--;
    wait_wake(e);
}

void wait_turn_end(struct engine *e)
{
    pthread_mutex_unlock(&e->state);
    pthread_mutex_unlock(&e->stepping);
}

void wait_for_turns(struct engine *e)
{
    pthread_mutex_lock(&e->state);
    while (e->n_turns > 0)
        pthread_cond_wait(&e->news, &e->state);
    pthread_mutex_unlock(&e->state);
}

static bool has_event(const struct engine *e, const struct request *r)
{
    return r ? r->n_taken < r->n_events : e->n_untaken > 0;
}

static bool has_work(const struct engine *e)
{
    const struct request *r = e->first;

    while (r && request_is_idle(r))
        r = r->next;
    return r != NULL;
}

// Runs a step. The state lock is held on entry and return, and released in between. is_stepping is set at
// once, so that one waiting thread alone runs the step. False: no request can run, because the caller holds
// the sequence or the pages that each of them needs.
static bool make_step(struct engine *e)
{
    uint64_t n_rows = e->n_rows;
    bool busy;

    e->is_stepping = true;
    pthread_mutex_unlock(&e->state);
    engine_step(e, &busy, NULL);
    pthread_mutex_lock(&e->state);
    return e->n_rows > n_rows;
}

bool wait_for_event(struct engine *e, const struct request *r, uint32_t timeout_ms)
{
    uint64_t until = timeout_ms == UINT32_MAX ? UINT64_MAX / 2 : clock_ns() + timeout_ms * 1000000ull;

    pthread_mutex_lock(&e->state);
    while (!has_event(e, r) && !(r && r->state == REQUEST_DONE) && clock_ns() < until) {
        if (e->is_stepping || !has_work(e))
            sleep_until(e, until);
        else if (!make_step(e) && !has_event(e, r))
            sleep_until(e, clock_ns() + RETRY_NS);
    }
    bool any = has_event(e, r);
    pthread_mutex_unlock(&e->state);
    return any;
}
