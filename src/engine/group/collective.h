// collective.h - all-reduce and all-gather of ranks: by their devices' communicator, else in the host's
// memory.
//
// With a communicator both are queued on each rank's device, and no thread waits for another.
// In the host's memory a sum is ((p0 + p1) + p2) + ..., in the order of the ranks whoever adds, so that all
// ranks hold the same bits, from run to run. Every rank adds up its share of the numbers and writes it to
// all. Memory that the host does not see goes through a copy.
#pragma once
#include "engine/stage/stage.h"

struct communicator;
struct thread_pool;

struct collective {
    struct stage *const *ranks; // [n], borrowed
    uint32_t n;
    struct thread_pool *threads;       // whose runs are steps, a thread a rank; borrowed
    struct communicator *communicator; // borrowed; NULL: in the host's memory, by what follows
    // Of each rank: its copies of what the host does not see, or NULL; where its numbers of this call are.
    float **copies, **parts; // [n]
    bool *failed;            // [n], before this call: written ahead of its first barrier, read behind that
    float *whole_copy;       // of the first rank's gathered logits; or NULL
    float *whole;
};

struct collective_call {
    uint32_t rank;
    const struct tape *tape;
    const struct command *border;
    const struct step *step;
};

// x: ranks, n, threads and communicator are set.
bool collective_create(struct collective *x, struct err *err);
void collective_release(struct collective *x); // zeroed is allowed
void collective_begin(struct collective *x);   // a step, on one thread
// By the rank's thread, all of them at the same border. *ok: whether the rank has come so far, and then
// whether its own part went well. False: a rank came with an error, and all ranks leave the step here.
bool collective_run(struct collective *x, const struct collective_call *at, bool *ok, struct err *err);
// False: the devices' exchange has ended by a failure; what they have computed since is of no use.
bool collective_check(const struct collective *x, struct err *err);
// A rank's device has failed: what the others' devices wait for ends. Any thread.
void collective_stop(struct collective *x);
