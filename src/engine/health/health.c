// health.c - see health.h.
#include "engine/health/health.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/flight/flight_run.h"
#include "engine/session.h"
#include "engine/stage/batch.h"

static const uint64_t IDLE_NS = 60000000000;

static bool begin_one(struct device_check *c, struct device *d, struct err *err)
{
    return !d || (device_check_create(c, d, err) && device_check_run(c, err));
}

bool health_begin(struct engine *e, struct err *err)
{
    const struct devices *d = &e->loaded->devices;

    for (uint32_t i = 0; i < d->n; i++)
        if (!begin_one(&e->health.checks[i], d->at[i], err))
            return false;
    e->health.seen_ns = pace_clock(&e->pace);
    return begin_one(&e->health.checks[MAX_DEVICES], d->experts, err);
}

void health_end(struct engine *e)
{
    for (uint32_t i = 0; i <= MAX_DEVICES; i++)
        device_check_release(&e->health.checks[i]);
}

bool health_is_due(const struct engine *e)
{
    bool idle = pace_clock(&e->pace) - e->health.seen_ns > IDLE_NS;

    return !e->failed && !e->is_ahead && e->flight.n == 0 && e->batch->n_rows > 0 &&
           (idle || e->health.in_doubt);
}

bool health_check(struct engine *e, struct err *err)
{
    for (uint32_t i = 0; i <= MAX_DEVICES; i++)
        if (e->health.checks[i].device && !device_check_run(&e->health.checks[i], err))
            return false;
    e->health.in_doubt = false;
    return true;
}

// ---- a device is lost

// "cuda:1: a step failed: ..." is about cuda:1.
static bool is_named(const struct device *d, const char *message)
{
    size_t n = strlen(d->name);

    return strncmp(message, d->name, n) == 0 && (message[n] == ':' || message[n] == ' ');
}

// Those that answer wrong or not at all; where all answer, those that the failure names. Returns how many.
static uint32_t find_lost(struct engine *e, bool lost[MAX_DEVICES])
{
    const struct devices *d = &e->loaded->devices;
    uint32_t n_wrong = 0, n_named = 0;
    struct err err;

    for (uint32_t i = 0; i < d->n; i++)
        n_wrong += lost[i] = !device_check_run(&e->health.checks[i], &err);
    for (uint32_t i = 0; i < d->n && n_wrong == 0; i++)
        n_named += lost[i] = is_named(d->at[i], e->failure.message);
    return n_wrong + n_named;
}

static void close_lost(struct engine *e, const bool lost[MAX_DEVICES])
{
    struct devices *d = &((struct engine_loaded *)(uintptr_t)e->loaded)->devices;
    struct device_check *checks = e->health.checks;
    uint32_t n = 0;
    size_t at = strlen(e->health.lost);

    for (uint32_t i = 0; i < d->n; i++) {
        struct device_check check = checks[i];
        checks[i] = (struct device_check){ 0 };
        if (!lost[i]) {
            checks[n] = check;
            d->at[n++] = d->at[i];
            continue;
        }
        if (at < sizeof e->health.lost)
            at += (size_t)snprintf(e->health.lost + at, sizeof e->health.lost - at, "%s%s", at ? ", " : "",
                                   d->at[i]->name);
        device_check_release(&check);
        device_close(d->at[i]);
    }
    d->n = n;
}

// Every request has ended. No page holds anything any more.
static bool empty_engine(struct engine *e, struct err *err)
{
    batch_clear(e->batch);
    batch_clear(e->ahead);
    e->is_ahead = false;
    if (!engine_renew_pages(e, err))
        return false;
    for (struct ingot_session *s = e->sessions; s; s = s->next)
        session_restart(s);
    return true;
}

static bool can_recover(const struct engine *e)
{
    return e->failure.code == ERR_DEVICE && e->loaded->devices.n > 1 && !e->loaded->devices.experts &&
           !e->tiles && !e->loaded->remote && !e->loaded->n_parts && !e->closed && !e->health.gave_up;
}

void health_recover(struct engine *e)
{
    bool lost[MAX_DEVICES] = { false };
    struct err err = { 0 };

    flight_close(e); // its threads use the devices
    bool ok = can_recover(e);
    uint32_t n_lost = ok ? find_lost(e, lost) : 0;
    e->health.gave_up = true; // until this went well
    if (!ok || n_lost == 0 || n_lost == e->loaded->devices.n)
        return;
    while (e->n_bringing > 0) // pages to the stages' devices
        pthread_cond_wait(&e->news, &e->state);
    engine_release_stages(e);
    close_lost(e, lost);
    load_watch_begin(&e->watch, &e->loaded->devices);
    ok = empty_engine(e, &err);
    pthread_mutex_unlock(&e->state);
    ok = ok && engine_reload(e, &err);
    pthread_mutex_lock(&e->state);
    load_watch_loaded(&e->watch, &e->loaded->devices);
    if (!ok) {
        struct err first = e->failure;
        err_set(&e->failure, ERR_DEVICE, "%.200s; without it there is no way on: %.200s", first.message,
                err.message);
        log_line(LOG_ERROR, "engine", "%s", e->failure.message);
        return;
    }
    shown_update(e);
    e->failed = e->health.gave_up = e->health.in_doubt = false;
    e->health.seen_ns = pace_clock(&e->pace);
    log_line(LOG_WARN, "engine", "%s is lost; the model is on %s now, and new requests are served",
             e->health.lost, e->shown.device);
}
