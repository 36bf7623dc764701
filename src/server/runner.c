// runner.c - see runner.h.
#include "server/runner.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/metrics.h"

void runner_create(struct runner *r)
{
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
}

void runner_destroy(struct runner *r)
{
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
}

static void list_add(struct generation **list, struct generation *g)
{
    g->before = NULL;
    g->next = *list;
    if (g->next)
        g->next->before = g;
    *list = g;
}

static void list_remove(struct generation **list, struct generation *g)
{
    if (g->before)
        g->before->next = g->next;
    else
        *list = g->next;
    if (g->next)
        g->next->before = g->before;
}

// Engine's thread, lock not held: frees wait for no step here, because the steps are run by this thread.
static void free_generations(struct generation *g)
{
    for (struct generation *next; g; g = next) {
        next = g->next;
        for (uint32_t i = 0; i < g->n_choices; i++)
            ingot_request_free(g->choices[i].request);
        mem_free(g->choices);
        mem_free(g);
    }
}

static uint32_t n_places(const struct generation *g)
{
    return g->n_running < g->most_places ? g->n_running : g->most_places;
}

// Lock held. Looks at what the last step gave one choice; true when it is something new.
static bool choice_update(struct runner *r, struct generation *g, struct choice *c, uint64_t now)
{
    bool done;
    size_t n = c->finished ? c->n_seen : ingot_request_n_events(c->request, &done);

    if (n == c->n_seen)
        return false;
    if (c->last_ns && !done)
        metrics_observe(r->metrics, METRIC_INTER_TOKEN, (double)(now - c->last_ns) / 1e9);
    c->n_seen = n;
    c->last_ns = now;
    if (done) {
        uint32_t before = n_places(g);
        c->finished = true;
        g->n_running--;
        r->n_active -= before - n_places(g);
    }
    return true;
}

// Everybody's news first and the waking after it: who wakes asks for the same locks.
static void wake_readers(struct runner *r)
{
    uint64_t now = clock_ns();

    pthread_mutex_lock(&r->lock);
    for (struct generation *g = r->live; g; g = g->next) {
        bool news = false;
        for (uint32_t i = 0; i < g->n_choices; i++)
            news |= choice_update(r, g, &g->choices[i], now);
        g->has_news = news && (!g->at_end_only || g->n_running == 0);
    }
    for (struct generation *g = r->live; g; g = g->next)
        if (g->has_news)
            g->wake(g->arg);
    pthread_mutex_unlock(&r->lock);
}

void runner_run(struct runner *r)
{
    uint64_t n_known = 0;
    bool busy = false, stop = false;

    while (!stop) {
        pthread_mutex_lock(&r->lock);
        while (!busy && !r->released && n_known == r->n_submitted && !(r->stop && !r->live))
            pthread_cond_wait(&r->work, &r->lock);
        struct generation *released = r->released;
        r->released = NULL;
        n_known = r->n_submitted;
        stop = r->stop && !r->live && !released;
        pthread_mutex_unlock(&r->lock);
        free_generations(released);
        struct err err = { 0 };
        if (!stop && !ingot_step(r->engine, &busy, (struct ingot_error *)&err) &&
            r->failure.code == ERR_NONE) {
            pthread_mutex_lock(&r->lock);
            r->failure = err;
            pthread_mutex_unlock(&r->lock);
        }
        wake_readers(r);
    }
}

void runner_stop(struct runner *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

bool runner_is_full(struct runner *r, uint32_t n)
{
    pthread_mutex_lock(&r->lock);
    bool full = r->n_active + n > r->most_active;
    pthread_mutex_unlock(&r->lock);
    return full;
}

static bool reserve(struct runner *r, uint32_t n)
{
    pthread_mutex_lock(&r->lock);
    bool ok = r->n_active + n <= r->most_active;
    if (ok)
        r->n_active += n;
    pthread_mutex_unlock(&r->lock);
    return ok;
}

static uint32_t places_of(const struct generation_options *o)
{
    return o->most_places && o->most_places < o->n ? o->most_places : o->n;
}

static struct generation *generation_create(struct runner *r, const struct generation_options *o)
{
    struct generation *g = mem_alloc(sizeof *g);
    struct choice *choices = g ? mem_alloc_array(o->n, sizeof *choices) : NULL;

    if (!choices) {
        mem_free(g);
        return NULL;
    }
    *g = (struct generation){ .runner = r,
                              .choices = choices,
                              .n_running = o->n,
                              .most_places = places_of(o),
                              .at_end_only = o->at_end_only,
                              .submitted_ns = clock_ns(),
                              .wake = o->wake,
                              .arg = o->arg };
    return g;
}

// Gives up a generation that was never in the list: its requests may already be running.
static void abandon(struct runner *r, struct generation *g, uint32_t n_reserved)
{
    pthread_mutex_lock(&r->lock);
    r->n_active -= n_reserved;
    for (uint32_t i = 0; g && i < g->n_choices; i++)
        ingot_cancel(g->choices[i].request);
    if (g)
        list_add(&r->released, g);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

static void cancel(struct generation *g)
{
    if (g->cancelled)
        return;
    g->cancelled = true;
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].finished)
            ingot_cancel(g->choices[i].request);
    g->runner->n_submitted++; // one more step, so that the cancelled requests end
    pthread_cond_signal(&g->runner->work);
}

struct generation *runner_submit(struct runner *r, const struct generation_options *o, struct err *err)
{
    if (!reserve(r, places_of(o))) {
        *err = (struct err){ .code = ERR_LIMIT };
        return NULL;
    }
    struct generation *g = generation_create(r, o);
    bool ok = g || err_memory(err, "a generation");
    while (ok && g->n_choices < o->n) {
        struct ingot_request *request =
            ingot_submit(r->engine, &o->requests[g->n_choices], (struct ingot_error *)err);
        ok = request != NULL;
        if (ok)
            g->choices[g->n_choices++].request = request;
    }
    if (!ok) {
        abandon(r, g, places_of(o));
        return NULL;
    }
    pthread_mutex_lock(&r->lock);
    list_add(&r->live, g);
    r->n_submitted++;
    if (r->cancels)
        cancel(g);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
    return g;
}

void runner_cancel_all(struct runner *r)
{
    pthread_mutex_lock(&r->lock);
    r->cancels = true;
    for (struct generation *g = r->live; g; g = g->next)
        cancel(g);
    pthread_mutex_unlock(&r->lock);
}

void generation_release(struct generation *g)
{
    struct runner *r = g->runner;

    pthread_mutex_lock(&r->lock);
    cancel(g);
    r->n_active -= n_places(g);
    list_remove(&r->live, g);
    list_add(&r->released, g);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

bool generation_take(struct generation *g, uint32_t *choice, struct ingot_event *event)
{
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        if (c->done || !ingot_poll(c->request, event))
            continue;
        c->n_taken++;
        c->done = event->done;
        if (event->done)
            c->result = *event->result;
        *choice = i;
        return true;
    }
    return false;
}

bool generation_is_ready(const struct generation *g)
{
    bool any = false;

    if (g->at_end_only)
        return g->n_running == 0;
    for (uint32_t i = 0; i < g->n_choices; i++)
        any |= g->choices[i].n_seen > g->choices[i].n_taken;
    return any;
}

bool generation_is_done(const struct generation *g)
{
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].done)
            return false;
    return true;
}
