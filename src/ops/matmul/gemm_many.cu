// gemm_many.cu - products with many rows of activations: weights are dequantised into registers, the tensor cores do the rest.
//
// A block owns 64 pairs of weight rows and 128 or 256 rows of activations; each of its two warpgroups takes 32 pairs, which are the M
// side of the instruction. Activations come to shared memory a few steps of 128 columns ahead (cp.async, 128-byte swizzle); the next
// step's weights wait in registers. On Hopper the products are wgmma with A in registers, elsewhere mma.sync on the same fragments.
// The sums go through shared memory once, so that each operation's end is written once and stores are contiguous.
#include "ops/matmul/fragments.cuh"
#include "ops/matmul/pairs.cuh"

enum { MANY_THREADS = 256, MANY_PAIRS = 64, STEP_COLUMNS = 128 };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#endif

template <u32 ROWS> struct many {
    static constexpr u32 stages = ROWS == 256 ? 3 : 4, stage_bytes = ROWS * STEP_COLUMNS * 2;
};

static __device__ __forceinline__ u32 shared_at(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

// One step's activations: two tiles [ROWS][64 columns], 16-byte words swizzled within 8 rows.
template <u32 ROWS> static __device__ __forceinline__ void fetch(const struct pairs_params &p, u32 to, u32 first_row, u32 n_rows, u32 step)
{
#pragma unroll
    for (u32 i = threadIdx.x; i < ROWS * 16; i += MANY_THREADS) {
        u32 row = i / 16, c = i % 16, exists = first_row + row < n_rows;
        const u8 *from = p.ready + ((u64)(exists ? first_row + row : 0) * p.ready_cols + step * STEP_COLUMNS + c * 8) * 2;
        u32 at = to + c / 8 * (ROWS * 128) + row * 128 + ((c % 8) ^ (row % 8)) * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(exists ? 16 : 0));
    }
}
static __device__ __forceinline__ void fetch_end()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

