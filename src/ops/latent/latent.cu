// latent.cu - latent_store, and latent_project in fp32 for few rows, odd widths and exact sums; see latent.h.
//
//   latent_store    a block per row: norm and RoPE of the key in shared memory, then the store into its page
//   latent_project  head h:  row 0     | l0 | l1 | ... | l31 | l0 | ...    a warp per row of a head's matrix,
//                            row 1     ...                                 for each row of the step in turn
//
// No pipeline, no epilogue. The order of a sum depends on n_cols and the format alone.
#include "device/cuda/pages.cuh"
#include "gemm/cuda/row_plain.cuh"
#include "ops/latent/latent_rotate.cuh"

// A block takes a row: the key is made in shared memory.
extern "C" __global__ void __launch_bounds__(LATENT_STORE_THREADS)
    latent_store(const __grid_constant__ struct latent_store_params p)
{
    extern __shared__ __align__(16) f32 key[]; // [head_dim]
    __shared__ f32 room[33];
    const struct page_shape &s = p.args.pages;
    u32 row = blockIdx.x, n_latent = p.args.latent_dims, n_rotated = s.head_dim - n_latent;
    f32 squares = 0;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    const f32 *in = p.in + (u64)row * s.head_dim;
    for (u32 d = threadIdx.x; d < n_latent; d += LATENT_STORE_THREADS) {
        f32 x = in[d];
        squares += x * x;
        key[d] = x * p.norm[d];
    }
    f32 factor = norm_factor(block_sum(squares, room), n_latent, p.args.eps);
    for (u32 d = threadIdx.x; d < n_latent; d += LATENT_STORE_THREADS)
        key[d] *= factor;
    for (u32 i = threadIdx.x; i < n_rotated / 2; i += LATENT_STORE_THREADS)
        latent_rotate_pair(in + n_latent, key + n_latent, p.angles + (u64)row * n_rotated, i, n_rotated,
                           p.args.pairs);
    __syncthreads();
    u32 position = step_positions(p.step)[row], token = position % PAGE_TOKENS;
    u32 page = p.table[(u64)step_slots(p.step)[row] * s.max_pages + position / PAGE_TOKENS];
    struct page_side side = { &s, p.pages, false };
    for (u32 d = threadIdx.x; d < s.head_dim; d += LATENT_STORE_THREADS)
        if (s.head_dim % 32 == 0)
            page_put_block(side, page, 0, token, d, key[d]);
        else
            page_put(side, page, 0, token, d, key[d]);
}

// Eight lanes take a row of a head's matrix, for each row of the step in turn: rows are short.
extern "C" __global__ void __launch_bounds__(LATENT_PROJECT_THREADS)
    latent_project(const __grid_constant__ struct latent_project_params p)
{
    const struct latent_project_args &a = p.args;
    struct lane_span s = { threadIdx.x % LATENT_PROJECT_LANES, LATENT_PROJECT_LANES };
    u32 at =
            blockIdx.x * (LATENT_PROJECT_THREADS / LATENT_PROJECT_LANES) + threadIdx.x / LATENT_PROJECT_LANES,
        n = a.n_heads * a.n_rows, head = min(at, n - 1) / a.n_rows;

    wait_for_inputs();
    if (blockIdx.x >= p.n_products) {
        latent_rotate_rest(p, blockIdx.x - p.n_products);
        return;
    }
    for (u32 row = blockIdx.y; row < p.step->n_rows; row += gridDim.y) {
        const f32 *x = p.in + ((u64)row * a.n_heads + head) * (a.n_cols + a.n_rotated);
        f32 sum = dot_row_any(p.w, min(at, n - 1), x, s);
#pragma unroll
        for (u32 o = LATENT_PROJECT_LANES / 2; o; o /= 2)
            sum += __shfl_xor_sync(~0u, sum, o);
        if (s.lane == 0 && at < n)
            p.out[((u64)row * a.n_heads + head) * (a.n_rows + a.n_rotated) + at % a.n_rows] = sum;
    }
}
