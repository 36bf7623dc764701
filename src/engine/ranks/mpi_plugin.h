// mpi_plugin.h - what the plug-in libingot_mpi.so offers: a group of processes on MPI, in nine functions.
//
// MPI's handles differ between implementations, so mpicc builds the plug-in on the machine where it will run;
// ingot itself is built without MPI and opens it at run time (plugin.h). All calls come from the thread that
// called start. A slot is a send or receive under way. Functions that return int give -1 on an error of MPI.
#pragma once
#include <stddef.h>

#define MPI_PLUGIN_SYMBOL "ingot_mpi_plugin"
enum { MPI_PLUGIN_FORM = 1, MPI_PLUGIN_SLOTS = 64 }; // form: of this struct

struct mpi_plugin {
    int form;                                      // MPI_PLUGIN_FORM
    void (*library)(char *to, size_t n);           // which MPI; before start, from any thread
    int (*start)(int *rank, int *n_ranks);         // 0: started
    int (*send)(int to, const void *at, size_t n); // its slot, or -2: all are taken; `at` stays until the end
    int (*probe)(int *from, size_t *n); // 1: a message of n bytes waits, and receive is called next
    int (*receive)(void *at, size_t n); // its slot, or -2
    int (*test)(int slot);              // 1: it is over, and the slot is free
    int (*stop)(void);                  // waits for all ranks to stop
};