#if HAS_WGMMA
static __device__ __forceinline__ u64 tile_descriptor(u32 at) // 128-byte rows, swizzled; groups of 8 rows 1024 bytes apart
{
    return 0x4000004000010000ull | (at & 0x3FFFF) >> 4;
}
#define S8(n)  "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define D4(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D16(i) D4(i), D4(i + 1), D4(i + 2), D4(i + 3)
#define D64(i) D16(i), D16(i + 4), D16(i + 8), D16(i + 12)
static __device__ __forceinline__ void wgmma(f32 (&d)[16][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1) S8(2) S8(3) S8(4) S8(5)
                 "%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma(f32 (&d)[32][4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," S8(1) S8(2) S8(3) S8(4) S8(5)
                 S8(6) S8(7) S8(8) S8(9) S8(10) S8(11)
                 "%120,%121,%122,%123,%124,%125,%126,%127}, {%128,%129,%130,%131}, %132, 1, 1, 1, 0;"
                 : D64(0), D64(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#endif

template <u32 F, u32 S> static __device__ __forceinline__ void fragment(const struct prepared<F> (&w)[2], u32 (&a)[4])
{
    strip_step<F, S>(w[0], a[0], a[2]);
    strip_step<F, S>(w[1], a[1], a[3]);
}

// Half a step, 64 columns: four fragments, then their four products, which run on while the next half is dequantised.
template <u32 F, u32 H, u32 ROWS>
static __device__ __forceinline__ void half_step(const struct prepared<F> (&w)[2], u32 (&a)[4][4], f32 (&d)[ROWS / 8][4], u32 tile)
{
#if HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
    fragment<F, 4 * H>(w, a[0]);
    fragment<F, 4 * H + 1>(w, a[1]);
    fragment<F, 4 * H + 2>(w, a[2]);
    fragment<F, 4 * H + 3>(w, a[3]);
#if HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        wgmma(d, a[k], tile_descriptor(tile) + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 k = 0; k < 4; k++)
#pragma unroll
        for (u32 n = 0; n < ROWS / 16; n++) {
            u32 row = n * 16 + lane % 8 + lane / 16 * 8, c = 2 * k + lane / 8 % 2, b[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                         : "r"(tile + row * 128 + (c ^ row % 8) * 16));
            mma_16816(d[2 * n], a[k], b[0], b[1]);
            mma_16816(d[2 * n + 1], a[k], b[2], b[3]);
        }
#endif
}

template <u32 F, u32 ROWS> static __device__ __forceinline__ void multiply(const struct pairs_params &p, f32 (&d)[ROWS / 8][4], u32 shared, u32 n_rows)
{
    constexpr u32 ahead = many<ROWS>::stages - 2, bytes = many<ROWS>::stage_bytes;
    u32 lane = threadIdx.x & 31, n_steps = p.ready_cols / STEP_COLUMNS, first_row = blockIdx.x * ROWS;
    u32 at = min(blockIdx.y * MANY_PAIRS + threadIdx.x / 32 * 8 + lane / 4, p.n_pairs - 1) + p.first_pair;
    struct pair r = pair_find(p, at);
    const struct planes &wa = p.w[r.matrix[0]], &wb = p.w[r.matrix[1]];
    struct strip<F> next[2];
    struct prepared<F> now[2];
    u32 a[2][4][4];

    for (u32 s = 0; s < ahead; s++) {
        if (s < n_steps)
            fetch<ROWS>(p, shared + s * bytes, first_row, n_rows, s);
        fetch_end();
    }
    strip_load<F>(next[0], wa, r.row[0], lane % 4);
    strip_load<F>(next[1], wb, r.row[1], lane % 4);
    for (u32 s = 0; s < n_steps; s++) {
        strip_prepare<F>(now[0], next[0]);
        strip_prepare<F>(now[1], next[1]);
        strip_load<F>(next[0], wa, r.row[0], (s + 1) * 4 + lane % 4);
        strip_load<F>(next[1], wb, r.row[1], (s + 1) * 4 + lane % 4);
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
#if HAS_WGMMA
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        __syncthreads(); // all products of two steps ago are done: their stage is free
        if (s + ahead < n_steps)
            fetch<ROWS>(p, shared + (s + ahead) % many<ROWS>::stages * bytes, first_row, n_rows, s + ahead);
        fetch_end();
        u32 tile = shared + s % many<ROWS>::stages * bytes;
        half_step<F, 0, ROWS>(now, a[0], d, tile);
        half_step<F, 1, ROWS>(now, a[1], d, tile + ROWS * 128);
    }
#if HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// [row][pair] of the block, two sums each; 68 pairs a row keep the banks apart.
template <u32 F, u32 ROWS> static __device__ __forceinline__ void finish(const struct pairs_params &p, f32 (&d)[ROWS / 8][4], float2 *sums, u32 n_rows)
{
    constexpr u32 stride = MANY_PAIRS + 4;
    u32 lane = threadIdx.x & 31, pair = threadIdx.x / 32 * 8 + lane / 4, first_row = blockIdx.x * ROWS;

    __syncthreads();
#pragma unroll
    for (u32 n = 0; n < ROWS / 8; n++) {
        u32 row = n * 8 + lane % 4 * 2;
        sums[row * stride + pair] = make_float2(d[n][0], d[n][2]);
        sums[(row + 1) * stride + pair] = make_float2(d[n][1], d[n][3]);
    }
    __syncthreads();
    pair = threadIdx.x % MANY_PAIRS;
    u32 at = blockIdx.y * MANY_PAIRS + pair;
    if (at >= p.n_pairs)
        return;
    struct pair r = pair_find(p, p.first_pair + at);
    constexpr u32 apart = MANY_THREADS / MANY_PAIRS, batch = 8; // loads of eight rows at a time
    for (u32 row = threadIdx.x / MANY_PAIRS; row < ROWS && first_row + row < n_rows; row += batch * apart) {
        struct pair_inputs in[batch];
#pragma unroll
        for (u32 k = 0; k < batch; k++)
            in[k] = pair_load(p, r, min(first_row + row + k * apart, n_rows - 1));
#pragma unroll
        for (u32 k = 0; k < batch; k++) {
            u32 at_row = row + k * apart;
            if (at_row >= ROWS || first_row + at_row >= n_rows)
                break;
            float2 v = sums[at_row * stride + pair];
            pair_end(p, r, first_row + at_row, in[k], make_float2(v.x * strip<F>::scale_back, v.y * strip<F>::scale_back));
        }
    }
}

template <u32 F, u32 ROWS> static __device__ __forceinline__ void gemm_many(const struct pairs_params &p)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    f32 d[ROWS / 8][4] = {};

    wait_for_inputs();
    u32 n_rows = n_rows_of(p.step, p.rows);
    if (blockIdx.x * ROWS >= n_rows)
        return;
    multiply<F, ROWS>(p, d, shared_at(shared), n_rows);
    finish<F, ROWS>(p, d, (float2 *)shared, n_rows);
}

#define GEMM_MANY(name, F, ROWS)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) gemm_many_##ROWS##_##name(const __grid_constant__ struct pairs_params p) \
    {                                                                                                                                  \
        gemm_many<F, ROWS>(p);                                                                                                         \
    }
#define BOTH(name, F)       \
    GEMM_MANY(name, F, 128) \
    GEMM_MANY(name, F, 256)
BOTH(f16, PLANES_F16)
BOTH(bf16, PLANES_BF16)
BOTH(q4_0, PLANES_Q4_0)
BOTH(q4_1, PLANES_Q4_1)
BOTH(q5_0, PLANES_Q5_0)
BOTH(q5_1, PLANES_Q5_1)
BOTH(q8_0, PLANES_Q8_0)
BOTH(q2_k, PLANES_Q2_K)
BOTH(q3_k, PLANES_Q3_K)
BOTH(q4_k, PLANES_Q4_K)
BOTH(q5_k, PLANES_Q5_K)
BOTH(q6_k, PLANES_Q6_K)
BOTH(iq4_nl, PLANES_IQ4_NL)
BOTH(iq4_xs, PLANES_IQ4_XS)
BOTH(mxfp4, PLANES_MXFP4)
