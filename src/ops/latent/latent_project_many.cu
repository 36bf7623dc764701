// latent_project_many.cu - latent_project on tensor cores for many rows; see latent.h.
//
// Computes   out[h] = W[h] x   for 64 rows of the step and 64 rows of one head's matrix.
//
//             64 rows of W[h]
//           +------------------+
//   64 rows |  mma.m16n8k16    |     k advances by 32 columns a step
//   of x    +------------------+
//
// Pipeline: none; both sides become bf16 in shared memory, 32 columns at a time: fp16 would overflow in
// absorbed queries. The order of a sum depends on n_cols alone. Widths are multiples of 32. No epilogue.
#include "gemm/cuda/row_plain.cuh"
#include "ops/latent/latent_rotate.cuh"

// STRIDE in halves: rows of ldmatrix fall into different banks.
enum { TILE = LATENT_PROJECT_TILE, STEP = 32, STRIDE = STEP + 8 };

struct project_tiles {
    __nv_bfloat16 x[TILE][STRIDE], w[TILE][STRIDE];
};

static __device__ __forceinline__ u32 two_bf16(f32 low, f32 high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(u32 *)&v;
}

static __device__ __forceinline__ void load_x(const struct latent_project_params &p, struct project_tiles &t,
                                              u32 head, u32 first, u32 k)
{
    const struct latent_project_args &a = p.args;
    u32 thread = threadIdx.x - TILE, n = p.step->n_rows;

    for (u32 i = thread; i < TILE * STEP / 2; i += TILE) {
        u32 r = i / (STEP / 2), c = i % (STEP / 2) * 2, row = first + r;
        const f32 *x = p.in + ((u64)row * a.n_heads + head) * (a.n_cols + a.n_rotated) + k + c;
        *(u32 *)&t.x[r][c] = row < n ? two_bf16(x[0], x[1]) : 0;
    }
}

template <u32 F>
static __device__ __forceinline__ void put_block(const struct latent_project_params &p, u32 row, u32 block,
                                                 u32 *to)
{
    struct unpacked u = unpack_block<F>(block_at<F, false>({ p.w.quants, p.w.high, p.w.scales, p.w.deltas },
                                                           row * (p.w.n_cols / 32) + block));
#pragma unroll
    for (u32 i = 0; i < 32; i += 2) {
        f32 low = u.scale[i / 16] * (f32)(int)(signed char)(u.q[i / 4] >> 8 * (i % 4)) + u.offset[i / 16],
            high =
                u.scale[i / 16] * (f32)(int)(signed char)(u.q[i / 4] >> 8 * (i % 4 + 1)) + u.offset[i / 16];
        to[i / 2] = two_bf16(low, high);
    }
}

// A thread takes a block of 32 numbers.
static __device__ __forceinline__ void load_w(const struct latent_project_params &p, struct project_tiles &t,
                                              u32 head, u32 first, u32 k)
{
    u32 r = threadIdx.x, row = head * p.args.n_rows + first + r, *to = (u32 *)&t.w[r][0];

    if (first + r >= p.args.n_rows) {
        for (u32 i = 0; i < STEP / 2; i++)
            to[i] = 0;
        return;
    }
    if (p.w.format > QUANT_BF16) {
        FOR_QUANTISED(p.w.format, put_block<F>(p, row, k / 32, to))
        return;
    }
    for (u32 i = 0; i < STEP; i += 2) {
        u64 at = (u64)row * p.w.n_cols + k + i;
        to[i / 2] = two_bf16(plain_number(p.w, at), plain_number(p.w, at + 1));
    }
}

static __device__ __forceinline__ void load_matrix(u32 (&v)[4], const void *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"((u32)__cvta_generic_to_shared(at)));
}
static __device__ __forceinline__ void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A warp takes 32 by 32 of the tile.
static __device__ __forceinline__ void multiply_step(const struct project_tiles &t, f32 (&sums)[2][4][4])
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, m = warp / 2 * 32, n = warp % 2 * 32;

#pragma unroll
    for (u32 k = 0; k < STEP; k += 16) {
        u32 a[2][4], b[2][4];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            load_matrix(a[i], &t.x[m + 16 * i + lane % 16][k + lane / 16 * 8]);
            load_matrix(b[i], &t.w[n + 16 * i + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++)
#pragma unroll
            for (u32 j = 0; j < 4; j++)
                multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

static __device__ __forceinline__ void store_tile(const struct latent_project_params &p,
                                                  const f32 (&sums)[2][4][4], u32 head, u32 first_row,
                                                  u32 first)
{
    const struct latent_project_args &a = p.args;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, m = warp / 2 * 32, n = warp % 2 * 32;

#pragma unroll
    for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 j = 0; j < 4; j++)
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                u32 row = first_row + m + 16 * i + lane / 4 + c / 2 * 8,
                    at = first + n + 8 * j + lane % 4 * 2 + c % 2;
                if (row < p.step->n_rows && at < a.n_rows)
                    p.out[((u64)row * a.n_heads + head) * (a.n_rows + a.n_rotated) + at] = sums[i][j][c];
            }
}

// grid: (heads times tiles of a head's rows, then a block a head that rotates; tiles of the step's rows)
extern "C" __global__ void __launch_bounds__(LATENT_PROJECT_THREADS)
    latent_project_many(const __grid_constant__ struct latent_project_params p)
{
    __shared__ __align__(16) struct project_tiles t;
    u32 n_tiles = (p.args.n_rows + TILE - 1) / TILE, head = blockIdx.x / n_tiles,
        first = blockIdx.x % n_tiles * TILE;
    f32 sums[2][4][4] = {};

    wait_for_inputs();
    if (blockIdx.x >= p.n_products) {
        latent_rotate_rest(p, blockIdx.x - p.n_products);
        return;
    }
    if (blockIdx.y * TILE >= p.step->n_rows)
        return;
    for (u32 k = 0; k < p.args.n_cols; k += STEP) {
        if (threadIdx.x < TILE)
            load_w(p, t, head, first, k);
        else
            load_x(p, t, head, blockIdx.y * TILE, k);
        __syncthreads();
        multiply_step(t, sums);
        __syncthreads();
    }
    store_tile(p, sums, head, blockIdx.y * TILE, first);
}
