// engine_thread.c - see engine_thread.h.
#include "server/generation/engine_thread.h"
#include "base/clock.h"
#include "server/generation/generation.h"

void engine_thread_create(struct engine_thread *t)
{
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
}

void engine_thread_destroy(struct engine_thread *t)
{
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
}

// All generations are updated before any reader is woken: a reader that wakes asks for the same lock.
static void wake_readers(struct engine_thread *t)
{
    uint64_t now = clock_ns();

    pthread_mutex_lock(&t->lock);
    for (struct generation *g = t->live; g; g = g->next) {
        bool news = generation_update(g, now);
        g->has_news = news && (!g->at_end_only || g->n_running == 0);
    }
    for (struct generation *g = t->live; g; g = g->next)
        if (g->has_news)
            g->wake(g->arg);
    pthread_mutex_unlock(&t->lock);
}

void engine_thread_run(struct engine_thread *t)
{
    uint64_t n_known = 0;
    bool busy = false, stop = false;

    while (!stop) {
        pthread_mutex_lock(&t->lock);
        while (!busy && !t->released && n_known == t->n_submitted && !(t->stop && !t->live))
            pthread_cond_wait(&t->work, &t->lock);
        struct generation *released = t->released;
        t->released = NULL;
        n_known = t->n_submitted;
        stop = t->stop && !t->live && !released;
        pthread_mutex_unlock(&t->lock);
        generation_free_list(released);
        struct err err = { 0 };
        if (!stop && !ingot_step(t->engine, &busy, (struct ingot_error *)&err) &&
            t->failure.code == ERR_NONE) {
            pthread_mutex_lock(&t->lock);
            t->failure = err;
            pthread_mutex_unlock(&t->lock);
        }
        wake_readers(t);
    }
}

void engine_thread_stop(struct engine_thread *t)
{
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

bool engine_thread_is_full(struct engine_thread *t, uint32_t n)
{
    pthread_mutex_lock(&t->lock);
    bool full = t->n_active + n > t->most_active;
    pthread_mutex_unlock(&t->lock);
    return full;
}

void engine_thread_cancel_all(struct engine_thread *t)
{
    pthread_mutex_lock(&t->lock);
    t->cancels = true;
    for (struct generation *g = t->live; g; g = g->next)
        generation_cancel(g);
    pthread_mutex_unlock(&t->lock);
}
