// fake_nccl_apart.c - a libnccl.so.2 for tests without GPUs: ranks are processes of one machine, and what
// they send goes through memory that they share. Sends and receives alone.
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "fake_nccl.h"

enum { RANKS = 4, MOST = 1 << 18, FAILED = 1, ABORTED = 3, TOO_FEW = 6 };
#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct fake_mail {
    atomic_int full;
    size_t n;
    float at[MOST];
};

struct fake_shared {
    atomic_int n_joined;
    struct fake_mail mails[RANKS][RANKS];
};

static struct fake_shared *shared;
static int own_rank;
static atomic_bool aborted;
EXPORT int fake_nccl_last;

static void rest(void)
{
    nanosleep(&(struct timespec){ 0, 20000 }, NULL);
}

static int wait_for(atomic_int *what, int value)
{
    while (atomic_load(what) != value && !aborted)
        rest();
    return aborted ? ABORTED : 0;
}

EXPORT int ncclGetVersion(int *version)
{
    *version = 22703;
    return 0;
}
EXPORT int ncclGetUniqueId(struct fake_id *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->at, sizeof id->at, "/ingot_fake_nccl_%ld", (long)getpid());
    return 0;
}
EXPORT int ncclCommInitRank(void **comm, int n, struct fake_id id, int rank)
{
    int f = shm_open(id.at, O_RDWR | O_CREAT, 0600);

    if (n > RANKS || f < 0 || ftruncate(f, sizeof *shared) != 0)
        return FAILED;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    close(f);
    if (shared == MAP_FAILED)
        return FAILED;
    own_rank = rank;
    *comm = shared;
    shared->n_joined++;
    int result = wait_for(&shared->n_joined, n);
    shm_unlink(id.at);
    return result;
}
EXPORT int ncclCommDestroy(void *comm)
{
    munmap(comm, sizeof *shared);
    return 0;
}
EXPORT int ncclCommAbort(void *comm)
{
    (void)comm;
    aborted = true;
    return 0;
}
EXPORT int ncclCommGetAsyncError(void *comm, int *result)
{
    (void)comm;
    *result = 0;
    return 0;
}
EXPORT const char *ncclGetErrorString(int result)
{
    return result == ABORTED ? "aborted" : "unhandled system error";
}
EXPORT const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}
EXPORT int ncclGroupStart(void)
{
    return 0;
}
EXPORT int ncclGroupEnd(void)
{
    return 0;
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream)
{
    (void)from, (void)to, (void)n, (void)type, (void)op, (void)comm, (void)stream;
    return FAILED;
}
EXPORT int ncclSend(const void *from, size_t n, int type, int to, void *comm, void *stream)
{
    struct fake_mail *m = &shared->mails[own_rank][to];
    int result = n > MOST || type != 7 ? FAILED : wait_for(&m->full, 0);

    (void)comm, (void)stream;
    if (result)
        return result;
    memcpy(m->at, from, n * sizeof(float));
    m->n = n;
    m->full = 1;
    return 0;
}
EXPORT int ncclRecv(void *to, size_t n, int type, int from, void *comm, void *stream)
{
    struct fake_mail *m = &shared->mails[from][own_rank];
    int result = type != 7 ? FAILED : wait_for(&m->full, 1);

    (void)comm, (void)stream;
    if (result)
        return result;
    if (m->n != n)
        return TOO_FEW;
    memcpy(to, m->at, n * sizeof(float));
    m->full = 0;
    if (fake_nccl_last > 0 && --fake_nccl_last == 0)
        raise(SIGKILL);
    return 0;
}
