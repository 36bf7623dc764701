// trellis_experts.cu - products with the codes of chosen experts; see trellis_experts.h. What surrounds them
// is trellis_experts_rows.cu.
//
// A group is up to 16 entries that chose the same expert. A block takes 128 outputs of the expert's matrix,
// some of its columns, and a group:
//
//                k: a split's blocks of 128 columns, divided among 4 warps
//              +------+------+------+------+
//   128        | warp | warp | warp | warp |   x  8 or 16 entries
//   outputs    |  0   |  2   |  4   |  6   |
//   of a       +------+------+------+------+
//   matrix     |  1   |  3   |  5   |  7   |      grid: (matrices' blocks of 128 outputs, splits, groups)
//              +------+------+------+------+
//
// Sums are kept in units of the scale of the block of columns that is being added, as running sums of softmax
// are in units of the running maximum. Codes and activations are read into registers, a tile of columns
// ahead; codes become fragments there (trellis_experts_decode.cuh). The warps' sums meet in shared
// memory, in the order of the columns; the splits' in the next kernel. No block waits for another.
#include "ops/trellis_experts/trellis_experts_cuda.h"
#include "ops/trellis_experts/trellis_experts_decode.cuh"

struct entry_group {
    u32 expert, first, n; // entries [first, first + n) of the list, or, without one, entry `first`
};

// The group of this block, by all its threads.
static __device__ __forceinline__ struct entry_group
find_group(const struct trellis_experts_product_params &p, u32 most)
{
    __shared__ struct entry_group found;
    u32 at = blockIdx.z;

    if (!p.first)
        return { (u32)p.ids[at], at, at < p.step->n_rows * p.n_slots };
    if (threadIdx.x == 0)
        found = { 0, 0, 0 };
    __syncthreads();
    for (u32 e = threadIdx.x; e < p.n_experts; e += TRELLIS_EXPERTS_WARPS * 32) {
        u32 first = p.first[e], end = p.first[e + 1], group = at - trellis_experts_group(first, e, most);
        if (at >= trellis_experts_group(first, e, most) && first + group * most < end)
            found = { e, first + group * most, min(most, end - first - group * most) };
    }
    __syncthreads();
    return found;
}

