// attend_all_tile.cuh - attention of an encoder but for its products: slots, copies, and online softmax
// (FlashAttention-2; Dao, 2023).
//
// Computes   out = softmax(scale * q . K) V   for 128 rows of the step and one head. Bound by arithmetic.
//
//                         64 keys                 the next 64, on their way
//                      +--------------------+    +--------------------+
//   128 rows   warp 0  |  16 rows           |    |                    |      grid: (tiles of 128 rows, heads)
//              warp 1  |                    |    |                    |      block: 8 warps; two blocks an SM
//              ...     |                    |    |                    |
//                      +--------------------+    +--------------------+
//
// q, K and V are rows of bf16. Shared memory: K and V of two stages, filled by cp.async; PRODUCTS says how
// they lie there. Rows of several slots: a block takes the rows of each slot in turn, over that slot's keys.
// Sums over keys go in their order, so a row's result does not depend on what else is in the step. Epilogue:
// fp32 rows.
#pragma once
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/int8_tiles.cuh"
#include "ops/attend_all/attend_all_cuda.h"

static __device__ __forceinline__ u32 two_halves(f32 low, f32 high)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
    return *(u32 *)&h;
}
// A weight far below any other may become zero.
static __device__ __forceinline__ f32 exp2_near(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ void copy_16(u32 to, const void *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0));
}

// A lane's part of 16 rows: sums so far, of rows g and g + 8 of its warp. KEYS: of a tile.
template <u32 D, u32 KEYS = ALL_TILE_KEYS> struct all_rows {
    const struct attend_all_params &p;
    u32 shared, head;
    f32 out[D / 8][4];
    f32 row_max[2], row_sum[2];

    __device__ __forceinline__ const __nv_bfloat16 *half_at(u32 which, u32 row) const
    {
        return (const __nv_bfloat16 *)p.halves[which] + ((u64)row * p.args.n_heads + head) * D;
    }

    __device__ __forceinline__ void begin()
    {
        row_max[0] = row_max[1] = -INFINITY;
        row_sum[0] = row_sum[1] = 0;
#pragma unroll
        for (u32 n = 0; n < D / 8; n++)
            out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    }

    // Of keys that do not exist.
    static __device__ __forceinline__ void mask(f32 (&s)[KEYS / 8][4], u32 n)
    {
#pragma unroll
        for (u32 i = 0; i < KEYS / 2; i++)
            if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= n)
                s[i / 4][i % 4] = -INFINITY;
    }

    // Scores become weights. n: keys that exist. rescale: of what was summed before.
    __device__ __forceinline__ void soften(f32 (&s)[KEYS / 8][4], u32 n, f32 (&rescale)[2])
    {
        const f32 scale = p.args.scale * 1.4426950408889634f; // base 2 from here on
        f32 base[2];
        if (n < KEYS)
            mask(s, n);
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            f32 new_max = row_max[which];
#pragma unroll
            for (u32 i = 0; i < KEYS / 8; i++)
                new_max = fmaxf(new_max, fmaxf(s[i][2 * which], s[i][2 * which + 1]));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 1));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 2));
            rescale[which] = exp2_near((row_max[which] - new_max) * scale);
            row_max[which] = new_max;
            base[which] = new_max * scale;
            row_sum[which] *= rescale[which];
        }
#pragma unroll
        for (u32 i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                s[i][j] = exp2_near(fmaf(s[i][j], scale, -base[j / 2]));
                row_sum[j / 2] += s[i][j];
            }
    }
    __device__ __forceinline__ void rescale_out(const f32 (&rescale)[2])
    {
#pragma unroll
        for (u32 i = 0; i < D / 8; i++)
#pragma unroll
            for (u32 j = 0; j < 4; j++)
                out[i][j] *= rescale[j / 2];
    }

    __device__ __forceinline__ void put(u32 row, bool exists, u32 which) const
    {
        f32 sum = row_sum[which];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if constexpr (D == INT8_SCALE_COLUMNS)
            if (p.packed_out.form == PACKING_INT8_TILES)
                put_int8(row, exists, which, 1 / sum);
        if (!exists)
            return;
        u32 column = head * D + threadIdx.x % 4 * 2;
        f32 *to = p.out ? p.out + (u64)row * p.args.n_heads * D + column : nullptr;
#pragma unroll
        for (u32 n = 0; n < D / 8; n++) {
            float2 v = make_float2(out[n][2 * which] / sum, out[n][2 * which + 1] / sum);
            if (to)
                *(float2 *)(to + n * 8) = v;
            if (p.packed_out.at && p.packed_out.form != PACKING_INT8_TILES)
                pack_put(p.packed_out, row, column + n * 8, v.x, v.y);
        }
    }

    // A head's row has one scale.
    __device__ __forceinline__ void put_int8(u32 row, bool exists, u32 which, f32 factor) const
    {
        u32 column = head * D;
        u8 *chunk = p.packed_out.at + int8_chunk_at(row, column, p.packed_out.n_cols);
        f32 top = 0;
#pragma unroll
        for (u32 n = 0; n < D / 8; n++)
            top = int8_higher(int8_higher(top, out[n][2 * which]), out[n][2 * which + 1]);
        top = int8_highest<4>(top) * factor;
        f32 inverse = int8_inverse(top) * factor;
#pragma unroll
        for (u32 n = 0; n < D / 8; n += 2) {
            const f32 *a = &out[n][2 * which], *b = &out[n + 1][2 * which];
            u32 word = int8_word(int8_two(a[0], a[1], inverse), int8_two(b[0], b[1], inverse));
            if (exists)
                *(u32 *)(chunk + int8_number_at(row, column + 8 * n + int8_word_column())) = word;
        }
        if (exists && threadIdx.x % 4 == 0)
            *(f32 *)(chunk + int8_scale_at(row, column)) = int8_scale(top);
    }
};

