// mpi_plugin.c - see mpi_plugin.h. Built by mpicc as a library of its own; the one file that knows MPI.
//
// It carries messages of bytes and no collectives: a collective call would hold up its thread for a rank that
// is gone. Agreement and the end are messages too (ranks.h). Errors are returned, not fatal.
#include "engine/ranks/mpi_plugin.h"
#include <limits.h>
#include <mpi.h>
#include <string.h>

enum { TAG = 1 };

static struct {
    MPI_Request at[MPI_PLUGIN_SLOTS];
    int used[MPI_PLUGIN_SLOTS];
    MPI_Message found;
} group;

static int free_slot(void)
{
    for (int i = 0; i < MPI_PLUGIN_SLOTS; i++)
        if (!group.used[i])
            return i;
    return -2;
}

static void library(char *to, size_t n)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int bytes = 0;

    if (n == 0)
        return;
    *to = 0;
    if (MPI_Get_library_version(text, &bytes) != MPI_SUCCESS)
        return;
    size_t line = strcspn(text, ",\n");
    line = line < n ? line : n - 1;
    memcpy(to, text, line);
    to[line] = 0;
}

static int start(int *rank, int *n_ranks)
{
    int provided = MPI_THREAD_SINGLE, begun = 0;

    if (MPI_Initialized(&begun) != MPI_SUCCESS || begun)
        return -1;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_FUNNELED ||
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) != MPI_SUCCESS)
        return -1;
    return MPI_Comm_rank(MPI_COMM_WORLD, rank) == MPI_SUCCESS &&
                   MPI_Comm_size(MPI_COMM_WORLD, n_ranks) == MPI_SUCCESS
               ? 0
               : -1;
}

static int send(int to, const void *at, size_t n)
{
    int slot = free_slot();

    if (slot < 0 || n > INT_MAX)
        return slot < 0 ? slot : -1;
    if (MPI_Isend(at, (int)n, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &group.at[slot]) != MPI_SUCCESS)
        return -1;
    group.used[slot] = 1;
    return slot;
}

static int probe(int *from, size_t *n)
{
    MPI_Status status;
    int found = 0, count = 0;

    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &group.found, &status) !=
        MPI_SUCCESS)
        return -1;
    if (!found)
        return 0;
    if (MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS || count < 0)
        return -1;
    *from = status.MPI_SOURCE;
    *n = (size_t)count;
    return 1;
}

static int receive(void *at, size_t n)
{
    int slot = free_slot();

    if (slot < 0)
        return slot;
    if (MPI_Imrecv(at, (int)n, MPI_BYTE, &group.found, &group.at[slot]) != MPI_SUCCESS)
        return -1;
    group.used[slot] = 1;
    return slot;
}

static int test(int slot)
{
    int over = 0;

    if (MPI_Test(&group.at[slot], &over, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return -1;
    group.used[slot] = !over;
    return over;
}

static int stop(void)
{
    return MPI_Finalize() == MPI_SUCCESS ? 0 : -1;
}

__attribute__((visibility("default"))) const struct mpi_plugin ingot_mpi_plugin = {
    MPI_PLUGIN_FORM, library, start, send, probe, receive, test, stop
};
