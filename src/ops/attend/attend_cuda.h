// attend_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "ops/attend/attend.h"
#include "ops/matmul/planes.h"
#include "ops/matmul/ready.h"

struct attend_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) q;
    DEVICE_AT(const void) k_pages;
    DEVICE_AT(const void) v_pages;
    DEVICE_AT(const u32) table;
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) partial; // attend_few: [rows, heads, 4 * splits, head_dim + 2]
    DEVICE_AT(u32) arrived; // attend_few: [rows, heads], zero between steps
    struct ready_next next; // attend_few, attend_many
    struct attend_args args;
    u32 n_splits;            // attend_few: blocks for a head
    u32 n_helpers, n_helped; // attend_many: blocks more for each of the first tiles
    u32 reserved;
};
enum { ATTEND_FEW_THREADS = 256, ATTEND_ALONE_PAGES = 16 }; // up to so many pages a head is one block's
