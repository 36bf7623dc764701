// workers.c - see workers.h.
#include "server/http/workers.h"
#include "base/thread_pool.h"
#include "server/http/http.h"
#include "server/http/io.h"

static struct http_exchange *next_of(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stop)
        pthread_cond_wait(&w->work, &w->lock);
    struct http_exchange *x = w->stop ? NULL : w->first;
    if (x) {
        w->first = x->next;
        w->last = w->first ? w->last : &w->first;
        w->n_waiting--;
    }
    pthread_mutex_unlock(&w->lock);
    return x;
}

static void post(struct http *http, struct http_exchange *x)
{
    pthread_mutex_lock(http->lock);
    io_post(x->io, x);
    pthread_mutex_unlock(http->lock);
}

static void *run(void *arg)
{
    struct http *http = arg;

    thread_name("ingot worker");
    for (struct http_exchange *x = next_of(&http->workers); x; x = next_of(&http->workers)) {
        exchange_answer(x);
        post(http, x);
    }
    return NULL;
}

bool workers_add(struct http *http, struct http_exchange *x)
{
    struct workers *w = &http->workers;

    pthread_mutex_lock(&w->lock);
    bool room = !w->stop && w->n_waiting < w->most_waiting;
    if (room) {
        x->busy = true;
        x->next = NULL;
        *w->last = x;
        w->last = &x->next;
        w->n_waiting++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
}

void workers_create(struct http *http)
{
    struct workers *w = &http->workers;

    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    w->last = &w->first;
    w->most_waiting = http->limits->n_queued + N_WORKERS;
}

bool workers_start(struct http *http)
{
    struct workers *w = &http->workers;

    while (w->n_threads < N_WORKERS && pthread_create(&w->threads[w->n_threads], NULL, run, http) == 0)
        w->n_threads++;
    return w->n_threads == N_WORKERS;
}

void workers_stop(struct http *http)
{
    struct workers *w = &http->workers;

    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    while (w->n_threads > 0)
        pthread_join(w->threads[--w->n_threads], NULL);
    for (struct http_exchange *x = w->first, *next; x; x = next) {
        next = x->next;
        post(http, x); // it has neither reply nor response, so its connection is closed
    }
    w->first = NULL;
    w->last = &w->first;
}

void workers_destroy(struct http *http)
{
    pthread_cond_destroy(&http->workers.work);
    pthread_mutex_destroy(&http->workers.lock);
}
