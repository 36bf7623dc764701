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
    DEVICE_AT(f32) partial; // attend_few: [rows, heads, splits, value dims + 2]
    DEVICE_AT(u32) arrived; // attend_few: [rows, tiles of heads, 2], zero between steps
    struct packed_out packed_out;
    struct attend_args args;
    u32 n_splits;            // attend_few: of a past, at most
    u32 n_helpers, n_helped; // attend_many: blocks more for each of the first tiles
    u32 n_decode;     // attend_many leaves to attend_few the decode rows among the first n_decode; 0: none
    u32 alone_pages;  // attend_few: a past of so many is not split
    u32 fewest_pages; // attend_few: of a split
    DEVICE_AT(const f32) sinks; // of the kernels named so: [heads]
};
enum { ATTEND_PLAIN_DIM = 512 }; // attend_plain: numbers of a head at most
// attend_few: heads of a tile; splits of a past at most. Warps that share a page of heads of these dims, and
// threads of a block.
enum { ATTEND_FEW_HEADS = 8, ATTEND_FEW_SPLITS = 128 };
#define ATTEND_FEW_PARTS(dim)   ((dim) > 128 ? (dim) / 128 : 1)
#define ATTEND_FEW_THREADS(dim) ((dim) > 128 ? 512 : 256)
// Shared memory: queries, scores of parts, sums of each page's warps, their maxima and totals, the block's,
// and for parts of splits what they weigh and add up to.
#define ATTEND_FEW_SHARED(key, value, parts, threads)                                               \
    ((key) / 16 * 512 + ((parts) > 1 ? 2 * (threads) / 32 : 1) * 512 +                              \
     (threads) / 32 / (parts) * (ATTEND_FEW_HEADS * ((value) + 3) * 4) + 2 * ATTEND_FEW_HEADS * 4 + \
     (threads) / 32 * (ATTEND_FEW_SPLITS + 32) * 4)

#ifdef HOST_C
#include "device/cuda/cuda.h"

// What of attend_few a launch is.
struct attend_few_kind {
    const char *kernel;
    u32 rows, value;            // of the launch; dims of a value
    u32 parts, threads, blocks; // warps that share a page; threads of a block; blocks an SM
};
// Adds the launch. Splits: as many as fill the device, but none smaller than worth its parts.
void attend_few_split(struct cuda_plan *p, struct attend_params *params, const struct attend_few_kind *kind);
#endif

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
