// rope_store_few.cu - rope_store for few rows: a block takes one head of one row. Same products as
// rope_store.cu, another order of the norm's sum.
//
// It is one round through memory long: what no earlier launch writes (norms, positions, pages) is loaded
// before the inputs are there, a thread's numbers and their angles then at once. Shared memory has the head,
// where numbers that rotate together meet. With many rows that costs more than it saves
// (bench/results/2026-11-22-h200-experts.md).
#include "device/cuda/pages.cuh"
#include "ops/rope_store/rope_store_cuda.h"

enum { AT_ONCE = 4 }; // numbers of a thread

struct head_numbers { // number i: dim first + i * ROPE_FEW_THREADS
    f32 x[AT_ONCE], norm[AT_ONCE];
    float2 angle[AT_ONCE];
};

// The pair that dim d of a head belongs to.
static __device__ __forceinline__ u32 pair_of(const struct rope_store_args &a, u32 d)
{
    return a.pairs == ROPE_ADJACENT ? d / 2 : d % (a.n_dims / 2);
}

// Number d of the rotated head.
static __device__ __forceinline__ f32 rotated(const struct rope_store_args &a, const f32 *head, u32 d,
                                              float2 angle)
{
    u32 i = pair_of(a, d), first = a.pairs == ROPE_ADJACENT ? 2 * i : i,
        second = a.pairs == ROPE_ADJACENT ? 2 * i + 1 : i + a.n_dims / 2;
    f32 x = head[first], y = head[second];

    return d == first ? x * angle.x - y * angle.y : y * angle.x + x * angle.y;
}

// Dims first, first + ROPE_FEW_THREADS and so on of a head: normalised, if there is a norm, and to the head
// in shared memory.
static __device__ __forceinline__ void take_head(struct head_numbers &n, const f32 *from, const f32 *norm,
                                                 const f32 *angles, const struct rope_store_args &a,
                                                 f32 *head, f32 *room)
{
    u32 dims = a.pages.head_dim;
    f32 squares = 0;

#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        u32 d = threadIdx.x + i * ROPE_FEW_THREADS;
        n.x[i] = d < dims ? from[d] : 0;
        if (angles && d < a.n_dims)
            n.angle[i] = ((const float2 *)angles)[pair_of(a, d)];
    }
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++)
        squares += n.x[i] * n.x[i];
    f32 factor = norm ? norm_factor(block_sum(squares, room), dims, a.eps) : 1;
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        u32 d = threadIdx.x + i * ROPE_FEW_THREADS;
        n.x[i] *= norm ? factor * n.norm[i] : 1;
        if (d < dims)
            head[d] = n.x[i];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(ROPE_FEW_THREADS)
    rope_store_few(const __grid_constant__ struct rope_store_params p)
{
    __shared__ f32 head[AT_ONCE * ROPE_FEW_THREADS], room[33];
    const struct page_shape &s = p.args.pages;
    u32 row = blockIdx.y, at = blockIdx.x, n_q = p.args.n_heads, n_kv = s.n_kv_heads, position = 0, page = 0;
    bool exists = row < p.step->n_rows, is_q = at < n_q, is_k = !is_q && at < n_q + n_kv;
    const f32 *norm = is_q ? p.q_norm : is_k ? p.k_norm : nullptr;
    struct head_numbers n = {};

#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++)
        if (norm && threadIdx.x + i * ROPE_FEW_THREADS < s.head_dim)
            n.norm[i] = norm[threadIdx.x + i * ROPE_FEW_THREADS];
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
    take_head(n, from, norm, is_q || is_k ? p.angles + (u64)row * p.args.n_dims : nullptr, p.args, head,
              room);
    f32 *to =
        is_q ? p.q + ((u64)row * n_q + number) * s.head_dim : p.k + ((u64)row * n_kv + number) * s.head_dim;
    struct page_side side = { &s, is_k ? p.k_pages : p.v_pages, !is_k };
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        u32 d = threadIdx.x + i * ROPE_FEW_THREADS;
        if (d >= s.head_dim)
            break;
        f32 x = (is_q || is_k) && d < p.args.n_dims ? rotated(p.args, head, d, n.angle[i]) : n.x[i];
        if (is_q || is_k)
            to[d] = x;
        if (is_q)
            continue;
        if (s.head_dim % 32 == 0)
            page_put_block(side, page, number, position % PAGE_TOKENS, d, x);
        else
            page_put(side, page, number, position % PAGE_TOKENS, d, x);
    }
}
