// attend_all_hopper.cu - attention of an encoder on Hopper, heads of 64: the products of attend_all_tile.cuh
// by wgmma.
//
// Computes   S = q K^T and O += P V   for the tile that attend_all_tile.cuh draws.
//
//              64 keys (N side)              64 dims (N side)
//           +--------------------+        +--------------------+
//   64 rows |  S, in registers   |   P V: |  O, in registers   |   block: two warpgroups of 64 rows each
//   (M)     +--------------------+        +--------------------+
//
// q and the softmax weights are read from registers, K and V from shared memory, where a key's 64 dims are a
// row of 128 bytes, 16-byte words swizzled within 8 rows.
// Pipeline and epilogue: attend_all_tile.cuh. Images of other architectures hold no such kernel.
#include "ops/attend_all/attend_all_tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// K: dims side by side, 16 of them a product. V: keys in eights, 16 a product; dims side by side, that is
// across the product's columns.
static __device__ __forceinline__ u64 tile_descriptor(u32 at)
{
    return 1ull << 62 | (u64)(1024 >> 4) << 32 | 1ull << 16 | (at & 0x3FFFF) >> 4;
}

#define S8(n)  "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define D4(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D32(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3), D4(i + 4), D4(i + 5), D4(i + 6), D4(i + 7)
// TRANSPOSED: the second factor's columns lie side by side.
template <u32 TRANSPOSED>
static __device__ __forceinline__ void wgmma(f32 (&d)[8][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1)
                     S8(2) "%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, %37;"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TRANSPOSED));
}
// Registers that products read or add to are complete before the first, and what comes after waits for the
// last.
template <u32 N> static __device__ __forceinline__ void settle(const u32 (&a)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < N; i++)
        asm volatile("" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]) : "memory");
}
static __device__ __forceinline__ void settle(f32 (&d)[8][4])
{
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
static __device__ __forceinline__ void begin(const u32 (&a)[4][4], f32 (&d)[8][4])
{
    settle(a);
    settle(d);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void end(f32 (&d)[8][4])
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    settle(d);
}

struct wgmma_products {
    static constexpr u32 SIDE = ALL_TILE_KEYS * 128;

    static __device__ __forceinline__ u32 place(u32 key, u32 word)
    {
        return key * 128 + (word ^ key % 8) * 16;
    }
    static __device__ __forceinline__ void clear(u32)
    {
    }
    static __device__ __forceinline__ void score(const u32 (&q)[4][4], u32 k_at, f32 (&s)[8][4])
    {
        begin(q, s);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma<0>(s, q[k], tile_descriptor(k_at) + k * 2);
        end(s);
    }
    static __device__ __forceinline__ void sum(const u32 (&weights)[4][4], u32 v_at, f32 (&out)[8][4])
    {
        begin(weights, out);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma<1>(out, weights[k], tile_descriptor(v_at + k * 16 * 128));
        end(out);
    }
};

extern "C" __global__ void __launch_bounds__(ALL_TILE_THREADS, 2)
    attend_all_hopper_64(const __grid_constant__ struct attend_all_params p)
{
    attend_rows<64, wgmma_products>(p);
}
#endif
