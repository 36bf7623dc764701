// trellis_experts_rows.cu - what surrounds the products with experts' codes; see trellis_experts.h. A warp
// has 128 numbers, lane l those from 4 l on, and transforms them by shuffles.
//
//   trellis_experts_turn    in by gate's and up's factors, transformed
//   trellis_experts_hidden  their sums transformed back and activated, then transformed for down
//   trellis_experts_sum     down's sums transformed back, and a row's slots added
//
// Bound by memory; no pipelines and no tiles.
#include "ops/trellis_experts/trellis_experts_rows.cuh"

// No scale is smaller: the products divide by scales.
#define LEAST_SCALE 1e-20f

// This warp's place among all warps of a grid of one dimension.
static __device__ __forceinline__ u32 warp_place()
{
    return blockIdx.x * TRELLIS_EXPERTS_WARPS + threadIdx.x / 32;
}

// 128 numbers, transformed, to block `block` of a row.
static __device__ __forceinline__ void store_row(const struct trellis_experts_params &p, f32 (&v)[4],
                                                 u8 *rows, f32 *scales, u64 row, u32 block, u32 n_in)
{
    u32 lane = threadIdx.x & 31;
    f32 most = LEAST_SCALE;

    turn_128(v);
    if (p.exact) {
        *(float4 *)(rows + (row * n_in + block * EXL3_BLOCK + 4 * lane) * 4) =
            make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        most = fmaxf(most, fabsf(v[i]));
    most = warp_max(most);
    f32 back = 1 / most;
    // a lane of the product reads the four numbers 2 j + {0, 1, 8, 9} of a tile as one
    u32 *to = (u32 *)(rows + (row * n_in + block * EXL3_BLOCK + lane / 4 * EXL3_TILE) * 2) + lane % 2 * 4 +
              lane % 4 / 2;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        __half2 both = __floats2half2_rn(v[2 * i] * back, v[2 * i + 1] * back);
        to[2 * i] = *(u32 *)&both;
    }
    if (lane == 0)
        scales[row * (n_in / EXL3_BLOCK) + block] = most;
}

extern "C" __global__ void __launch_bounds__(TRELLIS_EXPERTS_WARPS * 32)
    trellis_experts_turn(const __grid_constant__ struct trellis_experts_params p)
{
    u32 blocks = p.n_in / EXL3_BLOCK, block = warp_place() % blocks, row = warp_place() / blocks,
        entry = row / 2, first = block * EXL3_BLOCK + (threadIdx.x & 31) * 4;
    f32 v[4];

    wait_for_inputs();
    if (entry >= p.step->n_rows * p.n_slots)
        return;
    const f32 *in = p.in + (u64)(entry / p.n_slots) * p.n_cols;
    const u16 *suh = factors_of(p, row % 2 ? TRELLIS_UP : TRELLIS_GATE, expert_of(p, entry));
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] = first + i < p.n_cols ? in[first + i] * half_at(suh, first + i) : 0;
    store_row(p, v, p.of_up, p.up_scales, row, block, p.n_in);
}

extern "C" __global__ void __launch_bounds__(TRELLIS_EXPERTS_WARPS * 32)
    trellis_experts_hidden(const __grid_constant__ struct trellis_experts_params p)
{
    u32 blocks = p.n_hidden / EXL3_BLOCK, block = warp_place() % blocks, entry = warp_place() / blocks;
    f32 v[4];

    wait_for_inputs();
    if (entry >= p.step->n_rows * p.n_slots)
        return;
    take_hidden(p, entry, block, v);
    store_row(p, v, p.of_down, p.down_scales, entry, block, p.n_hidden);
}

// A block takes 128 columns of a row, its warps the slots in turn.
extern "C" __global__ void __launch_bounds__(TRELLIS_EXPERTS_WARPS * 32)
    trellis_experts_sum(const __grid_constant__ struct trellis_experts_params p)
{
    __shared__ f32 parts[ROUTE_MAX_SLOTS][EXL3_BLOCK];
    u32 row = blockIdx.y, first = blockIdx.x * EXL3_BLOCK, lane = threadIdx.x & 31,
        column = first + threadIdx.x;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    const f32 *weights = p.weights + (u64)row * (p.n_slots + 1);
    for (u32 s = threadIdx.x / 32; s < p.n_slots; s += TRELLIS_EXPERTS_WARPS) {
        u32 entry = row * p.n_slots + s;
        const u16 *svh = factors_of(p, TRELLIS_DOWN, expert_of(p, entry)) + p.n_hidden + first;
        f32 v[4], weight = weights[s];
        take_sums(p.partial + (u64)entry * p.n_in + first + 4 * lane, p.n_splits, p.split_stride, v);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            parts[s][4 * lane + i] = weight * (v[i] * half_at(svh, 4 * lane + i));
    }
    __syncthreads();
    if (threadIdx.x >= EXL3_BLOCK || column >= p.n_cols)
        return;
    u64 at = (u64)row * p.n_cols + column;
    f32 sum = 0;
    for (u32 s = 0; s < p.n_slots; s++)
        sum += parts[s][threadIdx.x];
    sum += p.shared ? weights[p.n_slots] * p.shared[at] : 0;
    p.out[at] = (p.add ? p.add[at] : 0) + sum;
}
