// rmsnorm_sum.cu - three norms of a row in one launch; see rmsnorm_sum.h.
//
// Computes   n = norm(a) * a_scale + norm(b) * b_scale,   out = (norm(n) * scale + add) * gain
//
//   a row:  | t0 | t1 | ... | t1023 | t0 | ...     grid: rows; block: 1024 threads
//
// The first 4,096 columns of all stay in a thread's registers, four at the distance of a block; what lies
// behind them is read again, and n worked out again. Scales of the first are loaded before the block's inputs
// are there (programmatic dependent launch). Reductions: through shared memory. No epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/rmsnorm_sum/rmsnorm_sum_cuda.h"

enum { SUM_THREADS = 1024, KEPT = 4 };

struct sum_factors { // of a's and b's norms
    f32 a, b;
};

// Number c of n.
static __device__ __forceinline__ f32 sum_at(const struct rmsnorm_sum_params &p, u64 row_at, u32 c,
                                             const struct sum_factors &f)
{
    return p.a[row_at + c] * f.a * p.a_scale[c] + p.b[row_at + c] * f.b * (p.b_scale ? p.b_scale[c] : 1);
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    rmsnorm_sum(const __grid_constant__ struct rmsnorm_sum_params p)
{
    __shared__ f32 room[33];
    u32 n_cols = p.args.n_cols, first = threadIdx.x;
    u64 at = (u64)blockIdx.x * n_cols;
    f32 a_scale[KEPT], b_scale[KEPT], scale[KEPT], a[KEPT], b[KEPT], add[KEPT], squares = 0, b_squares = 0;

#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 c = min(first + i * SUM_THREADS, n_cols - 1);
        a_scale[i] = p.a_scale[c];
        b_scale[i] = p.b_scale ? p.b_scale[c] : 1;
        scale[i] = p.scale[c];
    }
    wait_for_inputs();
    if (blockIdx.x >= p.step->n_rows)
        return;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 c = first + i * SUM_THREADS;
        a[i] = c < n_cols ? p.a[at + c] : 0;
        b[i] = c < n_cols ? p.b[at + c] : 0;
        add[i] = c < n_cols ? p.add[at + c] : 0;
        squares += a[i] * a[i];
        b_squares += b[i] * b[i];
    }
    for (u32 c = first + KEPT * SUM_THREADS; c < n_cols; c += SUM_THREADS) {
        squares += p.a[at + c] * p.a[at + c];
        b_squares += p.b[at + c] * p.b[at + c];
    }
    struct sum_factors f = { norm_factor(block_sum(squares, room), n_cols, p.args.eps), 1 };
    if (p.b_scale)
        f.b = norm_factor(block_sum(b_squares, room), n_cols, p.args.eps);
    squares = 0;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        a[i] = a[i] * f.a * a_scale[i] + b[i] * f.b * b_scale[i];
        squares += first + i * SUM_THREADS < n_cols ? a[i] * a[i] : 0;
    }
    for (u32 c = first + KEPT * SUM_THREADS; c < n_cols; c += SUM_THREADS)
        squares += sum_at(p, at, c, f) * sum_at(p, at, c, f);
    f32 factor = norm_factor(block_sum(squares, room), n_cols, p.args.eps);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++)
        if (first + i * SUM_THREADS < n_cols)
            p.out[at + first + i * SUM_THREADS] = (a[i] * factor * scale[i] + add[i]) * p.args.gain;
    for (u32 c = first + KEPT * SUM_THREADS; c < n_cols; c += SUM_THREADS)
        p.out[at + c] = (sum_at(p, at, c, f) * factor * p.scale[c] + p.add[at + c]) * p.args.gain;
}
