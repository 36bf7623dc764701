// trellis.cu - a product with EXL3 codes for up to 64 rows of activations, and for any number where a row
// must get the same bits whatever shares its step; see trellis.h.
//
// Computes   out = svh * H (W (H (suh * in)))  + bias + add. Bound by issuing instructions: extraction and
// decoding of a state (bench/results/2026-11-28-trellis.md has the machine code's count).
//
//                k: a split's quads of 64 inputs, divided among 4 warps
//              +------+------+------+------+
//   128        | warp | warp | warp | warp |   x  1, 8 or 16 rows of activations
//   outputs    |  0   |  2   |  4   |  6   |
//   of the     +------+------+------+------+
//   matrices   |  1   |  3   |  5   |  7   |      grid: (walkers, splits, groups of 16 rows)
//              +------+------+------+------+
//
// Tiles: a block walks every walkers-th block of 128 outputs, of all matrices, in its split of k.
// Pipeline: each warp copies its next codes into a ring of its own in shared memory, the first before the
// inputs are there (programmatic dependent launch). A stage is a quad of each of the warp's 4 tiles of
// outputs.
// Operands: records of the block's columns in shared memory (trellis_cuda.h). Of one row each block makes its
// own; several rows are turned once, by trellis_turn. Codes become fragments in registers
// (trellis_decode.cuh): halves; or, of the codebook MUL1, whose numbers are sums of four bytes, the bytes
// themselves, which are multiplied by four copies of an int8 activation.
// Reduction: the warps' sums in shared memory, in the order of the columns; then the splits' in memory, by
// the block that comes last, in the order of the splits. Which sums these are depends on the matrices alone.
// Epilogue: the last block has all of 128 outputs, which it turns back.
//
// Products that are added to something are rounded as written (__fmul_rn, __fmaf_rn): a row must get the same
// bits from the kernels for 8 and 16 rows.
#include "ops/trellis/trellis_kernel.cuh"

template <bool BYTES, u32 ROWS>
static __device__ __forceinline__ void trellis_turn(const struct trellis_params &p)
{
    typedef struct trellis_record<BYTES, ROWS> record;
    const struct trellis_matrix *m = p.matrices + blockIdx.y;
    u32 first_row = blockIdx.z * TRELLIS_ROWS, n = n_rows_of(p.step, p.rows),
        n_rows = n > first_row ? min(n - first_row, ROWS) : 0;

    wait_for_inputs();
    for (u32 row = threadIdx.x / 32; row < n_rows; row += TRELLIS_WARPS) {
        struct trellis_columns columns;
        columns.load(p, m->suh, blockIdx.x, first_row + row, p.n_cols);
        record::turn(columns, m->turned + (u64)(blockIdx.z * gridDim.x + blockIdx.x) * record::WORDS, row);
    }
}

#define TRELLIS_KERNEL(bits, name, bytes, rows)                                           \
    extern "C" __global__ void __launch_bounds__(TRELLIS_WARPS * 32, rows == 16 ? 2 : 3)  \
        trellis_##name##_##bits##_##rows(const __grid_constant__ struct trellis_params p) \
    {                                                                                     \
        struct trellis_kernel<bits, bytes, rows> k(p, (u32 *)trellis_shared);             \
        k.run();                                                                          \
    }
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, halves, false, 1)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, halves, false, 8)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, halves, false, 16)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, bytes, true, 1)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, bytes, true, 8)
TRELLIS_EACH_WIDTH(TRELLIS_KERNEL, bytes, true, 16)

// Several rows of a group and block of columns, a warp a row; grid: (blocks of columns, matrices, groups).
#define TRELLIS_TURN(name, bytes, most)                                               \
    extern "C" __global__ void __launch_bounds__(TRELLIS_WARPS * 32)                  \
        trellis_turn_##name##_##most(const __grid_constant__ struct trellis_params p) \
    {                                                                                 \
        trellis_turn<bytes, most>(p);                                                 \
    }
TRELLIS_TURN(halves, false, 8)
TRELLIS_TURN(halves, false, 16)
TRELLIS_TURN(bytes, true, 8)
TRELLIS_TURN(bytes, true, 16)
