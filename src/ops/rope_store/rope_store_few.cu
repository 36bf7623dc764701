// rope_store_few.cu - rope_store for few rows: a warp takes one head of one row. Same sums and products as
// rope_store.cu, in another order of loads.
//
// It is one round through memory long: what no earlier launch writes (norms, positions, pages) is loaded
// before the inputs are there, a head and its angles then at once, and the rest is done in shared memory,
// which has the head, its norm and the angles of each warp. With many rows that costs more than it saves
// (bench/results/2026-11-22-h200-experts.md).
#include "device/cuda/pages.cuh"
#include "ops/rope_store/rope_store_cuda.h"

struct warp_head { // in shared memory
    f32 *x, *norm, *angles;
};

static __device__ __forceinline__ void normalise(const struct warp_head &h, f32 squares, u32 n, f32 eps)
{
    f32 factor = norm_factor(warp_sum(squares), n, eps);

    for (u32 d = threadIdx.x & 31; d < n; d += 32)
        h.x[d] *= factor * h.norm[d];
    __syncwarp();
}

static __device__ __forceinline__ void rotate(const struct rope_store_args &a, const struct warp_head &h)
{
    for (u32 i = threadIdx.x & 31; i < a.n_dims / 2; i += 32) {
        u32 first = a.pairs == ROPE_ADJACENT ? 2 * i : i,
            second = a.pairs == ROPE_ADJACENT ? 2 * i + 1 : i + a.n_dims / 2;
        f32 x = h.x[first], y = h.x[second], cosine = h.angles[2 * i], sine = h.angles[2 * i + 1];
        h.x[first] = x * cosine - y * sine;
        h.x[second] = y * cosine + x * sine;
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(128)
    rope_store_few(const __grid_constant__ struct rope_store_params p)
{
    extern __shared__ f32 heads[];
    const struct page_shape &s = p.args.pages;
    u32 row = blockIdx.y, at = blockIdx.x * 4 + threadIdx.x / 32, n_q = p.args.n_heads, n_kv = s.n_kv_heads,
        lane = threadIdx.x & 31, position = 0, page = 0;
    bool exists = row < p.step->n_rows && at < n_q + 2 * n_kv, is_q = at < n_q,
         is_k = !is_q && at < n_q + n_kv;
    const f32 *norm = is_q ? p.q_norm : is_k ? p.k_norm : nullptr;
    struct warp_head h = { heads + threadIdx.x / 32 * 3 * s.head_dim };
    f32 squares = 0;

    h.norm = h.x + s.head_dim;
    h.angles = h.norm + s.head_dim;
    for (u32 d = lane; norm && d < s.head_dim; d += 32)
        h.norm[d] = norm[d];
    if (exists && !is_q) {
        position = step_positions(p.step)[row];
        page = p.table[(u64)step_slots(p.step)[row] * s.max_pages + position / PAGE_TOKENS];
    }
    wait_for_inputs();
    if (!exists)
        return;
    u32 number = is_q ? at : is_k ? at - n_q : at - n_q - n_kv;
    const f32 *from = is_q   ? p.q + ((u64)row * n_q + number) * s.head_dim
                      : is_k ? p.k + ((u64)row * n_kv + number) * s.head_dim
                             : p.v + ((u64)row * n_kv + number) * s.head_dim;
    for (u32 d = lane; (is_q || is_k) && d < p.args.n_dims; d += 32)
        h.angles[d] = p.angles[(u64)row * p.args.n_dims + d];
    for (u32 d = lane; d < s.head_dim; d += 32) {
        f32 v = from[d];
        squares += v * v;
        h.x[d] = v;
    }
    __syncwarp();
    if (norm)
        normalise(h, squares, s.head_dim, p.args.eps);
    if (is_q || is_k)
        rotate(p.args, h);
    f32 *to =
        is_q ? p.q + ((u64)row * n_q + number) * s.head_dim : p.k + ((u64)row * n_kv + number) * s.head_dim;
    struct page_side side = { &s, is_k ? p.k_pages : p.v_pages, !is_k };
    for (u32 d = lane; d < s.head_dim; d += 32) {
        if (is_q || is_k)
            to[d] = h.x[d];
        if (is_q)
            continue;
        if (s.head_dim % 32 == 0)
            page_put_block(side, page, number, position % PAGE_TOKENS, d, h.x[d]);
        else
            page_put(side, page, number, position % PAGE_TOKENS, d, h.x[d]);
    }
}
