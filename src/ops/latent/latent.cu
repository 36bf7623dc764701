// latent.cu - latent_store, and latent_project in fp32 for few rows, odd widths and exact sums; see latent.h.
//
//   latent_store    a block per row: norm and RoPE of the key in shared memory, then the store into its page;
//                   latent_store_many 16 rows, whose tokens lie side by side in a page
//   latent_project  head h:  row 0     | l0 | l1 | ... | l7 | l0 | ...     eight lanes a row of a head's
//   matrix,
//                            row 1     ...                                 for each row of the step in turn
//
// No pipeline but weights requested before the wait, no epilogue. The order of a sum depends on n_cols and
// the format alone.
#include "gemm/cuda/row_plain.cuh"
#include "ops/latent/latent_store.cuh"

// A block takes a row.
extern "C" __global__ void __launch_bounds__(LATENT_STORE_THREADS)
    latent_store(const __grid_constant__ struct latent_store_params p)
{
    wait_for_inputs();
    latent_store_rows(p, p.step, blockIdx.x, gridDim.x);
}

// A warp makes two keys of 576 numbers, and a thread stores a row's every sixteenth. Not for pages of Q8_0.
extern "C" __global__ void __launch_bounds__(LATENT_STORE_MANY_THREADS)
    latent_store_many(const __grid_constant__ struct latent_store_params p)
{
    __shared__ f32 keys[LATENT_STORE_MANY_ROWS][LATENT_KEY + 1];
    constexpr u32 n_rotated = LATENT_KEY - LATENT_VALUE, each = LATENT_STORE_MANY_ROWS / 8;
    u32 first = blockIdx.x * LATENT_STORE_MANY_ROWS, lane = threadIdx.x % 32;

    wait_for_inputs();
#pragma unroll
    for (u32 k = 0; k < each; k++) {
        u32 at = threadIdx.x / 32 * each + k, row = first + at;
        if (row >= p.step->n_rows)
            break;
        const f32 *in = p.in + (u64)row * LATENT_KEY;
        f32 x[LATENT_VALUE / 32], squares = 0;
#pragma unroll
        for (u32 i = 0; i < LATENT_VALUE / 32; i++) {
            x[i] = in[i * 32 + lane];
            squares += x[i] * x[i];
        }
        f32 factor = norm_factor(warp_sum(squares), LATENT_VALUE, p.args.eps);
#pragma unroll
        for (u32 i = 0; i < LATENT_VALUE / 32; i++)
            keys[at][i * 32 + lane] = x[i] * p.norm[i * 32 + lane] * factor;
        latent_rotate_pair(in + LATENT_VALUE, keys[at] + LATENT_VALUE, p.angles + (u64)row * n_rotated, lane,
                           n_rotated, p.args.pairs);
    }
    __syncthreads();
    u32 at = threadIdx.x % LATENT_STORE_MANY_ROWS, row = first + at;
    if (row >= p.step->n_rows)
        return;
    const struct page_shape &s = p.args.pages;
    u32 position = step_positions(p.step)[row],
        page = p.table[(u64)step_slots(p.step)[row] * s.max_pages + position / PAGE_TOKENS];
    for (u32 d = threadIdx.x / LATENT_STORE_MANY_ROWS; d < LATENT_KEY;
         d += LATENT_STORE_MANY_THREADS / LATENT_STORE_MANY_ROWS)
        page_put({ &s, p.pages, false }, page, 0, position % PAGE_TOKENS, d, keys[at][d]);
}

// A lane's block of 32 weights times activations.
template <u32 F>
static __device__ __forceinline__ f32 dot_32(const struct packed<F> &w, const f32 *x, bool aligned, f32 sum)
{
    struct unpacked u = unpack_block<F>(w);
    float4 v[8];

#pragma unroll
    for (u32 i = 0; i < 8; i++)
        v[i] = latent_load_four(x + 4 * i, aligned);
#pragma unroll
    for (u32 i = 0; i < 32; i++) {
        f32 at = i % 4 == 0 ? v[i / 4].x : i % 4 == 1 ? v[i / 4].y : i % 4 == 2 ? v[i / 4].z : v[i / 4].w;
        sum = fmaf(signed_byte(u.q[i / 4], i % 4) * u.scale[i / 16] + u.offset[i / 16], at, sum);
    }
    return sum;
}

// A row of a head's matrix: eight lanes, which request their first blocks before the activations are there.
template <u32 F> struct lane_row {
    const struct latent_project_params &p;
    u32 row, lane, n_blocks;
    struct packed<F> first[2];

    __device__ __forceinline__ lane_row(const struct latent_project_params &p, u32 row)
        : p(p), row(row), lane(threadIdx.x % LATENT_PROJECT_LANES), n_blocks(p.args.n_cols / 32)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            first[i] = load_block<F>(p.w, row, min(lane + i * LATENT_PROJECT_LANES, n_blocks - 1));
    }
    __device__ __forceinline__ f32 dot(const f32 *x, bool aligned) const
    {
        f32 sum = 0;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 block = lane + i * LATENT_PROJECT_LANES;
            if (block < n_blocks)
                sum = dot_32<F>(first[i], x + block * 32, aligned, sum);
        }
        for (u32 block = lane + 2 * LATENT_PROJECT_LANES; block < n_blocks; block += LATENT_PROJECT_LANES)
            sum = dot_32<F>(load_block<F>(p.w, row, block), x + block * 32, aligned, sum);
        return sum;
    }
};

// The same of plain numbers.
struct plain_row {
    const struct latent_project_params &p;
    u32 row;

    __device__ __forceinline__ f32 dot(const f32 *x, bool) const
    {
        return dot_row_any(p.w, row, x, { threadIdx.x % LATENT_PROJECT_LANES, LATENT_PROJECT_LANES });
    }
};

// The row's products with each row of the step in turn. at: the matrix row, which may be behind the last one.
template <class ROW>
static __device__ __forceinline__ void project_row(const struct latent_project_params &p, const ROW &w,
                                                   u32 at)
{
    const struct latent_project_args &a = p.args;
    u32 width = a.n_cols + a.n_rotated, head = w.row / a.n_rows;

    wait_for_inputs();
    for (u32 row = blockIdx.y; row < p.step->n_rows; row += gridDim.y) {
        f32 sum = w.dot(p.in + ((u64)row * a.n_heads + head) * width, width % 4 == 0);
#pragma unroll
        for (u32 o = LATENT_PROJECT_LANES / 2; o; o /= 2)
            sum += __shfl_xor_sync(~0u, sum, o);
        if (threadIdx.x % LATENT_PROJECT_LANES == 0 && at < a.n_heads * a.n_rows)
            p.out[((u64)row * a.n_heads + head) * (a.n_rows + a.n_rotated) + at % a.n_rows] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(LATENT_PROJECT_THREADS, 5)
    latent_project(const __grid_constant__ struct latent_project_params p)
{
    u32 at =
            blockIdx.x * (LATENT_PROJECT_THREADS / LATENT_PROJECT_LANES) + threadIdx.x / LATENT_PROJECT_LANES,
        row = min(at, p.args.n_heads * p.args.n_rows - 1);

    if (blockIdx.x >= p.n_products) {
        wait_for_inputs();
        latent_project_rest(p);
    } else if (p.w.format > QUANT_BF16) {
        FOR_QUANTISED(p.w.format, project_row(p, lane_row<F>(p, row), at))
    } else {
        project_row(p, plain_row{ p, row }, at);
    }
}
