// attend_all_block.h - what the row kernels of attend_all get, and the memory they work in.
#pragma once
#include "ops/attend_all/attend_all.h"

// Rows of one slot at one head, which see the same keys; attention without pages.
struct attend_all_block {
    const struct attend_all_args *args;
    const float *q, *k, *v; // of the first row, and of the first key
    float *out;
    size_t stride, kv_stride; // from row to row, in floats
    uint32_t n_rows, n_keys;
    uint32_t first; // the first row's number among the keys
    float *local;   // attend_all_local_bytes
};

// Rows whose scores are made together; keys, padded so that every vector type has whole panels.
enum { ATTEND_ALL_ROWS = 6, ATTEND_ALL_PANEL = 32, ATTEND_ALL_MAX_DIMS = 1024 };
static inline uint32_t attend_all_padded(uint32_t n_keys)
{
    return (n_keys + ATTEND_ALL_PANEL - 1) / ATTEND_ALL_PANEL * ATTEND_ALL_PANEL;
}
static inline uint32_t attend_all_dims(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}
static inline size_t attend_all_local_bytes(const struct attend_all_args *args, uint32_t n_keys)
{
    return (size_t)attend_all_padded(n_keys) * (attend_all_dims(args->head_dim) + ATTEND_ALL_ROWS) *
           sizeof(float);
}
