// attend_many.cu - prefill attention on every architecture: the products of attend_tile.cuh by mma.m16n8k16,
// for heads of 64, 128, 256 and 512.
//
// Computes   S = q K^T and O += P V   for the tile that attend_tile.cuh draws.
//
//             64 tokens: 8 N tiles          64, 128 or 256 dims: 8, 16 or 32 N tiles
//           +--+--+--+--+--+--+--+--+     +--+--+--+--+--
//   16 rows |  S, in registers      |     |  O, in registers     a warp has 16 of the block's 64 rows
//           +--+--+--+--+--+--+--+--+     +--+--+--+--+--
//
// K and V are read from shared memory by ldmatrix; P goes from S's registers straight into the next product.
// Kernels named mixed leave the decode rows of a step to attend_few.
// Pipeline and epilogue: attend_tile.cuh.
#include "ops/attend/attend_tile.cuh"

static __device__ __forceinline__ void mma_f16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

template <u32 D> struct mma_tile {
    template <bool SINKS>
    __device__ __forceinline__ void operator()(struct attention<D, SINKS> &a, u32 stage, u32 first_token,
                                               bool masked) const
    {
        u32 lane = threadIdx.x & 31, k_at = a.shared + stage * 2 * a.tile_bytes, v_at = k_at + a.tile_bytes,
            first = a.first_dim();
        f32 s[a.tile_tokens / 8][4] = {};

#pragma unroll
        for (u32 k = 0; k < a.OWN / 16; k++)
#pragma unroll
            for (u32 page = 0; page < a.tile_pages; page++) {
                u32 b[4]; // dims 0-7 and 8-15 of tokens 0-7, then of tokens 8-15
                load_transposed(b, k_at + page * a.page_bytes +
                                       k_place(first + k * 16 + lane % 8 + lane / 8 % 2 * 8, lane / 16));
                mma_f16(s[2 * page], a.q[k], b[0], b[1]);
                mma_f16(s[2 * page + 1], a.q[k], b[2], b[3]);
            }
        if (D > a.OWN)
            a.add_halves(s);
        a.soften(s, first_token, masked);
#pragma unroll
        for (u32 page = 0; page < a.tile_pages; page++) {
            f32(&x)[4] = s[2 * page], (&y)[4] = s[2 * page + 1];
            u32 weights[4] = { two_halves(x[0], x[1]), two_halves(x[2], x[3]), two_halves(y[0], y[1]),
                               two_halves(y[2], y[3]) };
#pragma unroll
            for (u32 n = 0; n < a.OWN / 16; n++) {
                u32 b[4]; // tokens 0-7 and 8-15 of dims 0-7, then of dims 8-15
                load_transposed(b, v_at + a.v_place(page * PAGE_TOKENS + lane % 8 + lane / 8 % 2 * 8,
                                                    first / 8 + 2 * n + lane / 16));
                mma_f16(a.out[2 * n], weights, b[0], b[1]);
                mma_f16(a.out[2 * n + 1], weights, b[2], b[3]);
            }
        }
    }
};

#define ATTEND_MANY(name, D, MIXED, SINKS, ...)                                         \
    extern "C" __global__ void __launch_bounds__(head_parts<D>::threads, ##__VA_ARGS__) \
        attend_many_##name(const __grid_constant__ struct attend_params p)              \
    {                                                                                   \
        attend_rows<D, MIXED, SINKS>(p, mma_tile<D>());                                 \
    }
// Blocks an SM where the compiler would take fewer registers and spill, or more than the SM has.
ATTEND_MANY(64, 64, false, false)
ATTEND_MANY(128, 128, false, false)
ATTEND_MANY(256, 256, false, false, 2)
ATTEND_MANY(512, 512, false, false, 1)
ATTEND_MANY(mixed_64, 64, true, false, 3)
ATTEND_MANY(mixed_128, 128, true, false, 2)
ATTEND_MANY(mixed_256, 256, true, false, 2)
ATTEND_MANY(64_sinks, 64, false, true)
ATTEND_MANY(mixed_64_sinks, 64, true, true, 3)
