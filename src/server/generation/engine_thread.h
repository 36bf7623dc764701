// engine_thread.h - the engine's thread: it steps while there is work, and wakes the readers whose answer has
// grown.
#pragma once
#include <pthread.h>
#include "base/err.h"
#include "ingot.h"

struct generation;
struct metrics;

struct engine_thread {
    pthread_mutex_t lock; // lists, counts, and what the callers of wake guard with it. Taken before the
                          // engine's own locks
    pthread_cond_t work;
    struct ingot_engine *engine;
    struct metrics *metrics;
    struct generation *live, *released; // released: to be freed by the engine's thread
    uint32_t n_active, most_active;     // places that are taken: one for each engine request that is not
                                        // finished, see generation
    uint64_t n_submitted;
    bool stop, cancels; // cancels: also what is submitted from now on
    struct err failure; // of the device: nothing runs any more
};

void engine_thread_create(struct engine_thread *t);
void engine_thread_destroy(struct engine_thread *t);
// The thread's function: returns when engine_thread_stop was called and all generations are released.
void engine_thread_run(struct engine_thread *t);
void engine_thread_stop(struct engine_thread *t);

bool engine_thread_is_full(struct engine_thread *t, uint32_t n); // no room for n more engine requests
void engine_thread_cancel_all(
    struct engine_thread *t); // and what is submitted later: a request may be on its way to the list
