// trellis_expand.cu - EXL3 codes as the matrix that activations are multiplied with, transforms and factors
// included, in BF16 or F32: for many rows, which an ordinary product then multiplies with it; see trellis.h.
//
// A block takes 128 x 128 numbers: it decodes them into shared memory, applies H along the inputs, then along
// the outputs, and writes rows of outputs.
//
//   grid: (blocks of 128 columns, blocks of 128 rows); block: 256 threads
//
// H is 16 by 8: sixteen numbers a thread, then eight. A pitch of 129 has no bank conflicts along either.
#include "ops/trellis/trellis_decode.cuh"

enum { EXPAND_PITCH = EXL3_BLOCK + 1 };

static __device__ __forceinline__ u32 state_of(const u32 *tile, u32 bits, u32 position)
{
    u32 first = ((position + 1) * bits + 256 * bits - 16) % (256 * bits), word = first / 32;
    u32 next = word + 1 == 8 * bits ? 0 : word + 1;

    return __funnelshift_l(__ldg(tile + next), __ldg(tile + word), first % 32) >> 16;
}

static __device__ __forceinline__ u32 two_of(const struct trellis_expand_params &p, u32 first, u32 second)
{
    return p.factor ? two_of_halves(first, second, p.factor, p.more) : two_of_mul1(first, second);
}

// [input][output]
static __device__ __forceinline__ void decode(const struct trellis_expand_params &p, f32 *block)
{
    u32 lane = threadIdx.x & 31, out = p.first / EXL3_BLOCK + blockIdx.y;

    for (u32 i = threadIdx.x >> 5; i < 64; i += TRELLIS_EXPAND_THREADS / 32) {
        u64 tile = (u64)(blockIdx.x * 8 + i / 8) * (p.n_out / EXL3_TILE) + out * 8 + i % 8;
        const u32 *codes = (const u32 *)p.codes + tile * 8 * p.bits;
#pragma unroll
        for (u32 k = 0; k < 8; k += 2) {
            u32 two =
                two_of(p, state_of(codes, p.bits, 8 * lane + k), state_of(codes, p.bits, 8 * lane + k + 1));
            float2 v = __half22float2(*(__half2 *)&two);
            u32 row = i / 8 * 16 + lane % 4 * 2 + k / 2 % 2 * 8, column = i % 8 * 16 + lane / 4 + k / 4 * 8;
            block[row * EXPAND_PITCH + column] = v.x;
            block[(row + 1) * EXPAND_PITCH + column] = v.y;
        }
    }
}

// Sums and differences of N numbers that lie `step` apart.
template <u32 N> static __device__ __forceinline__ void turn_some(f32 *at, u32 step)
{
    f32 v[N];

#pragma unroll
    for (u32 i = 0; i < N; i++)
        v[i] = at[i * step];
#pragma unroll
    for (u32 apart = 1; apart < N; apart *= 2)
#pragma unroll
        for (u32 i = 0; i < N; i++)
            if (!(i & apart)) {
                f32 a = v[i], b = v[i + apart];
                v[i] = a + b;
                v[i + apart] = a - b;
            }
#pragma unroll
    for (u32 i = 0; i < N; i++)
        at[i * step] = v[i];
}

// H, unscaled, of each line of 128 numbers `step` apart; lines lie `next` apart. Two threads have a line.
static __device__ __forceinline__ void turn_lines(f32 *block, u32 step, u32 next)
{
    f32 *line = block + threadIdx.x % EXL3_BLOCK * next;
    u32 half = threadIdx.x / EXL3_BLOCK;

    for (u32 i = half * 4; i < half * 4 + 4; i++)
        turn_some<16>(line + i * step, 8 * step);
    __syncthreads();
    for (u32 i = half * 8; i < half * 8 + 8; i++)
        turn_some<8>(line + i * 8 * step, step);
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(TRELLIS_EXPAND_THREADS)
    trellis_expand(const __grid_constant__ struct trellis_expand_params p)
{
    f32 *block = (f32 *)trellis_shared;
    u32 column = blockIdx.x * EXL3_BLOCK + threadIdx.x % EXL3_BLOCK;

    decode(p, block);
    __syncthreads();
    turn_lines(block, EXPAND_PITCH, 1);
    turn_lines(block, 1, EXPAND_PITCH);
    wait_for_inputs(); // an earlier product may still read what lies there
    if (column >= p.n_cols)
        return;
    f32 factor = half_at(p.suh, column) * (1.0f / EXL3_BLOCK);
    for (u32 i = threadIdx.x / EXL3_BLOCK; i < EXL3_BLOCK; i += TRELLIS_EXPAND_THREADS / EXL3_BLOCK) {
        u32 row = blockIdx.y * EXL3_BLOCK + i;
        if (row >= p.n_rows)
            break;
        f32 v = block[threadIdx.x % EXL3_BLOCK * EXPAND_PITCH + i] * half_at(p.svh, p.first + row) * factor;
        u64 at = (u64)row * p.n_cols + column;
        if (p.exact)
            ((f32 *)p.to)[at] = v;
        else
            ((__nv_bfloat16 *)p.to)[at] = __float2bfloat16_rn(v);
    }
}
