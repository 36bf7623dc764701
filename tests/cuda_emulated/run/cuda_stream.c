// cuda_stream.c - see cuda_stream.h.
#include "cuda_stream.h"
#include <pthread.h>
#include <stdlib.h>

enum { MOST_JOBS = 256, MOST_STREAMS = 64 };

struct cuda_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *jobs[MOST_JOBS]; // a ring
    unsigned first, n;     // of those that are not over
    bool ends;
    int result;
    void (*begin)(void), (*end)(void);
    int (*run)(void *job);
};

static struct cuda_stream *streams[MOST_STREAMS];

static void *work(void *arg)
{
    struct cuda_stream *s = arg;
    bool begun = false;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->n == 0 && !s->ends)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->n == 0)
            break;
        void *job = s->jobs[s->first];
        pthread_mutex_unlock(&s->lock);
        if (!begun)
            s->begin();
        begun = true;
        int result = s->run(job);
        pthread_mutex_lock(&s->lock);
        s->result = s->result ? s->result : result;
        s->first = (s->first + 1) % MOST_JOBS;
        s->n--;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    s->end();
    return NULL;
}

struct cuda_stream *cuda_stream_create(void (*begin)(void), int (*run)(void *job), void (*end)(void))
{
    struct cuda_stream *s = calloc(1, sizeof *s);

    if (!s)
        abort();
    s->begin = begin;
    s->run = run;
    s->end = end;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s) != 0)
        abort();
    for (unsigned i = 0; i < MOST_STREAMS; i++)
        if (!streams[i]) {
            streams[i] = s;
            return s;
        }
    abort();
}

void cuda_stream_destroy(struct cuda_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < MOST_STREAMS; i++)
        if (streams[i] == s)
            streams[i] = NULL;
    free(s);
}

void cuda_stream_add(struct cuda_stream *s, void *job)
{
    pthread_mutex_lock(&s->lock);
    while (s->n == MOST_JOBS)
        pthread_cond_wait(&s->changed, &s->lock);
    s->jobs[(s->first + s->n++) % MOST_JOBS] = job;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int cuda_stream_wait(struct cuda_stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->n > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    int result = s->result;
    s->result = 0;
    pthread_mutex_unlock(&s->lock);
    return result;
}

void cuda_streams_wait(void)
{
    for (unsigned i = 0; i < MOST_STREAMS; i++) {
        if (!streams[i])
            continue;
        pthread_mutex_lock(&streams[i]->lock);
        while (streams[i]->n > 0)
            pthread_cond_wait(&streams[i]->changed, &streams[i]->lock);
        pthread_mutex_unlock(&streams[i]->lock);
    }
}
