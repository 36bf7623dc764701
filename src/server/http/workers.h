// workers.h - the worker threads: they parse bodies and tokenize prompts, so that neither delays a
// connection.
//
// The queue is bounded: a request in it has its body in memory and does not count in the engine's queue yet.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include "base/lang.h"

struct http;
struct http_exchange;

enum { N_WORKERS = 2 };

struct workers {
    pthread_mutex_t lock; // http->lock may be taken inside
    pthread_cond_t work;
    pthread_t threads[N_WORKERS];
    struct http_exchange *first, **last;
    u32 n_threads, n_waiting, most_waiting;
    bool stop;
};

void workers_create(struct http *http);
void workers_destroy(struct http *http);
bool workers_start(struct http *http);
void workers_stop(struct http *http); // waiting requests are dropped, later ones rejected
// Queues the exchange: a worker calls exchange_answer and then posts it to its I/O thread. False: the queue
// is full.
bool workers_add(struct http *http, struct http_exchange *x);
