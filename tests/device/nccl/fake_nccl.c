// fake_nccl.c - a libnccl.so.2 for tests without GPUs: its ranks are threads of one process, and their memory
// is the process's. A sum is in the order of the ranks. A call outside of a group returns when all ranks have
// made theirs, which is later than NCCL's, or when a communicator was aborted.
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include "fake_nccl.h"

enum { RANKS = 8, WORLDS = 4096, QUEUED = 64, FAILED = 1, ABORTED = 3 };
#ifndef FAKE_VERSION
#define FAKE_VERSION 22703
#endif
#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EXPORT struct fake_nccl fake_nccl;

struct comm {
    struct world *world;
    int rank;
};

struct mail {
    const void *from;
    void *to;
    unsigned done;
};

struct world {
    int n, n_posted;
    bool aborted;
    struct comm comms[RANKS];
    float *posted[RANKS];
    unsigned done; // sums
    struct mail mails[RANKS][RANKS];
};

struct fake_call {
    struct comm *comm;
    int kind, peer; // 0: a sum, 1: a send, 2: a receive
    void *at;
    size_t n;
    unsigned wanted;
};

static struct world worlds[WORLDS];
static int n_worlds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static _Thread_local struct fake_call queued[QUEUED];
static _Thread_local int n_queued, depth;
static _Thread_local bool group_failed;

static bool fails(void)
{
    return ++fake_nccl.calls == fake_nccl.fail;
}

static void add_up(struct world *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = w->posted[0][i] + (fake_nccl.spoils ? 1 : 0);
        for (int r = 1; r < w->n; r++)
            sum += w->posted[r][i];
        for (int r = 0; r < w->n; r++)
            w->posted[r][i] = sum;
    }
    w->n_posted = 0;
    w->done++;
    pthread_cond_broadcast(&news);
}

static struct mail *mail_of(const struct fake_call *c)
{
    int from = c->kind == 1 ? c->comm->rank : c->peer, to = c->kind == 1 ? c->peer : c->comm->rank;
    return &c->comm->world->mails[from][to];
}

static void post(struct fake_call *c)
{
    struct world *w = c->comm->world;
    struct mail *m = mail_of(c);

    if (c->kind == 0) {
        c->wanted = w->done + 1;
        w->posted[c->comm->rank] = c->at;
        if (++w->n_posted == w->n)
            add_up(w, c->n);
        return;
    }
    c->wanted = m->done + 1;
    *(c->kind == 1 ? (void **)&m->from : &m->to) = c->at;
    if (!m->from || !m->to)
        return;
    memcpy(m->to, m->from, c->n * sizeof(float));
    m->from = m->to = NULL;
    m->done++;
    pthread_cond_broadcast(&news);
}

static bool is_over(const struct fake_call *c)
{
    return c->comm->world->aborted || (c->kind == 0 ? c->comm->world->done : mail_of(c)->done) >= c->wanted;
}

static int run(struct fake_call *calls, int n)
{
    int result = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        post(&calls[i]);
    for (int i = 0; i < n; i++) {
        while (!is_over(&calls[i]))
            pthread_cond_wait(&news, &lock);
        result = calls[i].comm->world->aborted ? ABORTED : result;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int take(struct fake_call c)
{
    if (fails()) {
        group_failed = true;
        return FAILED;
    }
    if (depth == 0)
        return run(&c, 1);
    queued[n_queued++] = c;
    return 0;
}

EXPORT int ncclGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return 0;
}
EXPORT int ncclGetUniqueId(struct fake_id *id)
{
    if (fails())
        return FAILED;
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    memcpy(id, &n_worlds, sizeof n_worlds);
    n_worlds = (n_worlds + 1) % WORLDS;
    pthread_mutex_unlock(&lock);
    return 0;
}
EXPORT int ncclCommInitRank(struct comm **comm, int n, struct fake_id id, int rank)
{
    int number;

    if (fails())
        return FAILED;
    while (fake_nccl.stalls)
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    memcpy(&number, &id, sizeof number);
    pthread_mutex_lock(&lock);
    struct world *w = &worlds[number];
    w->n = n;
    w->comms[rank] = (struct comm){ w, rank };
    pthread_mutex_unlock(&lock);
    *comm = &w->comms[rank];
    fake_nccl.live++;
    return 0;
}
EXPORT int ncclCommDestroy(struct comm *comm)
{
    (void)comm;
    fake_nccl.live--;
    return 0;
}
EXPORT int ncclCommAbort(struct comm *comm)
{
    pthread_mutex_lock(&lock);
    comm->world->aborted = true;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    fake_nccl.live--;
    fake_nccl.aborts++;
    return 0;
}
EXPORT int ncclCommGetAsyncError(struct comm *comm, int *result)
{
    (void)comm;
    *result = fake_nccl.async_result;
    return 0;
}
EXPORT const char *ncclGetErrorString(int result)
{
    return result == FAILED ? "unhandled cuda error" : "internal error";
}
EXPORT const char *ncclGetLastError(struct comm *comm)
{
    (void)comm;
    return "the fake's reason";
}
EXPORT int ncclGroupStart(void)
{
    bool failed = fails();

    group_failed = depth > 0 && (group_failed || failed);
    depth += !failed;
    return failed ? FAILED : 0;
}
EXPORT int ncclGroupEnd(void)
{
    int n = n_queued;

    group_failed |= fails(); // then nothing of it is done
    if (--depth > 0)
        return group_failed ? FAILED : 0;
    n_queued = 0;
    return group_failed ? FAILED : run(queued, n);
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, struct comm *comm,
                         void *stream)
{
    (void)stream;
    fake_nccl.sums++;
    return from != to || type != 7 || op != 0 ? FAILED : take((struct fake_call){ comm, 0, 0, to, n, 0 });
}
#ifndef FAKE_WITHOUT_SEND
EXPORT int ncclSend(const void *from, size_t n, int type, int to, struct comm *comm, void *stream)
{
    (void)stream;
    fake_nccl.sends++;
    return type != 7 ? FAILED : take((struct fake_call){ comm, 1, to, (void *)(size_t)from, n, 0 });
}
#endif
EXPORT int ncclRecv(void *to, size_t n, int type, int from, struct comm *comm, void *stream)
{
    (void)stream;
    return type != 7 ? FAILED : take((struct fake_call){ comm, 2, from, to, n, 0 });
}
