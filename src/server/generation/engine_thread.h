// engine_thread.h - the engine's thread: it steps while there is work, and wakes the readers of new events.
#pragma once
#include <pthread.h>
#include "base/err.h"
#include "ingot.h"

struct generation;
struct metrics;

struct engine_thread {
    pthread_mutex_t lock; // guards lists, counts, and what the callers of wake guard with it; taken before
                          // the engine's own locks
    pthread_cond_t work;
    struct ingot_engine *engine;
    struct metrics *metrics;
    struct generation *live, *released; // released: to be freed by the engine's thread
    uint32_t n_active, most_active;     // places taken in the queue: one for each unfinished engine request,
                                        // see generation
    uint64_t n_submitted;
    bool stop, cancels; // cancels: new generations are cancelled too
    struct err failure; // of the device: nothing runs any more
};

void engine_thread_create(struct engine_thread *t);
void engine_thread_destroy(struct engine_thread *t);
// The thread's function: returns when engine_thread_stop was called and all generations are released.
void engine_thread_run(struct engine_thread *t);
void engine_thread_stop(struct engine_thread *t);

bool engine_thread_is_full(struct engine_thread *t, uint32_t n); // no room for n more engine requests
// Also cancels what is submitted later: a request may be on its way to the list.
void engine_thread_cancel_all(struct engine_thread *t);
