// ranks_internal.h - the group as ranks.c and rank_thread.c share it.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include "engine/ranks/mpi_plugin.h"
#include "engine/ranks/ranks.h"

#define RANK_MAGIC 0x31676e69u // "ing1": the form of all messages, and the order of bytes
enum { RANK_HOST_BYTES = 64, RANK_PLACE_BYTES = 128, RANK_HELLO_BYTES = 1 << 16, MAX_RANKS = 64 };

#if defined(__APPLE__) // whose conditions wait by the clock on the wall
#define RANK_CLOCK CLOCK_REALTIME
#else
#define RANK_CLOCK CLOCK_MONOTONIC
#endif

struct rank_head {
    uint32_t magic, kind;
    uint64_t n_bytes; // that follow
};

struct rank_card { // body of RANK_NAME
    uint64_t pid;
    char host[RANK_HOST_BYTES], place[RANK_PLACE_BYTES]; // place: what processes that see each other share
};

struct rank_peer {
    char host[RANK_HOST_BYTES];
    pid_t pid; // of a process that this one can see; else 0
    uint64_t heard_ns, sent_ns;
    bool warned, asked;
    uint32_t n_unsent;
    struct rank_traffic traffic;
};

struct rank_queue {
    struct rank_message *first, *last;
};

struct ranks {
    const struct mpi_plugin *mpi;
    void (*on_lost)(void);
    pthread_t thread;
    uint32_t rank, n; // constant once started

    pthread_mutex_t lock; // of all below
    pthread_cond_t wake, news;
    struct rank_queue inbox, outbox;
    struct rank_message *idle;
    struct rank_peer peers[MAX_RANKS]; // [n]
    size_t limit;
    bool started, stopping, lost;
    bool told; // by rank 0, which answers first and then ends
    struct err why;

    // The thread's own.
    struct rank_message *sending[MPI_PLUGIN_SLOTS], *receiving;
    uint64_t moved_ns, watched_ns, asked_ns;
    struct rank_card card;
};

extern atomic_int ranks_alarms;
void *ranks_run(void *arg); // the thread
// The lock is held.
void ranks_lose(struct ranks *g, const struct err *why);
void ranks_put(struct rank_queue *q, struct rank_message *m);
struct rank_message *ranks_pop(struct rank_queue *q, uint32_t kinds);
struct rank_message *ranks_room_locked(struct ranks *g, enum rank_kind kind, size_t body_bytes);
void ranks_post_locked(struct ranks *g, uint32_t to, struct rank_message *m);
void ranks_name_locked(const struct ranks *g, uint32_t rank, char to[RANK_NAME_BYTES]);