template <u32 BITS, u32 CODEBOOK, u32 EIGHTS> struct experts_product {
    static constexpr u32 TILES = TRELLIS_EXPERTS_TILES, TILE_WORDS = 8 * BITS,
                         WINDOW_WORDS = code_window<BITS>::WORDS;

    const struct trellis_experts_product_params &p;
    f32 (*all)[EXL3_BLOCK]; // [TRELLIS_EXPERTS_SHARERS][EIGHTS * 8], shared memory
    const struct entry_group &group;
    u32 lane, warp, matrix, first_out, first_block, n_blocks;
    const u8 *row[EIGHTS];      // that this lane reads
    f32 sums[TILES][EIGHTS][4]; // of outputs lane / 4 + {0, 8}: rows lane % 4 * 2 + {0, 1} of each eight

    struct step_words { // a lane's part of a tile of columns
        u32 codes[TILES][WINDOW_WORDS];
        uint2 x[EIGHTS];
    };

    __device__ __forceinline__ experts_product(const struct trellis_experts_product_params &params,
                                               f32 (*shared)[EXL3_BLOCK], const struct entry_group &entries)
        : p(params), all(shared), group(entries), lane(threadIdx.x & 31), warp(threadIdx.x >> 5)
    {
        u32 blocks = p.n_out / EXL3_BLOCK;

        matrix = p.matrix + blockIdx.x / blocks;
        first_out = blockIdx.x % blocks * EXL3_BLOCK;
        first_block = blockIdx.y * p.split_blocks;
        n_blocks = min(p.split_blocks, p.n_in / EXL3_BLOCK - first_block);
#pragma unroll
        for (u32 e = 0; e < EIGHTS; e++)
            row[e] = p.rows + place_of(e * 8 + lane / 4) * p.n_in * 2 + lane % 4 * 8;
#pragma unroll
        for (u32 i = 0; i < TILES * EIGHTS * 4; i++)
            sums[i / 4 / EIGHTS][i / 4 % EIGHTS][i % 4] = 0;
    }
    __device__ __forceinline__ u32 entry_at(u32 i) const
    {
        return p.first ? p.entries[group.first + i] : group.first;
    }
    // Of entry i's row. One that does not exist is the first one again: nobody reads its sums.
    __device__ __forceinline__ u64 place_of(u32 i) const
    {
        return (u64)entry_at(i < group.n ? i : 0) * p.n_matrices + matrix;
    }

    __device__ __forceinline__ void take(struct step_words &w, const u32 *codes, u32 tile,
                                         const struct code_window<BITS> &window) const
    {
#pragma unroll
        for (u32 i = 0; i < TILES; i++)
#pragma unroll
            for (u32 k = 0; k < WINDOW_WORDS; k++)
                w.codes[i][k] = __ldg(codes + i * TILE_WORDS + window.at[k]);
#pragma unroll
        for (u32 e = 0; e < EIGHTS; e++)
            w.x[e] = *(const uint2 *)(row[e] + tile * EXL3_TILE * 2);
    }

    __device__ __forceinline__ void multiply_tile(const struct step_words &w, u32 skip)
    {
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            u32 s[8];
            decode_states<BITS>(w.codes[i], skip, s);
            const u32 a[4] = { values_of(CODEBOOK, s[0], s[1]), values_of(CODEBOOK, s[4], s[5]),
                               values_of(CODEBOOK, s[2], s[3]), values_of(CODEBOOK, s[6], s[7]) };
#pragma unroll
            for (u32 e = 0; e < EIGHTS; e++)
                mma_f16(sums[i][e], a, w.x[e].x, w.x[e].y);
        }
    }

    // Scales of this lane's rows of sums in a block of columns.
    __device__ __forceinline__ void take_scales(u32 block, f32 (&scale)[EIGHTS * 2]) const
    {
#pragma unroll
        for (u32 i = 0; i < EIGHTS * 2; i++)
            scale[i] =
                __ldcg(p.scales + place_of(i / 2 * 8 + lane % 4 * 2 + i % 2) * (p.n_in / EXL3_BLOCK) + block);
    }
    __device__ __forceinline__ void scale_sums(const f32 (&factor)[EIGHTS * 2])
    {
#pragma unroll
        for (u32 i = 0; i < TILES * EIGHTS * 4; i++)
            sums[i / 4 / EIGHTS][i / 4 % EIGHTS][i % 4] *= factor[i / 4 % EIGHTS * 2 + i % 2];
    }

    __device__ __forceinline__ void multiply()
    {
        const struct code_window<BITS> window(lane);
        u32 tile = first_block * 8 + n_blocks * 8 * (warp / 2) / TRELLIS_EXPERTS_SHARERS,
            end = first_block * 8 + n_blocks * 8 * (warp / 2 + 1) / TRELLIS_EXPERTS_SHARERS,
            across = p.n_out / EXL3_TILE;
        const u32 *codes =
            (const u32 *)(p.stacks[matrix - p.matrix] + group.expert * exl3_bytes(p.n_in, p.n_out, BITS)) +
            ((u64)tile * across + first_out / EXL3_TILE + warp % 2 * TILES) * TILE_WORDS;
        f32 scale[EIGHTS * 2];
        struct step_words now, next;

        take(next, codes, tile, window); // every warp has some: a block of columns is eight tiles
        take_scales(tile / 8, scale);
        for (;;) {
            u32 last = min(end, (tile | 7) + 1);
#pragma unroll 1
            for (; tile < last; tile++) {
                now = next;
                codes += across * TILE_WORDS;
                if (tile + 1 < end)
                    take(next, codes, tile + 1, window);
                multiply_tile(now, window.skip);
            }
            if (tile == end)
                break;
            f32 other[EIGHTS * 2], factor[EIGHTS * 2];
            take_scales(tile / 8, other);
#pragma unroll
            for (u32 i = 0; i < EIGHTS * 2; i++) {
                factor[i] = scale[i] / other[i];
                scale[i] = other[i];
            }
            scale_sums(factor);
        }
        scale_sums(scale);
    }

    __device__ __forceinline__ void store_sums()
    {
        f32(*own)[EXL3_BLOCK] = all + warp / 2 * EIGHTS * 8;

#pragma unroll
        for (u32 i = 0; i < TILES; i++)
#pragma unroll
            for (u32 e = 0; e < EIGHTS * 4; e++) {
                u32 r = e / 4 * 8 + lane % 4 * 2 + e % 2,
                    o = (warp % 2 * TILES + i) * EXL3_TILE + e % 4 / 2 * 8 + lane / 4;
                if (r < group.n)
                    own[r][o] = sums[i][e / 4][e % 4];
            }
    }

    __device__ __forceinline__ void write() const
    {
        f32 *to = p.partial + blockIdx.y * p.split_stride + first_out;

        for (u32 i = threadIdx.x; i < group.n * EXL3_BLOCK; i += TRELLIS_EXPERTS_WARPS * 32) {
            u32 r = i / EXL3_BLOCK, o = i % EXL3_BLOCK;
            f32 sum = all[r][o];
#pragma unroll
            for (u32 sharer = 1; sharer < TRELLIS_EXPERTS_SHARERS; sharer++)
                sum += all[sharer * EIGHTS * 8 + r][o];
            to[((u64)entry_at(r) * p.n_matrices + matrix) * p.n_out + o] = sum;
        }
    }
};

