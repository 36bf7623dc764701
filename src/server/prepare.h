// prepare.h - the threads that read bodies and make prompts into tokens, so that neither holds up a
// connection.
//
// Bounded: what waits here has its body in memory and is no part of the engine's queue yet.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include "base/lang.h"

struct server;
struct exchange;

enum { PREPARE_THREADS = 2 };

struct prepare {
    pthread_mutex_t lock; // the runner's may be taken inside
    pthread_cond_t work;
    pthread_t threads[PREPARE_THREADS];
    struct exchange *first, **last;
    u32 n_threads, n_waiting, most_waiting;
    bool stop;
};

void prepare_create(struct server *server);
void prepare_destroy(struct server *server);
bool prepare_start(struct server *server);
void prepare_stop(struct server *server); // what still waits is dropped, what comes later refused
// The exchange is answered by exchange_answer in another thread, and then posted to its own. False: too many
// wait.
bool prepare_add(struct server *server, struct exchange *x);
