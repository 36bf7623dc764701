// attend_all.cu - attend_all_plain: the operation as defined in attend_all.h, for any head, in fp32.
//
// Computes   out = softmax(scale * q . K) V   over the keys of the row's slot, or those within reach, for one
// head and row. Correct before fast: no key is shared between rows. attend_all_tile.cu is for the heads that
// most models have.
//
//   keys:  | chunk 0 | chunk 1 | ...     grid: (rows, heads); a chunk's scores lie in shared memory
//
// Online softmax: a running max and a running sum join the chunks. A thread sums the values of some dims. No
// pipeline, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/attend_all/attend_all_cuda.h"

enum { PLAIN_CHUNK = 1024, PLAIN_DIMS = 1024 / ALL_PLAIN_THREADS, PLAIN_WARPS = ALL_PLAIN_THREADS / 32 };

static __device__ __forceinline__ f32 block_max(f32 v, f32 *room)
{
    v = warp_max(v);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_max(room[threadIdx.x % PLAIN_WARPS]);
    __syncthreads();
    return v;
}

extern "C" __global__ void __launch_bounds__(ALL_PLAIN_THREADS)
    attend_all_plain(const __grid_constant__ struct attend_all_params p)
{
    __shared__ f32 weights[PLAIN_CHUNK], q[1024], room[33];
    u32 row = blockIdx.x, head_dim = p.args.head_dim, offset = blockIdx.y * head_dim, thread = threadIdx.x;
    u32 kv = blockIdx.y / (p.args.n_heads / p.args.n_kv_heads) * head_dim;
    u64 stride = (u64)p.args.n_heads * head_dim, kv_stride = (u64)p.args.n_kv_heads * head_dim;
    f32 sums[PLAIN_DIMS] = {}, row_max = 0, row_sum = 0;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    struct slot_rows keys = slot_rows_of(p.step, row);
    if (p.args.reach > 0) {
        keys.first = max(keys.first, row - min(row, p.args.reach));
        keys.end = min(keys.end, row + 1 + min(p.args.reach, keys.end - row));
    }
    for (u32 d = thread; d < head_dim; d += ALL_PLAIN_THREADS)
        q[d] = p.in[ATTEND_ALL_Q][row * stride + offset + d];
    __syncthreads();
    for (u32 first = keys.first; first < keys.end; first += PLAIN_CHUNK) {
        u32 n = min(keys.end - first, (u32)PLAIN_CHUNK);
        f32 chunk_max = -INFINITY, part = 0;
        for (u32 j = thread; j < n; j += ALL_PLAIN_THREADS) {
            const f32 *key = p.in[ATTEND_ALL_K] + (first + j) * kv_stride + kv;
            f32 score = 0;
            for (u32 d = 0; d < head_dim; d++)
                score += q[d] * key[d];
            weights[j] = score * p.args.scale;
            chunk_max = fmaxf(chunk_max, weights[j]);
        }
        chunk_max = block_max(chunk_max, room);
        f32 new_max = first == keys.first ? chunk_max : fmaxf(row_max, chunk_max);
        f32 rescale = first == keys.first ? 0 : expf(row_max - new_max);
        for (u32 j = thread; j < n; j += ALL_PLAIN_THREADS) {
            weights[j] = expf(weights[j] - new_max);
            part += weights[j];
        }
        row_sum = row_sum * rescale + block_sum(part, room);
#pragma unroll
        for (u32 i = 0; i < PLAIN_DIMS; i++) {
            u32 d = thread + i * ALL_PLAIN_THREADS;
            f32 sum = sums[i] * rescale;
            for (u32 j = 0; j < n && d < head_dim; j++)
                sum += weights[j] * p.in[ATTEND_ALL_V][(first + j) * kv_stride + kv + d];
            sums[i] = sum;
        }
        row_max = new_max;
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < PLAIN_DIMS; i++)
        if (thread + i * ALL_PLAIN_THREADS < head_dim)
            p.out[row * stride + offset + thread + i * ALL_PLAIN_THREADS] = sums[i] / row_sum;
}

// q, k or v as bf16 for attend_all_tile: a block takes a row. Rows are of whole groups of eight.
extern "C" __global__ void __launch_bounds__(ALL_PLAIN_THREADS)
    attend_all_halves(const __grid_constant__ struct attend_all_params p)
{
    u32 n = p.args.n_heads * p.args.head_dim / 4;
    const float4 *in = (const float4 *)p.in[blockIdx.y] + (u64)blockIdx.x * n;
    uint2 *out = (uint2 *)p.halves[blockIdx.y] + (u64)blockIdx.x * n;

    wait_for_inputs();
    if (blockIdx.x >= p.step->n_rows || !p.in[blockIdx.y])
        return;
    for (u32 i = threadIdx.x; i < n; i += ALL_PLAIN_THREADS) {
        __nv_bfloat162 low = __floats2bfloat162_rn(in[i].x, in[i].y),
                       high = __floats2bfloat162_rn(in[i].z, in[i].w);
        out[i] = make_uint2(*(u32 *)&low, *(u32 *)&high);
    }
}
