// latent_project_many.cu - latent_project on tensor cores for several rows; see latent.h.
//
// Computes   out[h] = W[h] x   for some rows of the step and of one head's matrix.
//
//                 128 rows of W[h]                         32 rows of W[h]
//               +------------------+                     +-----------------+
//   128 rows    |  mma.m16n8k16    |          16 rows    |  two warps of   |
//   of x        +------------------+          of x       |  16 by 16       |
//                64 columns a step                       +-----------------+
//                                                        256 columns a step: for few rows
// Pipeline: the next step's x is on its way while a step is multiplied; the first step's weights are read
// before the wait, unless rows may be left out; else the other block of the SM. Both sides become bf16 in
// shared memory, a step's columns at a time: fp16 would overflow in absorbed queries. The order of a sum
// depends on n_cols alone. Widths are multiples of 32. No epilogue.
#include "ops/latent/latent_store.cuh"
#include "ops/latent/latent_weights.cuh"
#include "ops/latent/latent_runs.cuh"

enum { THREADS = LATENT_PROJECT_MANY_THREADS };

// A thread unpacks a block of 32 weights a step. STRIDE in halves: rows of ldmatrix fall into different
// banks.
template <u32 ROWS> struct project_tiles {
    static constexpr u32 tile =
                             ROWS == LATENT_PROJECT_FEW_ROWS ? LATENT_PROJECT_FEW_TILE : LATENT_PROJECT_TILE,
                         step = THREADS * 32 / tile, stride = step + 8;
    alignas(16) __nv_bfloat16 x[ROWS][stride];
    alignas(16) __nv_bfloat16 w[tile][stride];
};

// Of a block: the head, and the first rows of its matrix and of the step.
struct project_place {
    u32 head, first, first_row;
};

template <u32 ROWS> struct project_sums { // of a warp
    static constexpr u32 tile = project_tiles<ROWS>::tile, row_warps = ROWS / 64 > 0 ? ROWS / 64 : 1,
                         rows = ROWS / row_warps, even = tile / (THREADS / 32 / row_warps),
                         columns = even > 16 ? even : 16;
    f32 v[rows / 16][columns / 8][4];

    static __device__ __forceinline__ u32 first_row()
    {
        return threadIdx.x / 32 % row_warps * rows;
    }
    static __device__ __forceinline__ u32 first_column() // a few rows' warps may have none
    {
        return threadIdx.x / 32 / row_warps * columns;
    }
    static __device__ __forceinline__ bool has_columns()
    {
        return first_column() < tile;
    }
};

