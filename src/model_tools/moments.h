// moments.h - for each weight the sum of x x^T over the rows x that a text sends to it: what an encoder needs
// that carries errors from column to column. Weights that read the same rows share a sum.
#pragma once
#include "base/arena.h"
#include "base/str.h"

struct moments_entry {
    struct str name; // of the weight, as GGUF files spell it
    uint32_t n;      // columns
    double *sums;    // [n, n]; may be another entry's too
};

struct moments {
    struct arena *arena;
    struct moments_entry *entries;
    size_t n, capacity;
    uint64_t n_rows; // of all texts, for messages
};

bool moments_create(struct moments *m, struct err *err);
void moments_free(struct moments *m);                                               // a zeroed one is allowed
const struct moments_entry *moments_find(const struct moments *m, struct str name); // NULL: none
// Adds rows, each of n numbers, to the sum that these weights share.
bool moments_add(struct moments *m, const struct str *names, uint32_t n_names, const float *rows,
                 const uint32_t sizes[2], struct err *err);
