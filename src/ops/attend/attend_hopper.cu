// attend_hopper.cu - prefill attention for Hopper, heads of 128: the products of attend_tile.cuh by wgmma.
//
// Computes   S = q K^T and O += P V   for the tile that attend_tile.cuh draws.
//
//             64 tokens (N side)            128 dims (N side)
//           +--------------------+        +--------------------+
//   64 rows |  S, in registers   |   P V: |  O, in registers   |   block: one warpgroup, 4 warps
//   (M)     +--------------------+        +--------------------+   three blocks an SM
//
// q and the softmax weights P are read from registers, K and V from shared memory. Three blocks share an SM,
// so that one's products run during another's softmax.
// Pipeline and epilogue: attend_tile.cuh.
// Images of other architectures hold no such kernel. Heads of 64 use attend_many: with two tiles and more
// this kernel gives wrong sums for them, for a reason not found.
#include "ops/attend/attend_tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Both operands lie with their outer dimension side by side. K: 16 tokens in 32 bytes, the next 16 a page
// further, dims in eights.
static __device__ __forceinline__ u64 k_descriptor(u32 at, u32 page_bytes)
{
    return 3ull << 62 | (u64)(256 >> 4) << 32 | (u64)(page_bytes >> 4) << 16 | (at & 0x3FFFF) >> 4;
}
// V: 64 dims in 128 bytes, the next 64 a tile's tokens further, tokens in eights.
static __device__ __forceinline__ u64 v_descriptor(u32 at, u32 tile_tokens)
{
    return 1ull << 62 | (u64)(1024 >> 4) << 32 | (u64)(tile_tokens * 128 >> 4) << 16 | (at & 0x3FFFF) >> 4;
}

#define S8(n)  "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define D4(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D32(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3), D4(i + 4), D4(i + 5), D4(i + 6), D4(i + 7)
static __device__ __forceinline__ void wgmma(f32 (&d)[8][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1)
                     S8(2) "%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : D32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma(f32 (&d)[16][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1)
                     S8(2) S8(3) S8(4) S8(5) "%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : D32(0), D32(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// Registers that products read or add to are complete before the first, and what comes after waits for the
// last.
template <u32 N> static __device__ __forceinline__ void settle(u32 (&a)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}
template <u32 N> static __device__ __forceinline__ void settle(f32 (&d)[N][4])
{
#pragma unroll
    for (u32 i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
template <u32 N, u32 M> static __device__ __forceinline__ void begin(u32 (&a)[N][4], f32 (&d)[M][4])
{
    settle(a);
    settle(d);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <u32 N> static __device__ __forceinline__ void end(f32 (&d)[N][4])
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    settle(d);
}

template <u32 D> struct wgmma_tile {
    template <bool SINKS>
    __device__ __forceinline__ void operator()(struct attention<D, SINKS> &a, u32 stage, u32 first_token,
                                               bool masked) const
    {
        u32 k_at = a.shared + stage * 2 * a.tile_bytes, v_at = k_at + a.tile_bytes;
        f32 s[a.tile_tokens / 8][4] = {};
        u32 weights[a.tile_pages][4];

        begin(a.q, s);
#pragma unroll
        for (u32 k = 0; k < D / 16; k++)
            wgmma(s, a.q[k], k_descriptor(k_at + k * 512, a.page_bytes));
        end(s);
        a.soften(s, first_token, masked);
#pragma unroll
        for (u32 i = 0; i < a.tile_pages * 4; i++) {
            const f32 *v = s[2 * (i / 4) + i % 4 / 2] + i % 2 * 2;
            weights[i / 4][i % 4] = two_halves(v[0], v[1]);
        }
        begin(weights, a.out);
#pragma unroll
        for (u32 page = 0; page < a.tile_pages; page++)
            wgmma(a.out, weights[page], v_descriptor(v_at + page * PAGE_TOKENS * 128, a.tile_tokens));
        end(a.out);
    }
};

extern "C" __global__ void __launch_bounds__(head_parts<128>::threads, 3)
    attend_hopper_128(const __grid_constant__ struct attend_params p)
{
    attend_rows<128, false, false>(p, wgmma_tile<128>());
}
extern "C" __global__ void __launch_bounds__(head_parts<128>::threads, 3)
    attend_hopper_mixed_128(const __grid_constant__ struct attend_params p)
{
    attend_rows<128, true, false>(p, wgmma_tile<128>());
}
#endif
