// ranks.h - the processes that mpirun started as one group: messages between them, and who is still there.
//
// One thread of its own makes all calls of MPI, through the plug-in (mpi_plugin.h). Others post messages and
// take them. Rank 0 and each other rank hear each other at least every second (beats), so that a silent one
// is named after 10 s and given up after 15 s; one on the same machine whose process is gone is found within
// 0.2 s. Then the group is lost, on rank 0 and by its word on the others: no call waits any more.
//
// What comes is checked before it is taken: its length against the largest that was announced, its kind, and
// whether that kind may come from there. Bodies are the receiver's to check. MPI's traffic is not encrypted.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum rank_kind {
    RANK_NAME,    // between rank 0 and the others: process and host
    RANK_BEAT,    // the same: still here
    RANK_FAIL,    // the same: text of an error that ends the group
    RANK_HELLO,   // to rank 0: one's part in an agreement (agree.h)
    RANK_VERDICT, // from rank 0: what came of it
    RANK_STEP,    // to the next rank: a step and its activations
    RANK_RESULT,  // from the last rank to rank 0
    RANK_CLOSE,   // round the ring: the engine is closed
    RANK_JOIN,    // round the ring: what the ranks' devices join by
};
#define RANK_BIT(kind) (1u << (kind))

struct ranks;

struct rank_message {
    struct rank_message *next;
    uint32_t peer, kind;    // peer: it came from there, or goes there
    size_t n_bytes;         // of the body
    unsigned char *body;    // aligned for any number
    size_t capacity, n_all; // with what precedes the body
    unsigned char *all;
    int slot;
};

struct rank_traffic { // over one link, steps and results alone
    uint64_t n_sent, sent_bytes, n_received, received_bytes;
    uint32_t most_unsent; // messages under way at once
};

// Starts MPI: once in a process. Ends with an error where the plug-in or MPI is not there. on_lost: called
// once by the group's own thread or that of ranks_fail, when it is lost.
struct ranks *ranks_open(void (*on_lost)(void), struct err *err);
// Waits until all that was posted is sent and all ranks close, unless the group is lost. NULL is allowed.
void ranks_close(struct ranks *g);
uint32_t ranks_rank(const struct ranks *g);
uint32_t ranks_n(const struct ranks *g);
// Bodies up to this size are taken from now on; before, those of an agreement.
void ranks_limit(struct ranks *g, size_t body_bytes);
// "rank 1 (host)".
enum { RANK_NAME_BYTES = 96 };
void ranks_name(struct ranks *g, uint32_t rank, char to[RANK_NAME_BYTES]);

// A message to fill. Its memory is used again: nothing is allocated once as many as are under way were made.
struct rank_message *ranks_room(struct ranks *g, enum rank_kind kind, size_t body_bytes, struct err *err);
void ranks_post(struct ranks *g, uint32_t to, struct rank_message *m); // takes it over
// The oldest message of these kinds (RANK_BIT); waits. The caller posts it again or frees it. NULL: the group
// is lost, *err says how.
struct rank_message *ranks_take(struct ranks *g, uint32_t kinds, struct err *err);
void ranks_free(struct ranks *g, struct rank_message *m); // NULL is allowed
// Ends the group: every rank gets this error.
void ranks_fail(struct ranks *g, const struct err *why);
bool ranks_is_lost(struct ranks *g, struct err *why); // why may be NULL
struct rank_traffic ranks_traffic(struct ranks *g, uint32_t peer);

// Of this process. Lost: a group was, though ranks_close was called since.
bool ranks_were_lost(void);
// A signal came that mpirun sends when a rank is gone: rank 0 asks all of them. For signal handlers.
void ranks_alarm(void);
