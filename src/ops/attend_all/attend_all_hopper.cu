// attend_all_hopper.cu - attention of an encoder on Hopper, heads of 64, by wgmma, with the softmax of a tile
// behind the products of its neighbours (FlashAttention-3; Shah et al., 2024).
//
// Computes   S = q K^T and O += P V   for the tile that attend_all_tile.cuh draws.
//
//              64 keys (N side)              64 dims (N side)
//           +--------------------+        +--------------------+
//   64 rows |  S, in registers   |   P V: |  O, in registers   |   block: two warpgroups of 64 rows each
//   (M)     +--------------------+        +--------------------+
//
//   products   | S 1 | P 0 V      | S 2 | P 1 V      |
//   softmax          | of tile 1        | of tile 2        a warpgroup; four of them share an SM
//
// Pipeline: four stages of K and V, filled by cp.async, and a barrier a tile. P is read from registers, q, K
// and V from shared memory, where 64 dims are a row of 128 bytes, 16-byte words swizzled within 8 rows.
// Epilogue: attend_all_tile.cuh. Images of other architectures hold no such kernel.
#include "gemm/cuda/wgmma.cuh"
#include "ops/attend_all/attend_all_tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Keys of a tile by 16-byte words of their dims.
enum { WORDS = 8, SIDE = ALL_TILE_KEYS * 128, PASS_ROWS = ALL_TILE_THREADS / WORDS };

static __device__ __forceinline__ u32 place(u32 row, u32 word)
{
    return row * 128 + (word ^ row % 8) * 16;
}

// P V: the second factor's columns lie side by side.
static __device__ __forceinline__ void wgmma_sum(f32 (&d)[8][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" N32
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// What reads sums stays behind the wait, what writes them before the products.
static __device__ __forceinline__ void settle(f32 (&d)[8][4])
{
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
static __device__ __forceinline__ void commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All products have ended but the last PENDING groups.
template <u32 PENDING> static __device__ __forceinline__ void finish(f32 (&d)[8][4])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    settle(d);
}

struct hopper_tile : all_rows<64> {
    __device__ __forceinline__ void clear() const
    {
    }
    __device__ __forceinline__ u32 stage_at(u32 tile) const
    {
        return shared + ALL_Q_BYTES + tile % ALL_HOPPER_STAGES * 2 * SIDE;
    }

    // K of a tile, then V. What lies beyond the slot's keys is zero.
    __device__ __forceinline__ void fetch(const struct slot_rows &keys, u32 tile) const
    {
        u32 to = stage_at(tile), word = threadIdx.x % WORDS;
#pragma unroll
        for (u32 key = threadIdx.x / WORDS; key < ALL_TILE_KEYS; key += PASS_ROWS) {
            u32 row = keys.first + tile * ALL_TILE_KEYS + key;
            bool exists = row < keys.end;
#pragma unroll
            for (u32 side = 0; side < 2; side++)
                copy_16(to + side * SIDE + place(key, word),
                        half_at(ATTEND_ALL_K + side, exists ? row : keys.first) + word * 8, exists);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Rows of the block that are not of this run are zero.
    __device__ __forceinline__ void fetch_q(u32 base, u32 from, u32 end) const
    {
        u32 word = threadIdx.x % WORDS;
#pragma unroll
        for (u32 i = threadIdx.x / WORDS; i < ALL_TILE_ROWS; i += PASS_ROWS) {
            bool exists = base + i >= from && base + i < end;
            copy_16(shared + place(i, word), half_at(ATTEND_ALL_Q, exists ? base + i : from) + word * 8,
                    exists);
        }
    }

    // The last but NEWER fetches have arrived, in all threads.
    template <u32 NEWER> __device__ __forceinline__ void await_fetch() const
    {
        asm volatile("cp.async.wait_group %0;" ::"n"(NEWER) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    }

    __device__ __forceinline__ void score(f32 (&s)[8][4], u32 tile) const
    {
        u64 rows = tile_descriptor(shared + __shfl_sync(~0u, threadIdx.x / 128, 0) * (ALL_Q_BYTES / 2)),
            k_at = tile_descriptor(stage_at(tile));
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(s, rows + NEXT_COLUMNS * k, k_at + NEXT_COLUMNS * k, k > 0);
        commit();
    }
    __device__ __forceinline__ void sum(const u32 (&weights)[4][4], u32 tile)
    {
        u64 v_at = tile_descriptor(stage_at(tile) + SIDE);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma_sum(out, weights[k], v_at + k * (16 * 128 >> 4));
        commit();
    }

    // Rows [from, end) of one slot, of the block's that begin at `base`.
    __device__ __forceinline__ void run(const struct slot_rows &keys, u32 base, u32 from, u32 end)
    {
        f32 s[8][4], rescale[2];
        u32 weights[4][4], row = base + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4,
                           n_keys = keys.end - keys.first, last = (n_keys - 1) / ALL_TILE_KEYS;

        begin();
        fetch_q(base, from, end);
        for (u32 tile = 0; tile < 3; tile++)
            fetch(keys, tile);
        await_fetch<2>();
        settle(s);
        wgmma_fence();
        score(s, 0);
        finish<0>(s);
        soften(s, n_keys, rescale);
        pack_weights(s, weights);
        for (u32 tile = 0; tile < last; tile++) {
            await_fetch<1>();
            fetch(keys, tile + 3);
            settle(s);
            settle(out);
            wgmma_fence();
            score(s, tile + 1);
            sum(weights, tile);
            finish<1>(s);
            soften(s, n_keys - (tile + 1) * ALL_TILE_KEYS, rescale);
            finish<0>(out);
            rescale_out(rescale);
            pack_weights(s, weights);
        }
        settle(out);
        wgmma_fence();
        sum(weights, last);
        finish<0>(out);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads(); // before the next run's copies
        put(row, row >= from && row < end, 0);
        put(row + 8, row + 8 >= from && row + 8 < end, 1);
    }
};

extern "C" __global__ void __launch_bounds__(ALL_TILE_THREADS, 2)
    attend_all_hopper_64(const __grid_constant__ struct attend_all_params p)
{
    attend_rows<hopper_tile>(p);
}
#endif
