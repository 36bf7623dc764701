// runner.h - the engine's thread: it steps while there is work, and wakes the readers whose answer has grown.
//
// A generation is what one HTTP request asked for: one or more engine requests. HTTP threads submit it, take
// its events, and let it go; freeing an engine request waits for a step, so that is left to the engine's
// thread. Nobody polls: readers sleep until woken.
#pragma once
#include <pthread.h>
#include "base/str.h"
#include "ingot.h"

struct runner;
struct metrics;

struct choice {
    struct ingot_request *request;
    size_t n_seen;    // events the engine's thread knows of
    size_t n_taken;   // events the reader has taken
    uint64_t last_ns; // when the newest event came
    bool finished;    // in the engine
    bool done;        // the reader has the last event
    struct ingot_result result;
};

struct generation {
    struct generation *next, *before;
    struct runner *runner;
    struct choice *choices;
    uint32_t n_choices, n_running;
    uint32_t most_places; // that it takes in the queue at once
    uint64_t submitted_ns;
    bool at_end_only, cancelled, has_news;
    void (*wake)(void *arg); // with the runner's lock held; must not block
    void *arg;
};

struct runner {
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

void runner_create(struct runner *r);
void runner_destroy(struct runner *r);
// The engine's thread: returns when runner_stop was called and all generations are released.
void runner_run(struct runner *r);
void runner_stop(struct runner *r);

bool runner_is_full(struct runner *r, uint32_t n);

struct generation_options {
    const struct ingot_request_options *requests;
    uint32_t n;
    uint32_t most_places; // 0: one for each
    bool at_end_only;     // wake when everything is finished, not for every piece
    void (*wake)(void *arg);
    void *arg;
};
// NULL with ERR_LIMIT and an empty message when the queue is full; else with what is wrong.
struct generation *runner_submit(struct runner *r, const struct generation_options *options, struct err *err);
void generation_release(struct generation *g); // the pointer is gone; what runs is cancelled
// Takes the next event of any choice. False: none now. Pointers live until the next call for the same choice.
bool generation_take(struct generation *g, uint32_t *choice, struct ingot_event *event);
// Lock held: whether something can be taken (with at_end_only: everything).
bool generation_is_ready(const struct generation *g);
bool generation_is_done(const struct generation *g); // every choice's last event was taken
void runner_cancel_all(
    struct runner *r); // and what is submitted after it: a request may be under way to the list