template <u32 BITS, u32 CODEBOOK, u32 EIGHTS>
static __device__ __forceinline__ void multiply_experts(const struct trellis_experts_product_params &p)
{
    __shared__ f32 all[TRELLIS_EXPERTS_SHARERS * EIGHTS * 8][EXL3_BLOCK];

    wait_for_inputs();
    const struct entry_group group = find_group(p, EIGHTS * 8);
    if (group.n == 0)
        return;
    struct experts_product<BITS, CODEBOOK, EIGHTS> product(p, all, group);
    product.multiply();
    product.store_sums();
    __syncthreads();
    product.write();
}

#define EXPERTS_KERNEL(bits, name, codebook, eights)                                              \
    extern "C" __global__ void __launch_bounds__(TRELLIS_EXPERTS_WARPS * 32, eights == 1 ? 3 : 2) \
        trellis_experts_##name##_##bits##_##eights(                                               \
            const __grid_constant__ struct trellis_experts_product_params p)                      \
    {                                                                                             \
        multiply_experts<bits, codebook, eights>(p);                                              \
    }
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, 3inst, EXL3_3INST, 1)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, mcg, EXL3_MCG, 1)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, mul1, EXL3_MUL1, 1)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, 3inst, EXL3_3INST, 2)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, mcg, EXL3_MCG, 2)
TRELLIS_EACH_WIDTH(EXPERTS_KERNEL, mul1, EXL3_MUL1, 2)

// The same in fp32, entry by entry: a warp takes 16 outputs, all columns. For checks alone.
//
//   grid: (matrices' blocks of 128 outputs, 1, entries)
extern "C" __global__ void __launch_bounds__(TRELLIS_EXPERTS_WARPS * 32)
    trellis_experts_exact(const __grid_constant__ struct trellis_experts_product_params p)
{
    u32 lane = threadIdx.x & 31, entry = blockIdx.z, blocks = p.n_out / EXL3_BLOCK,
        matrix = p.matrix + blockIdx.x / blocks, tile = blockIdx.x % blocks * 8 + threadIdx.x / 32;
    f32 sums[2] = { 0, 0 };

    wait_for_inputs();
    if (entry >= p.step->n_rows * p.n_slots)
        return;
    u64 place = (u64)entry * p.n_matrices + matrix;
    const f32 *x = (const f32 *)p.rows + place * p.n_in + lane % 4 * 2;
    const u32 *codes =
        (const u32 *)(p.stacks[matrix - p.matrix] + (u32)p.ids[entry] * exl3_bytes(p.n_in, p.n_out, p.bits)) +
        (u64)tile * 8 * p.bits;
    for (u32 in = 0; in < p.n_in; in += EXL3_TILE, codes += (u64)p.n_out / EXL3_TILE * 8 * p.bits) {
        f32 four[4] = { x[in], x[in + 1], x[in + 8], x[in + 9] };
#pragma unroll
        for (u32 k = 0; k < 8; k += 2) {
            u32 two = values_of(p.codebook, state_at(codes, p.bits, 8 * lane + k),
                                state_at(codes, p.bits, 8 * lane + k + 1));
            float2 v = __half22float2(*(__half2 *)&two);
            sums[k / 4] += four[k % 4] * v.x + four[k % 4 + 1] * v.y;
        }
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        sums[h] += __shfl_xor_sync(~0u, sums[h], 1);
        sums[h] += __shfl_xor_sync(~0u, sums[h], 2);
        if (lane % 4 == 0)
            p.partial[place * p.n_out + tile * EXL3_TILE + h * 8 + lane / 4] = sums[h];
    }
}
