// generation.h - what one API request generates: one or more engine requests that are submitted together and
// read together.
//
// HTTP threads submit a generation, take its events and release it. Freeing an engine request waits for a
// step, so the engine's thread does that. Nobody polls: a reader sleeps until it is woken.
#pragma once
#include "base/err.h"
#include "ingot.h"

struct engine_thread;
struct prefetch_job;

struct generation_choice {
    struct ingot_request *request;
    size_t n_seen;    // events that the engine's thread has seen
    size_t n_taken;   // events the reader has taken
    uint64_t last_ns; // when the newest event came
    bool finished;    // in the engine
    bool done;        // the reader has the last event
    struct ingot_result result;
};

struct generation {
    struct generation *next, *before; // in one of the thread's lists
    struct engine_thread *thread;
    struct generation_choice *choices; // [n_choices]
    uint32_t n_choices, n_running;
    uint32_t most_places; // in the queue, at one time
    uint64_t submitted_ns;
    bool at_end_only, cancelled, has_news;
    void (*wake)(void *arg); // with the thread's lock held; must not block
    void *arg;
    // Pages from a prefill server: what brings them, while it does; whether that was asked, and what it
    // brought. Written before the requests start.
    struct prefetch_job *job;
    bool asked;
    uint32_t n_fetched; // tokens
    double fetch_ms;
};

struct generation_options {
    const struct ingot_request_options *requests;
    uint32_t n;
    uint32_t most_places; // 0: one for each
    bool at_end_only;     // wake when all choices are finished, not for every event
    void (*wake)(void *arg);
    void *arg;
};
// NULL: see err; ERR_LIMIT with an empty message is a full queue.
struct generation *generation_submit(struct engine_thread *t, const struct generation_options *options,
                                     struct err *err);
void generation_release(struct generation *g); // cancels what still runs, and takes the pointer
// Takes the next event of any choice. False: none now. Pointers live until the next call for the same choice.
bool generation_take(struct generation *g, uint32_t *choice, struct ingot_event *event);
// Lock held. True: there is an event to take; with at_end_only: all events are there.
bool generation_is_ready(const struct generation *g);
bool generation_is_done(const struct generation *g); // every choice's last event was taken

// ---- for the engine's thread

// Lock held. Notes what the last step added. True: there is something new.
bool generation_update(struct generation *g, uint64_t now_ns);
void generation_cancel(struct generation *g);    // lock held
void generation_free_list(struct generation *g); // lock not held; g may be NULL
