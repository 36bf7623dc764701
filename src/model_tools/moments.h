// moments.h - for each weight the sum of x x^T over the rows x that a text sends to it: what an encoder needs
// that carries errors from column to column. Weights that read the same rows share a sum.
//
// The sums of a large model's layers take more memory than its weights, so a text may be read several times,
// each time for as many layers as there is room for.
// A product of two fp32 numbers is exact in double, and rows are added in their order: the sums are those of
// the plain loop, with any number of threads.
#pragma once
#include "base/arena.h"
#include "base/str.h"
#include "base/thread_pool.h"

struct moments_entry {
    struct str name; // of the weight, as GGUF files spell it
    uint32_t n;      // columns
    double *sums;    // [n (n + 1) / 2]: the lower triangle, row by row; may be another entry's too
};

struct moments_limits {
    uint32_t first, last; // layers: rows of others are not added
    uint64_t bytes;       // of sums; those of layer `first` are kept whatever they take
    struct thread_pool *pool;
};

struct moments {
    struct arena *arena;
    struct moments_entry *entries;
    size_t n, capacity;
    struct moments_limits limits; // `last` falls to the first layer without room, `bytes` to what is left
    double *panels;               // rows as rank_update takes them
    size_t n_panels;
};

// Rows that the weights of these names read.
struct moments_rows {
    const struct str *names;
    uint32_t n_names, layer;
    const float *at; // [n, n_cols]
    uint32_t n, n_cols;
};

bool moments_create(struct moments *m, const struct moments_limits *limits, struct err *err);
void moments_free(struct moments *m);                                               // a zeroed one is allowed
const struct moments_entry *moments_find(const struct moments *m, struct str name); // NULL: none
bool moments_add(struct moments *m, const struct moments_rows *rows, struct err *err);
