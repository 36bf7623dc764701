// prepare.c - see prepare.h.
#include "server/prepare.h"
#include "server/http.h"
#include "server/io.h"
#include "server/state.h"

static struct exchange *next_of(struct prepare *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->first && !p->stop)
        pthread_cond_wait(&p->work, &p->lock);
    struct exchange *x = p->stop ? NULL : p->first;
    if (x) {
        p->first = x->next;
        p->last = p->first ? p->last : &p->first;
        p->n_waiting--;
    }
    pthread_mutex_unlock(&p->lock);
    return x;
}

static void post(struct server *s, struct exchange *x)
{
    pthread_mutex_lock(&s->runner.lock);
    io_post(x->io, x);
    pthread_mutex_unlock(&s->runner.lock);
}

static void *run(void *arg)
{
    struct server *s = arg;

    for (struct exchange *x = next_of(&s->prepare); x; x = next_of(&s->prepare)) {
        exchange_answer(x);
        post(s, x);
    }
    return NULL;
}

bool prepare_add(struct server *s, struct exchange *x)
{
    struct prepare *p = &s->prepare;

    pthread_mutex_lock(&p->lock);
    bool room = !p->stop && p->n_waiting < p->most_waiting;
    if (room) {
        x->busy = true;
        x->next = NULL;
        *p->last = x;
        p->last = &x->next;
        p->n_waiting++;
        pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
    return room;
}

void prepare_create(struct server *s)
{
    struct prepare *p = &s->prepare;

    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->last = &p->first;
    p->most_waiting = s->options->limits.n_queued + PREPARE_THREADS;
}

bool prepare_start(struct server *s)
{
    struct prepare *p = &s->prepare;

    while (p->n_threads < PREPARE_THREADS && pthread_create(&p->threads[p->n_threads], NULL, run, s) == 0)
        p->n_threads++;
    return p->n_threads == PREPARE_THREADS;
}

void prepare_stop(struct server *s)
{
    struct prepare *p = &s->prepare;

    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    while (p->n_threads > 0)
        pthread_join(p->threads[--p->n_threads], NULL);
    for (struct exchange *x = p->first, *next; x; x = next) {
        next = x->next;
        post(s, x); // neither replied nor at work: its connection is closed
    }
    p->first = NULL;
    p->last = &p->first;
}

void prepare_destroy(struct server *s)
{
    pthread_cond_destroy(&s->prepare.work);
    pthread_mutex_destroy(&s->prepare.lock);
}
