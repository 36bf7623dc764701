// generation.c - see generation.h.
#include "server/generation/generation.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/generation/engine_thread.h"
#include "server/generation/metrics.h"
#include "server/generation/prefetch.h"

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

static uint32_t n_places(const struct generation *g)
{
    return g->n_running < g->most_places ? g->n_running : g->most_places;
}

static bool reserve(struct engine_thread *t, uint32_t n)
{
    pthread_mutex_lock(&t->lock);
    bool ok = t->n_active + n <= t->most_active;
    if (ok)
        t->n_active += n;
    pthread_mutex_unlock(&t->lock);
    return ok;
}

static uint32_t places_of(const struct generation_options *o)
{
    return o->most_places && o->most_places < o->n ? o->most_places : o->n;
}

static struct generation *generation_create(struct engine_thread *t, const struct generation_options *o)
{
    struct generation *g = mem_alloc(sizeof *g);
    struct generation_choice *choices = g ? mem_alloc_array(o->n, sizeof *choices) : NULL;

    if (!choices) {
        mem_free(g);
        return NULL;
    }
    *g = (struct generation){ .thread = t,
                              .choices = choices,
                              .n_running = o->n,
                              .most_places = places_of(o),
                              .at_end_only = o->at_end_only,
                              .submitted_ns = clock_ns(),
                              .wake = o->wake,
                              .arg = o->arg };
    return g;
}

// Releases a generation that was never in the list. Its requests may already be running.
static void abandon(struct engine_thread *t, struct generation *g, uint32_t n_reserved)
{
    pthread_mutex_lock(&t->lock);
    t->n_active -= n_reserved;
    for (uint32_t i = 0; g && i < g->n_choices; i++)
        ingot_cancel(g->choices[i].request);
    if (g)
        list_add(&t->released, g);
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

void generation_cancel(struct generation *g)
{
    if (g->cancelled)
        return;
    g->cancelled = true;
    if (g->job)
        prefetch_leave(g->job);
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (!g->choices[i].finished)
            ingot_cancel(g->choices[i].request);
    g->thread->n_submitted++; // one more step, so that the cancelled requests end
    pthread_cond_signal(&g->thread->work);
}

struct generation *generation_submit(struct engine_thread *t, const struct generation_options *o,
                                     struct err *err)
{
    if (!reserve(t, places_of(o))) {
        *err = (struct err){ .code = ERR_LIMIT };
        return NULL;
    }
    struct generation *g = generation_create(t, o);
    bool ok = g || err_memory(err, "a generation");
    while (ok && g->n_choices < o->n) {
        struct ingot_request *request =
            ingot_submit(t->engine, &o->requests[g->n_choices], (struct ingot_error *)err);
        ok = request != NULL;
        if (ok)
            g->choices[g->n_choices++].request = request;
    }
    if (!ok) {
        abandon(t, g, places_of(o));
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    list_add(&t->live, g);
    t->n_submitted++;
    if (t->cancels)
        generation_cancel(g);
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    return g;
}

void generation_release(struct generation *g)
{
    struct engine_thread *t = g->thread;

    pthread_mutex_lock(&t->lock);
    generation_cancel(g);
    t->n_active -= n_places(g);
    list_remove(&t->live, g);
    list_add(&t->released, g);
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

bool generation_take(struct generation *g, uint32_t *choice, struct ingot_event *event)
{
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct generation_choice *c = &g->choices[i];
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

// ---- for the engine's thread

// Notes what the last step added to one choice. True: there is something new.
static bool choice_update(struct generation *g, struct generation_choice *c, uint64_t now)
{
    struct engine_thread *t = g->thread;
    bool done;
    size_t n = c->finished ? c->n_seen : ingot_request_n_events(c->request, &done);

    if (n == c->n_seen)
        return false;
    if (c->last_ns && !done)
        metrics_observe(t->metrics, METRIC_INTER_TOKEN, (double)(now - c->last_ns) / 1e9);
    c->n_seen = n;
    c->last_ns = now;
    if (done) {
        uint32_t before = n_places(g);
        c->finished = true;
        g->n_running--;
        t->n_active -= before - n_places(g);
    }
    return true;
}

bool generation_update(struct generation *g, uint64_t now_ns)
{
    bool news = false;

    for (uint32_t i = 0; i < g->n_choices; i++)
        news |= choice_update(g, &g->choices[i], now_ns);
    return news;
}

// ingot_request_free waits for no step here: this thread runs the steps.
void generation_free_list(struct generation *g)
{
    for (struct generation *next; g; g = next) {
        next = g->next;
        for (uint32_t i = 0; i < g->n_choices; i++)
            ingot_request_free(g->choices[i].request);
        mem_free(g->choices);
        mem_free(g);
    }
}
