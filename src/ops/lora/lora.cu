// lora.cu - the operation as defined in lora.h, in two launches: h, then what it adds.
//
//   lora_down: a block takes a rank of a row       lora_down_many: two ranks of eight rows
//              thread t: columns 4 t, 4 t + 1,024, ...; then the threads' sums together
//   lora_up:   a thread takes four columns of a row   lora_up_many: of eight rows
//
// Bound by memory where rows are few: their loads are under way together, and the adapters' numbers are asked
// for before the block's inputs are there (programmatic dependent launch). Where rows are many, what is
// loaded is used for several. A row's sums know no other row, and are the same in both kinds.
#include "device/cuda/fours.cuh"
#include "device/cuda/kernel.cuh"
#include "ops/lora/lora_cuda.h"

enum { DOWN_COLUMNS = 4 * LORA_DOWN_THREADS, DOWN_WARPS = LORA_DOWN_THREADS / 32 };

static __device__ __forceinline__ const f32 *scales_of(const struct lora_params &p, u32 r)
{
    u32 row = p.args.rows == ROWS_STEP ? r : step_outputs(p.step)[r];
    return p.scales + (u64)step_slots(p.step)[row] * p.args.n_adapters;
}

static __device__ __forceinline__ f32 scale_of(const struct lora_params &p, u32 target, u32 rank, u32 r)
{
    return scales_of(p, r)[p.owners[target][rank]];
}

// The row's h of a target.
static __device__ __forceinline__ f32 *work_of(const struct lora_params &p, u32 r, u32 target)
{
    u32 last = p.args.n_targets - 1;
    u32 n_ranks = lora_first_rank(p.args.n_ranks, last) + p.args.n_ranks[last];
    return p.work + (u64)r * n_ranks + lora_first_rank(p.args.n_ranks, target);
}