// The weights of a tile's keys as the first factor of products of 16 keys.
template <u32 N>
static __device__ __forceinline__ void pack_weights(const f32 (&s)[2 * N][4], u32 (&weights)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < 4 * N; i++) {
        const f32 *v = s[i / 4 * 2 + i % 4 / 2] + i % 2 * 2;
        weights[i / 4][i % 4] = two_halves(v[0], v[1]);
    }
}

// PRODUCTS: place of a key's 16-byte word, SIDE bytes of a tile of K or V, clear, score and sum.
template <u32 D, class PRODUCTS> struct all_tile : all_rows<D> {
    static constexpr u32 STEPS = (D + 15) / 16, SIDE = PRODUCTS::SIDE;
    using all_rows<D>::shared;
    using all_rows<D>::half_at;
    u32 q[STEPS][4];

    __device__ __forceinline__ void clear() const
    {
        PRODUCTS::clear(shared);
    }

    // K of a stage, then V. What lies beyond the slot's keys is zero.
    __device__ __forceinline__ void fetch(const struct slot_rows &keys, u32 first, u32 stage) const
    {
        constexpr u32 WORDS = D / 8;
        u32 to = shared + stage * 2 * SIDE;
#pragma unroll
        for (u32 i = threadIdx.x; i < 2 * ALL_TILE_KEYS * WORDS; i += ALL_TILE_THREADS) {
            u32 side = i / (ALL_TILE_KEYS * WORDS), key = i / WORDS % ALL_TILE_KEYS, word = i % WORDS;
            bool exists = first + key < keys.end;
            copy_16(to + side * SIDE + PRODUCTS::place(key, word),
                    half_at(ATTEND_ALL_K + side, exists ? first + key : keys.first) + word * 8, exists);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    __device__ __forceinline__ void load_q(u32 row, bool exists, u32 which)
    {
        const u32 *from = (const u32 *)half_at(ATTEND_ALL_Q, row) + threadIdx.x % 4;
#pragma unroll
        for (u32 k = 0; k < STEPS; k++)
#pragma unroll
            for (u32 half = 0; half < 2; half++)
                q[k][which + 2 * half] = exists && k * 16 + half * 8 < D ? from[k * 8 + half * 4] : 0;
    }

    __device__ __forceinline__ void tile(u32 at, u32 n)
    {
        f32 s[ALL_TILE_KEYS / 8][4] = {}, rescale[2];
        u32 weights[ALL_TILE_KEYS / 16][4];

        PRODUCTS::score(q, at, s);
        this->soften(s, n, rescale);
        this->rescale_out(rescale);
        pack_weights(s, weights);
        PRODUCTS::sum(weights, at + SIDE, this->out);
    }

    // Rows [from, end) of one slot, of the block's that begin at `base`.
    __device__ __forceinline__ void run(const struct slot_rows &keys, u32 base, u32 from, u32 end)
    {
        u32 row = base + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        bool mine[2] = { row >= from && row < end, row + 8 >= from && row + 8 < end };

        load_q(mine[0] ? row : from, mine[0], 0);
        load_q(mine[1] ? row + 8 : from, mine[1], 1);
        this->begin();
        fetch(keys, keys.first, 0);
        for (u32 key = keys.first, stage = 0; key < keys.end; key += ALL_TILE_KEYS, stage ^= 1) {
            fetch(keys, key + ALL_TILE_KEYS, stage ^ 1); // beyond the last: zeros
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            __syncthreads();
            tile(shared + stage * 2 * SIDE, keys.end - key);
            __syncthreads();
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        this->put(row, mine[0], 0);
        this->put(row + 8, mine[1], 1);
    }
};

// TILE: all_rows with clear and run.
template <class TILE> static __device__ __forceinline__ void attend_rows(const struct attend_all_params &p)
{
    extern __shared__ __align__(1024) unsigned char all_shared[];
    TILE tile = { { p, (u32)__cvta_generic_to_shared(all_shared), blockIdx.y } };
    u32 base = blockIdx.x * ALL_TILE_ROWS, end = min(base + ALL_TILE_ROWS, p.step->n_rows);

    tile.clear();
    wait_for_inputs();
    for (u32 row = base; row < end;) {
        struct slot_rows keys = slot_rows_of(p.step, row);
        u32 run_end = min(keys.end, end);
        tile.run(keys, base, row, run_end);
        row = run_end;
    }
}