// A thread's part of a step's x: four columns of each of some rows.
template <u32 ROWS> struct project_x {
    static constexpr u32 fours = project_tiles<ROWS>::step / 4,
                         each = THREADS / fours; // of a row; rows at once
    float4 v[ROWS / each];

    __device__ __forceinline__ void load(const struct latent_project_params &p, struct project_place at,
                                         u32 k)
    {
        const struct latent_project_args &a = p.args;
        u32 width = a.n_cols + a.n_rotated, n = p.step->n_rows, c = threadIdx.x % fours * 4;
#pragma unroll
        for (u32 i = 0; i < ROWS / each; i++) {
            u32 row = at.first_row + i * each + threadIdx.x / fours;
            const f32 *x = p.in + ((u64)row * a.n_heads + at.head) * width + k + c;
            v[i] =
                row < n && k + c < a.n_cols ? latent_load_four(x, width % 4 == 0) : make_float4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void store(struct project_tiles<ROWS> &t) const
    {
#pragma unroll
        for (u32 i = 0; i < ROWS / each; i++)
            *(uint2 *)&t.x[i * each + threadIdx.x / fours][threadIdx.x % fours * 4] =
                make_uint2(two_numbers<true>(v[i].x, v[i].y), two_numbers<true>(v[i].z, v[i].w));
    }
};

// A thread takes a block of 32 numbers.
template <u32 ROWS>
static __device__ __forceinline__ void load_w(const struct latent_project_params &p,
                                              struct project_tiles<ROWS> &t, struct project_place at, u32 k)
{
    u32 r = threadIdx.x % t.tile, part = threadIdx.x / t.tile, block = k / 32 + part, words[16] = {};

    if (at.first + r < p.args.n_rows && block < p.args.n_cols / 32)
        latent_read_32<true>(p.w, at.head * p.args.n_rows + at.first + r, block, words);
    uint4 *to = (uint4 *)&t.w[r][part * 32];
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        to[i] = make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
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

template <u32 ROWS>
static __device__ __forceinline__ void multiply_step(const struct project_tiles<ROWS> &t,
                                                     struct project_sums<ROWS> &s)
{
    constexpr u32 n_high = s.rows / 16, n_wide = s.columns / 8;
    u32 lane = threadIdx.x % 32, m = s.first_row(), n = s.first_column();

#pragma unroll
    for (u32 k = 0; k < t.step; k += 16) {
        u32 a[n_high][4], b[n_wide / 2][4];
#pragma unroll
        for (u32 i = 0; i < n_high; i++)
            load_matrix(a[i], &t.x[m + 16 * i + lane % 16][k + lane / 16 * 8]);
#pragma unroll
        for (u32 j = 0; j < n_wide / 2; j++)
            load_matrix(b[j], &t.w[n + 16 * j + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
        for (u32 i = 0; i < n_high; i++)
#pragma unroll
            for (u32 j = 0; j < n_wide; j++)
                multiply(s.v[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

template <u32 ROWS>
static __device__ __forceinline__ void store_tile(const struct latent_project_params &p,
                                                  const struct project_sums<ROWS> &s, struct project_place to)
{
    const struct latent_project_args &a = p.args;
    u32 lane = threadIdx.x % 32, width = a.n_rows + a.n_rotated;

#pragma unroll
    for (u32 i = 0; i < s.rows / 16; i++)
#pragma unroll
        for (u32 j = 0; j < s.columns / 8; j++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                u32 row = to.first_row + s.first_row() + 16 * i + lane / 4 + 8 * h,
                    at = to.first + s.first_column() + 8 * j + lane % 4 * 2;
                f32 *out = p.out + ((u64)row * a.n_heads + to.head) * width + at;
                if (row >= p.step->n_rows || at >= a.n_rows)
                    continue;
                if (width % 2 == 0 && at + 1 < a.n_rows) {
                    *(float2 *)out = make_float2(s.v[i][j][2 * h], s.v[i][j][2 * h + 1]);
                } else {
                    out[0] = s.v[i][j][2 * h];
                    if (at + 1 < a.n_rows)
                        out[1] = s.v[i][j][2 * h + 1];
                }
            }
}

// grid: (heads times tiles of a head's rows, then blocks that rotate and store; tiles of the step's rows)
template <u32 ROWS> static __device__ __forceinline__ void project_tile(const struct latent_project_params &p)
{
    __shared__ struct project_tiles<ROWS> t;
    u32 n_tiles = (p.args.n_rows + t.tile - 1) / t.tile;
    struct project_place at = { blockIdx.x / n_tiles, blockIdx.x % n_tiles * t.tile, blockIdx.y * ROWS };
    struct project_sums<ROWS> sums = {
    };

    if (blockIdx.x < p.n_products && !p.runs)
        load_w(p, t, at, 0);
    wait_for_inputs();
    if (blockIdx.x >= p.n_products) {
        latent_project_rest(p);
        return;
    }
    if (at.first_row >= p.step->n_rows ||
        latent_are_expanded(p.runs, at.first_row, min(at.first_row + ROWS, p.step->n_rows)))
        return;
    struct project_x<ROWS> x;
    x.load(p, at, 0);
    for (u32 k = 0; k < p.args.n_cols; k += t.step) {
        if (k > 0 || p.runs)
            load_w(p, t, at, k);
        x.store(t);
        __syncthreads();
        if (k + t.step < p.args.n_cols)
            x.load(p, at, k + t.step);
        if (sums.has_columns())
            multiply_step(t, sums);
        __syncthreads();
    }
    if (sums.has_columns())
        store_tile(p, sums, at);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    latent_project_many(const __grid_constant__ struct latent_project_params p)
{
    project_tile<LATENT_PROJECT_MANY_ROWS>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    latent_project_few(const __grid_constant__ struct latent_project_params p)
{
    project_tile<LATENT_PROJECT_FEW_ROWS>(p);
}