static __device__ __forceinline__ void ask(const f32 *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// Whether any of the row's sequence's adapters is in use. The step and the scales are older than any launch.
static __device__ __forceinline__ bool is_adapted(const struct lora_params &p, u32 r)
{
    const f32 *scales = scales_of(p, r);
    bool any = false;

    for (u32 i = 0; i < p.args.n_adapters; i++)
        any = any || scales[i] != 0;
    return any;
}

static __device__ __forceinline__ void ask_rank(const struct lora_params &p)
{
    u32 target = blockIdx.z, n = p.args.n_cols;

    if (blockIdx.y >= n_rows_of(p.step, p.args.rows) || blockIdx.x >= p.args.n_ranks[target] ||
        !is_adapted(p, blockIdx.y))
        return;
    for (u32 k = 32 * threadIdx.x; k < n; k += 32 * LORA_DOWN_THREADS)
        ask(p.a[target] + (u64)blockIdx.x * n + k);
}

static __device__ __forceinline__ void ask_columns(const struct lora_params &p)
{
    u32 target = blockIdx.z, n = p.args.n_out[target], k = 4 * (blockIdx.x * blockDim.x + threadIdx.x);

    if (blockIdx.y >= n_rows_of(p.step, p.args.rows) || k >= n || !is_adapted(p, blockIdx.y))
        return;
    for (u32 j = 0; j < p.args.n_ranks[target] && threadIdx.x % 8 == 0; j++)
        ask(p.b[target] + (u64)j * n + k);
}

// Sums of N numbers over a warp: a lane's is then the first, of the number that is returned. Neighbours `o`
// apart share what is left, so that each adds half of it; the sums' order is warp_sum's.
template <u32 N, u32 O> static __device__ __forceinline__ u32 fold(f32 *v, u32 lane)
{
    constexpr u32 left = N > 1 ? N / 2 : 1;
    bool upper = lane & O;
    u32 which = 0;

    if constexpr (N > 1) {
#pragma unroll
        for (u32 i = 0; i < left; i++) {
            f32 other = __shfl_xor_sync(~0u, upper ? v[i] : v[i + left], O);
            v[i] = (upper ? v[i + left] : v[i]) + other;
        }
        which = upper ? left : 0;
    } else {
        v[0] += __shfl_xor_sync(~0u, v[0], O);
    }
    if constexpr (O > 1)
        which += fold<left, O / 2>(v, lane);
    return which;
}

// Ranks and rows behind the last repeat it, and are not written.
template <u32 RANKS, u32 ROWS> static __device__ __forceinline__ void down(const struct lora_params &p)
{
    constexpr u32 n_sums = RANKS * ROWS, n_parts = n_sums * DOWN_WARPS, at_once = n_sums > 8 ? 2 : 4;
    __shared__ f32 room[n_parts];
    u32 first_row = blockIdx.y * ROWS, target = blockIdx.z, first = blockIdx.x * RANKS, n = p.args.n_cols,
        n_rows = n_rows_of(p.step, p.args.rows), n_ranks = p.args.n_ranks[target];
    f32 sums[RANKS][ROWS] = {};
    bool any = false;

    if (first_row >= n_rows || first >= n_ranks)
        return;
#pragma unroll
    for (u32 i = 0; i < RANKS * ROWS; i++)
        any = any || scale_of(p, target, min(first + i / ROWS, n_ranks - 1),
                              min(first_row + i % ROWS, n_rows - 1)) != 0;
#pragma unroll at_once
    for (u32 k = 4 * threadIdx.x; any && k < n; k += DOWN_COLUMNS) {
        float4 x[ROWS], a[RANKS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
            x[r] = load_four(p.in + (u64)min(first_row + r, n_rows - 1) * n, k, n);
#pragma unroll
        for (u32 j = 0; j < RANKS; j++)
            a[j] = load_four(p.a[target] + (u64)min(first + j, n_ranks - 1) * n, k, n);
#pragma unroll
        for (u32 j = 0; j < RANKS; j++)
#pragma unroll
            for (u32 r = 0; r < ROWS; r++)
                sums[j][r] =
                    fmaf(x[r].w, a[j].w,
                         fmaf(x[r].z, a[j].z, fmaf(x[r].y, a[j].y, fmaf(x[r].x, a[j].x, sums[j][r]))));
    }
    u32 lane = threadIdx.x % 32, which = fold<n_sums, 16>(&sums[0][0], lane);
    if (lane % (32 / n_sums) == 0)
        room[which * DOWN_WARPS + threadIdx.x / 32] = sums[0][0];
    __syncthreads();
    if (threadIdx.x >= n_parts)
        return;
    f32 sum = room[threadIdx.x];
#pragma unroll
    for (u32 o = DOWN_WARPS / 2; o; o >>= 1)
        sum += __shfl_xor_sync(n_parts < 32 ? (1u << n_parts % 32) - 1 : ~0u, sum, o);
    u32 rank = first + threadIdx.x / DOWN_WARPS / ROWS, row = first_row + threadIdx.x / DOWN_WARPS % ROWS;
    if (threadIdx.x % DOWN_WARPS == 0 && rank < n_ranks && row < n_rows) {
        f32 scale = scale_of(p, target, rank, row);
        work_of(p, row, target)[rank] = scale != 0 ? scale * sum : 0;
    }
}

extern "C" __global__ void __launch_bounds__(LORA_DOWN_THREADS)
    lora_down(const __grid_constant__ struct lora_params p)
{
    ask_rank(p);
    wait_for_inputs();
    down<1, 1>(p);
}

extern "C" __global__ void __launch_bounds__(LORA_DOWN_THREADS)
    lora_down_many(const __grid_constant__ struct lora_params p)
{
    wait_for_inputs();
    down<LORA_MANY_RANKS, LORA_DOWN_ROWS>(p);
}

// Adds N ranks from j on to four columns. A rank whose h is 0 is left out.
template <u32 N, u32 ROWS>
static __device__ __forceinline__ void add_ranks(const f32 *(&h)[ROWS], u32 j, u32 n_ranks, const f32 *b,
                                                 u32 k, u32 n, float4 (&sums)[ROWS])
{
    f32 factor[N][ROWS];
    float4 v[N];
    bool any = false;

#pragma unroll
    for (u32 i = 0; i < N; i++)
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            factor[i][r] = j + i < n_ranks ? h[r][j + i] : 0;
            any = any || factor[i][r] != 0;
        }
    if (!any)
        return;
#pragma unroll
    for (u32 i = 0; i < N; i++)
        v[i] = load_four(b + (u64)min(j + i, n_ranks - 1) * n, k, n);
#pragma unroll
    for (u32 i = 0; i < N; i++)
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
            if (factor[i][r] != 0) {
                sums[r].x = fmaf(factor[i][r], v[i].x, sums[r].x);
                sums[r].y = fmaf(factor[i][r], v[i].y, sums[r].y);
                sums[r].z = fmaf(factor[i][r], v[i].z, sums[r].z);
                sums[r].w = fmaf(factor[i][r], v[i].w, sums[r].w);
            }
}

template <u32 N, u32 ROWS> static __device__ __forceinline__ void up(const struct lora_params &p)
{
    u32 first_row = blockIdx.y * ROWS, target = blockIdx.z, n = p.args.n_out[target],
        k = 4 * (blockIdx.x * blockDim.x + threadIdx.x), n_rows = n_rows_of(p.step, p.args.rows);
    const f32 *h[ROWS];
    float4 sums[ROWS];

    if (first_row >= n_rows || k >= n)
        return;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        u32 row = min(first_row + r, n_rows - 1);
        h[r] = work_of(p, row, target);
        sums[r] = load_four(p.out[target] + (u64)row * n, k, n);
    }
    for (u32 j = 0; j < p.args.n_ranks[target]; j += N)
        add_ranks<N, ROWS>(h, j, p.args.n_ranks[target], p.b[target], k, n, sums);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        if (first_row + r < n_rows)
            store_four(p.out[target] + (u64)(first_row + r) * n, k, n, sums[r]);
}

extern "C" __global__ void __launch_bounds__(LORA_UP_THREADS)
    lora_up(const __grid_constant__ struct lora_params p)
{
    ask_columns(p);
    wait_for_inputs();
    up<16, 1>(p);
}

extern "C" __global__ void __launch_bounds__(LORA_UP_THREADS)
    lora_up_many(const __grid_constant__ struct lora_params p)
{
    wait_for_inputs();
    up<2, LORA_UP_ROWS>(p);
}
