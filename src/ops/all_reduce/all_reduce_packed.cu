// all_reduce_packed.cu - an all-reduce of up to eight rows that writes the sum a second time, as the packed
// rows of int8 that the next product reads, multiplied by its norm.
//
//   sum[r][c] = rank 0's + rank 1's + ...;  eight columns a thread, four threads a block of 32 columns
//
// It saves the launch of pack_int8_split (pack_rows.cu), with the same bits: the norm's factor is left to the
// product, sums of squares are written for each 32 columns.
#include "device/cuda/exchange.cuh"
#include "ops/all_reduce/all_reduce_packed.h"
#include "gemm/cuda/packing_int8.cuh"

static __device__ __forceinline__ float4 times(const float4 &a, const float4 &b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

template <u32 N>
static __device__ __forceinline__ void reduce_two(const struct all_reduce_params &p, u64 turn, u64 i,
                                                  float4 (&sum)[2])
{
    uint4 own[2], came[2][N];

#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        own[k] = sendable(p.v[i + k]);
        send(p.peers, own[k], turn, i + k);
    }
#pragma unroll
    for (u32 k = 0; k < 2; k++)
        look<N>(p.peers, came[k], turn, i + k);
#pragma unroll
    for (u32 k = 0; k < 2; k++)
        p.v[i + k] = sum[k] = add_up<N>(p.peers, own[k], came[k], turn, i + k);
}

// All lanes of a warp call it.
static __device__ __forceinline__ void pack(const struct packed_out &next, u32 row, u32 at, bool exists,
                                            const float4 (&sum)[2], const float4 (&norm)[2])
{
    float4 a = times(sum[0], norm[0]), b = times(sum[1], norm[1]);
    const f32 numbers[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
    struct int8_eight e = to_int8(numbers);
    f32 low = squares_of_four(sum[0]), high = squares_of_four(sum[1]);

    if (exists)
        put_int8(packed_int8_eight(next.at, row, next.n_cols), row, at, e);
    low += __shfl_xor_sync(~0u, low, 2);
    high += __shfl_xor_sync(~0u, high, 2);
    f32 squares = low + high;
    squares += __shfl_xor_sync(~0u, squares, 1);
    if (exists && next.norm && at % 4 == 0)
        next.squares[at / 4 * 8 + row] = squares;
}

template <u32 N>
static __device__ __forceinline__ void reduce_packed(const struct all_reduce_packed_params &p)
{
    u32 i = blockIdx.x * EXCHANGE_THREADS + threadIdx.x, each = p.sum.n_cols / 8, row = i / each,
        at = i % each;
    bool exists = row < n_rows_of(p.sum.step, p.sum.rows);
    const float4 *norms = (const float4 *)p.next.norm + 2 * at;
    float4 sum[2] = { make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0) },
           norm[2] = { make_float4(1, 1, 1, 1), make_float4(1, 1, 1, 1) };
    u64 turn = turn_of(p.sum);

    if (p.next.norm) {
        norm[0] = norms[0];
        norm[1] = norms[1];
    }
    wait_for_inputs();
    if (exists)
        reduce_two<N>(p.sum, turn, 2 * (u64)i, sum);
    pack(p.next, row, at, exists, sum, norm);
}

#define ALL_REDUCE_PACKED(n)                                                             \
    extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS, EXCHANGE_FEW_BLOCKS)  \
        all_reduce_packed_##n(const __grid_constant__ struct all_reduce_packed_params p) \
    {                                                                                    \
        reduce_packed<n>(p);                                                             \
    }
ALL_REDUCE_PACKED(2)
ALL_REDUCE_PACKED(4)
ALL_REDUCE_PACKED(8)
