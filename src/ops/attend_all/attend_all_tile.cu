// attend_all_tile.cu - attention of an encoder on every architecture: the products of attend_all_tile.cuh by
// mma.m16n8k16, for heads of 64 and 72.
//
// Computes   S = q K^T and O += P V   for the tile that attend_all_tile.cuh draws.
//
//             64 keys: 8 N tiles            64 or 80 dims: 8 or 10 N tiles
//           +--+--+--+--+--+--+--+--+     +--+--+--+--+--
//   16 rows |  S, in registers      |     |  O, in registers     a warp has 16 of the block's 128 rows
//           +--+--+--+--+--+--+--+--+     +--+--+--+--+--
//
// K and V lie as [key][dims] in shared memory, rows padded by 16 bytes, so that ldmatrix has no bank
// conflicts. Heads of 72 are multiplied as 80 dims, the last eight of which are zero.
// Pipeline and epilogue: attend_all_tile.cuh.
#include "ops/attend_all/attend_all_tile.cuh"

static __device__ __forceinline__ void mma_bf16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void load_four(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ __forceinline__ void load_four_transposed(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ __forceinline__ void load_two_transposed(u32 (&r)[2], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at));
}

template <u32 D> struct mma_products {
    static constexpr u32 STEPS = (D + 15) / 16, PITCH = ALL_TILE_PITCH(D), SIDE = ALL_TILE_KEYS * PITCH;

    static __device__ __forceinline__ u32 place(u32 key, u32 word)
    {
        return key * PITCH + word * 16;
    }
    // Clears the dims of K beyond the head's, which are not fetched.
    static __device__ __forceinline__ void clear(u32 shared)
    {
        if (D % 16 == 0)
            return;
        for (u32 i = threadIdx.x; i < ALL_STAGES * ALL_TILE_KEYS; i += ALL_TILE_THREADS)
            asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(shared + i / ALL_TILE_KEYS * 2 * SIDE +
                                                                       place(i % ALL_TILE_KEYS, D / 8)),
                         "r"(0)
                         : "memory");
    }
    static __device__ __forceinline__ void score(const u32 (&q)[STEPS][4], u32 k_at,
                                                 f32 (&s)[ALL_TILE_KEYS / 8][4])
    {
        u32 lane = threadIdx.x % 32, at = k_at + place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
        for (u32 k = 0; k < STEPS; k++)
#pragma unroll
            for (u32 n = 0; n < ALL_TILE_KEYS / 16; n++) {
                u32 b[4]; // dims 0-7 and 8-15 of keys 0-7, then of keys 8-15
                load_four(b, at + place(n * 16, k * 2));
                mma_bf16(s[2 * n], q[k], b[0], b[1]);
                mma_bf16(s[2 * n + 1], q[k], b[2], b[3]);
            }
    }
    static __device__ __forceinline__ void sum(const u32 (&weights)[ALL_TILE_KEYS / 16][4], u32 v_at,
                                               f32 (&out)[D / 8][4])
    {
        u32 lane = threadIdx.x % 32, key = lane % 8 + lane / 8 % 2 * 8, at = v_at + place(key, lane / 16);
#pragma unroll
        for (u32 k = 0; k < ALL_TILE_KEYS / 16; k++) {
#pragma unroll
            for (u32 n = 0; n < D / 16; n++) {
                u32 b[4]; // keys 0-7 and 8-15 of dims 0-7, then of dims 8-15
                load_four_transposed(b, at + place(k * 16, n * 2));
                mma_bf16(out[2 * n], weights[k], b[0], b[1]);
                mma_bf16(out[2 * n + 1], weights[k], b[2], b[3]);
            }
            if (D % 16) {
                u32 b[2];
                load_two_transposed(b, v_at + place(k * 16 + key, D / 8 - 1));
                mma_bf16(out[D / 8 - 1], weights[k], b[0], b[1]);
            }
        }
    }
};

#define ATTEND_ALL_TILE(D)                                                      \
    extern "C" __global__ void __launch_bounds__(ALL_TILE_THREADS, 2)           \
        attend_all_tile_##D(const __grid_constant__ struct attend_all_params p) \
    {                                                                           \
        attend_rows<all_tile<D, mma_products<D>>>(p);                           \
    }
ATTEND_ALL_TILE(64)
ATTEND_ALL_TILE(72)
