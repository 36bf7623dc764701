// prefetch.h - fetches the pages of long prompts from a prefill server, while their requests wait.
//
// A generation is submitted at once, deferred, and starts when its pages are there, or as soon as they cannot
// be had: then its prompt is read here, and a line in the log says why. Threads of its own wait for the
// network, so nobody else does. Not here: HTTP; whoever starts the server brings the function that asks.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "base/err.h"
#include "base/str.h"
#include "ingot.h"

struct engine_thread;
struct generation;
struct prefetch_job;

struct prefetch_call {
    struct str question; // the body of the request
    void *arg;
    // Takes a piece of the answer's body. False: no more is wanted.
    bool (*take)(void *arg, const char *bytes, size_t n);
    bool (*goes_on)(void *arg); // asked at least once a second. False: end at once
};

struct prefetch_options {
    const char *name;      // of the prefill server, for the log
    uint32_t least_tokens; // that are missing here, for it to be worth asking
    // Sends the question and hands over the body of a good answer. False: *err says why there is no whole
    // one. Called by several threads at once.
    bool (*ask)(void *arg, const struct prefetch_call *call, struct err *err);
    void *arg;
};

enum { PREFETCH_THREADS = 4 };

struct prefetch {
    const struct prefetch_options *options; // NULL: prompts are read here
    struct engine_thread *thread;
    struct ingot_engine *engine; // NULL: not started
    struct ingot_pages_info info;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t threads[PREFETCH_THREADS];
    struct prefetch_job *first, **last;
    uint64_t rest_until_ns; // after a failure: nobody asks until then
    uint32_t n_threads;
    bool stop;
};

void prefetch_create(struct prefetch *p, const struct prefetch_options *options, struct engine_thread *t);
void prefetch_destroy(struct prefetch *p);
// The engine is there. False: its pages cannot move, or there are no threads.
bool prefetch_start(struct prefetch *p, struct ingot_engine *engine, struct err *err);
void prefetch_stop(struct prefetch *p); // ends what is under way; every generation is released

struct prefetch_prompt {
    const uint32_t *tokens; // [n_tokens]
    size_t n_tokens;
    const char *cache_salt;
    uint32_t deadline_ms; // 0: none
};
// Whether pages of this prompt should be fetched.
bool prefetch_wants(struct prefetch *p, const struct prefetch_prompt *prompt);
// Fetches them; then the generation's requests, which were deferred, start. Without memory they start now.
void prefetch_begin(struct prefetch *p, struct generation *g, const struct prefetch_prompt *prompt);
// Nobody waits for the job any more. The engine thread's lock is held.
void prefetch_leave(struct prefetch_job *job);
