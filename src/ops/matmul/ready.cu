// ready.cu - makes rows of activations ready for the tensor cores: norm where asked for, bf16, in the order of fragments.cuh.
//
// Row by row for the kernel that passes them through shared memory; in tiles of eight rows, one lane's words side by side, for the
// one that reads them from the L2 cache. Columns beyond the end, and rows of a tile beyond the step's, are zero.
#include "ops/matmul/fragments.cuh"
#include "ops/matmul/pairs.h"

enum { READY_THREADS = 256 };

static __device__ __forceinline__ f32 number(const struct ready_params &p, u32 row, u32 column, f32 factor)
{
    if (column >= p.n_cols)
        return 0;
    f32 v = p.in[(u64)row * p.n_cols + column] * factor;
    return p.norm ? v * p.norm[column] : v;
}

// Two numbers that lie side by side in a fragment: of lane t, step s, low (k = 2 t) or high (k = 2 t + 8).
static __device__ __forceinline__ u32 word(const struct ready_params &p, u32 row, u32 super, u32 t, u32 s, u32 high, f32 factor)
{
    u32 column = super * 128 + t * 32 + s % 2 * 16 + s / 2 * 4 + high;
    return two_bf16(number(p, row, column, factor), number(p, row, column + 2, factor));
}

static __device__ __forceinline__ void put_row(const struct ready_params &p, u32 row, f32 factor)
{
    u32 *out = (u32 *)p.out + (u64)row * (p.ready_cols / 2);

    for (u32 i = threadIdx.x; i < p.ready_cols / 2; i += READY_THREADS) {
        u32 k = i % 8; // word of a step: low for t = 0..3, then high
        out[i] = word(p, row, i / 64, k % 4, i % 64 / 8, k / 4, factor);
    }
}

static __device__ __forceinline__ void put_tiled(const struct ready_params &p, u32 row, f32 factor, bool exists)
{
    u32 n_supers = p.ready_cols / 128;
    u32 *out = (u32 *)p.out + (u64)(row / 8) * n_supers * 512; // 2 KB for 8 rows and 128 columns

    for (u32 i = threadIdx.x; i < p.ready_cols / 2; i += READY_THREADS) {
        u32 super = i / 64, t = i / 16 % 4, quarter = i / 4 % 4, c = i % 4;
        u32 v = exists ? word(p, row, super, t, 2 * quarter + c / 2, c % 2, factor) : 0;
        out[super * 512 + quarter * 128 + (row % 8 * 4 + t) * 4 + c] = v;
    }
}

extern "C" __global__ void __launch_bounds__(READY_THREADS) ready_rows(const __grid_constant__ struct ready_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x, n_rows;
    f32 factor = 1, squares = 0;

    wait_for_inputs();
    n_rows = n_rows_of(p.step, p.rows);
    if (row >= (p.tiled ? (n_rows + 7) / 8 * 8 : n_rows))
        return;
    if (p.norm && row < n_rows) {
        for (u32 i = threadIdx.x; i < p.n_cols; i += READY_THREADS)
            squares += p.in[(u64)row * p.n_cols + i] * p.in[(u64)row * p.n_cols + i];
        factor = norm_factor(block_sum(squares, room), p.n_cols, p.eps);
    }
    if (p.tiled)
        put_tiled(p, row, factor, row < n_rows);
    else
        put_row(p, row, factor);
}
