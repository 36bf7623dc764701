// imatrix.h - an importance matrix: for each column of a weight's input the mean square of the activations
// over a text.
//
// A product's error for an error e in column j of a weight is e times the activation, so that squared errors
// count by the mean square. Experts have their own.
#pragma once
#include "base/arena.h"
#include "base/str.h"

struct imatrix_entry {
    struct str name; // of the weight, as GGUF files spell it
    uint64_t n_sums;
    uint32_t n_counts; // one for each matrix, or 1: all share it
    double *sums, *counts;
};

struct imatrix {
    struct arena *arena;
    struct imatrix_entry *entries;
    size_t n, capacity;
    struct str text;            // the first of the texts it was made with; may be empty
    uint32_t n_chunks, n_chunk; // chunks, and tokens of each; 0: not known
};

bool imatrix_create(struct imatrix *m, struct err *err);
void imatrix_free(struct imatrix *m);                                               // a zeroed one is allowed
const struct imatrix_entry *imatrix_find(const struct imatrix *m, struct str name); // NULL: none
// The entry of like's name, a new one zeroed. NULL: no memory, or it has another n_sums or n_counts than
// like.
struct imatrix_entry *imatrix_add(struct imatrix *m, const struct imatrix_entry *like, struct err *err);
// Mean squares for a weight of sizes[0] matrices of sizes[1] columns, into means[matrices, columns]; 1 where
// no row was seen. False: the entry has other sizes.
bool imatrix_means(const struct imatrix_entry *e, const uint64_t sizes[2], float *means);
