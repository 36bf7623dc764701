// rope_store.cu - the operation as defined in rope_store.h: a warp takes one head of one row.
//
//   [q heads | k heads | v heads]  of a row: four to a block        grid: (heads / 4, rows)
//
// q and k are normalised and rotated in place; k and v then go to their pages. Few rows take
// rope_store_few.cu.
#include "device/cuda/pages.cuh"
#include "ops/rope_store/rope_store_cuda.h"

static __device__ void normalise(f32 *head, const f32 *norm, u32 n, f32 eps)
{
    u32 lane = threadIdx.x & 31;
    f32 squares = 0;

    for (u32 d = lane; d < n; d += 32)
        squares += head[d] * head[d];
    f32 factor = norm_factor(warp_sum(squares), n, eps);
    for (u32 d = lane; d < n; d += 32)
        head[d] *= factor * norm[d];
    __syncwarp();
}

static __device__ void rotate(const struct rope_store_args &a, f32 *head, const f32 *angles)
{
    for (u32 i = threadIdx.x & 31; i < a.n_dims / 2; i += 32) {
        u32 first = a.pairs == ROPE_ADJACENT ? 2 * i : i,
            second = a.pairs == ROPE_ADJACENT ? 2 * i + 1 : i + a.n_dims / 2;
        f32 x = head[first], y = head[second], cosine = angles[2 * i], sine = angles[2 * i + 1];
        head[first] = x * cosine - y * sine;
        head[second] = y * cosine + x * sine;
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(128)
    rope_store(const __grid_constant__ struct rope_store_params p)
{
    const struct page_shape &s = p.args.pages;
    u32 row = blockIdx.y, at = blockIdx.x * 4 + threadIdx.x / 32, n_q = p.args.n_heads, n_kv = s.n_kv_heads,
        lane = threadIdx.x & 31;

    wait_for_inputs();
    if (row >= p.step->n_rows || at >= n_q + 2 * n_kv)
        return;
    const f32 *angles = p.angles + (u64)row * p.args.n_dims;
    bool is_q = at < n_q, is_k = !is_q && at < n_q + n_kv;
    u32 h = is_q ? at : is_k ? at - n_q : at - n_q - n_kv;
    f32 *head = is_q ? p.q + ((u64)row * n_q + h) * s.head_dim
                     : (is_k ? p.k : (f32 *)p.v) + ((u64)row * n_kv + h) * s.head_dim;
    const f32 *norm = is_q ? p.q_norm : p.k_norm;

    if (is_q || is_k) {
        if (norm)
            normalise(head, norm, s.head_dim, p.args.eps);
        rotate(p.args, head, angles);
    }
    if (is_q)
        return;
    u32 position = step_positions(p.step)[row], token = position % PAGE_TOKENS;
    u32 page = p.table[(u64)step_slots(p.step)[row] * s.max_pages + position / PAGE_TOKENS];
    struct page_side side = { &s, is_k ? p.k_pages : p.v_pages, !is_k };
    for (u32 d = lane; d < s.head_dim; d += 32)
        if (s.head_dim % 32 == 0)
            page_put_block(side, page, h, token, d, head[d]);
        else
            page_put(side, page, h, token, d, head[d]);
}
