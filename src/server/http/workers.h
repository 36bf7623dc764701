// workers.h - the threads that read bodies and make prompts into tokens, so that neither holds up a
// connection.
//
// Bounded: a request that waits here has its body in memory and is no part of the engine's queue yet.
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
void workers_stop(struct http *http); // requests that still wait are dropped, later ones refused
// A worker calls exchange_answer and then posts the exchange to its I/O thread. False: too many wait.
bool workers_add(struct http *http, struct http_exchange *x);
