// attend_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "ops/attend/attend.h"
#include "gemm/cuda/packing.h"

struct attend_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) q;
    DEVICE_AT(const void) k_pages;
    DEVICE_AT(const void) v_pages;
    DEVICE_AT(const u32) table;
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) partial; // attend_few: [rows, heads, 4 * splits, head_dim + 2]
    DEVICE_AT(u32) arrived; // attend_few: [rows, heads], zero between steps
    struct packed_out packed_out;
    struct attend_args args;
    u32 n_splits;            // attend_few: blocks for a head
    u32 n_helpers, n_helped; // attend_many: blocks more for each of the first tiles
    u32 n_decode;    // attend_many leaves to attend_few the decode rows among the first n_decode; 0: none
    u32 alone_pages; // attend_few: up to this context each head has its own block; beyond, four heads share
                     // one
    u32 reserved;
    DEVICE_AT(const f32) sinks; // of the kernels named so: [heads]
};
enum { ATTEND_PLAIN_DIM = 512 }; // attend_plain: numbers of a head at most
enum { ATTEND_FEW_THREADS = 256, ATTEND_ALONE_PAGES = 16 };

#ifdef __CUDACC__
// The sum of exp(score - top) of a head's scores, its sink among them.
template <bool SINKS>
static __device__ __forceinline__ f32 attend_row_sum(const struct attend_params &p, u32 head, f32 top,
                                                     f32 total)
{
    return SINKS ? total + expf(p.sinks[head] - top) : total;
}

// A decode row is the only row of its slot in the step. Both kernels of a mixed step ask this, so that each
// row is computed once.
static __device__ __forceinline__ bool attend_is_decode(const struct attend_params &p, u32 row)
{
    const u32 *slots = step_slots(p.step);
    return row < p.n_decode && row < p.step->n_rows && (row == 0 || slots[row - 1] != slots[row]) &&
           (row + 1 == p.step->n_rows || slots[row + 1] != slots[row]);
}
#endif
