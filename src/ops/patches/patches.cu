// patches.cu - cuts pictures into patches, normalised by a table; see patches.h.
//
// Computes   out[r][c] = table[channel][pixel] for the patch of row r. Bound by memory.
//
//   patches        patches of any size: a lane takes single pixels, then the zeros behind them
//   patches_eight  lines of eights of pixels, which lie at multiples of 8 bytes: a lane takes eight, and
//                  stores eight columns of each channel together
//
//   row r:  | l0 | l1 | ... | l31 | l0 | ...     a warp per row, 8 rows per block; the table in shared memory
//
// No pipeline, no epilogue.
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "ops/patches/patches_cuda.h"

static __device__ __forceinline__ void put(const struct patches_params &p, u32 row, u32 column,
                                           const f32 (&v)[1])
{
    if (p.out)
        p.out[(u64)row * p.args.n_cols + column] = v[0];
    if (p.packed_out.at)
        pack_put(p.packed_out, row, column, v[0]);
}
// From a multiple of eight on, which lie together in rows and in tiles.
static __device__ __forceinline__ void put(const struct patches_params &p, u32 row, u32 column,
                                           const f32 (&v)[8])
{
    if (p.out) {
        float4 *out = (float4 *)(p.out + (u64)row * p.args.n_cols + column);
        out[0] = make_float4(v[0], v[1], v[2], v[3]);
        out[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
    if (p.packed_out.at) {
        u32 words[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            __nv_bfloat162 two = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
            words[i] = *(u32 *)&two;
        }
        *(uint4 *)packed_place(p.packed_out, row, column) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// The bytes of a lane's pixels, which are neighbours.
static __device__ __forceinline__ void load(const u8 *pixels, u8 (&bytes)[3])
{
#pragma unroll
    for (u32 i = 0; i < 3; i++)
        bytes[i] = pixels[i];
}
static __device__ __forceinline__ void load(const u8 *pixels, u8 (&bytes)[24])
{
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        uint2 eight = ((const uint2 *)pixels)[i];
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            bytes[8 * i + k] = (u8)((k < 4 ? eight.x : eight.y) >> 8 * (k % 4));
    }
}

// TOGETHER: pixels of a line that a lane takes.
template <u32 TOGETHER> static __device__ __forceinline__ void patch_rows(const struct patches_params &p)
{
    __shared__ f32 table[3 * 256];
    u32 row = blockIdx.x * (PATCHES_THREADS / 32) + threadIdx.x / 32, patch = p.args.patch, n = patch * patch;

    for (u32 i = threadIdx.x; i < 3 * 256; i += PATCHES_THREADS)
        table[i] = p.table[i];
    __syncthreads();
    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    u32 position = step_positions(p.step)[row], y0 = position / p.args.n_across * patch,
        x0 = position % p.args.n_across * patch;
    const u8 *tile = p.pixels + (u64)step_slots(p.step)[row] * p.args.side * p.args.side * 3;
    bool beyond = position >= p.args.n_across * p.args.n_across;
    for (u32 i = threadIdx.x % 32 * TOGETHER; i < n; i += 32 * TOGETHER) {
        u8 bytes[3 * TOGETHER] = { 0 };
        if (!beyond)
            load(tile + (u64)((y0 + i / patch) * p.args.side + x0 + i % patch) * 3, bytes);
#pragma unroll
        for (u32 channel = 0; channel < 3; channel++) {
            f32 v[TOGETHER];
#pragma unroll
            for (u32 k = 0; k < TOGETHER; k++)
                v[k] = beyond ? 0.0f : table[channel * 256 + bytes[3 * k + channel]];
            put(p, row, channel * n + i, v);
        }
    }
    const f32 zero[TOGETHER] = { 0 };
    for (u32 i = 3 * n + threadIdx.x % 32 * TOGETHER; i < p.args.n_cols; i += 32 * TOGETHER)
        put(p, row, i, zero);
}

extern "C" __global__ void __launch_bounds__(PATCHES_THREADS)
    patches(const __grid_constant__ struct patches_params p)
{
    patch_rows<1>(p);
}
extern "C" __global__ void __launch_bounds__(PATCHES_THREADS)
    patches_eight(const __grid_constant__ struct patches_params p)
{
    patch_rows<8>(p);
}
