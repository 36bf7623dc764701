// epilogue.cuh - which weight rows form a pair, and the epilogue of a pair's two sums; see gemm_params.h.
#pragma once
#include "gemm/cuda/activation.cuh"
#include "gemm/cuda/weight_layout.cuh"
#include "gemm/cuda/gemm_params.h"
#include "device/cuda/pages.cuh"

struct pair {
    u32 matrix[2]; // indices into w
    u32 row[2];
    u32 turn; // EPILOGUE_ROPE_STORE: the first of the two angles, or ~0
    u32 head;
    bool second; // false: there is no second row; it repeats the first
};

static __device__ __forceinline__ struct pair pair_plain(u32 at, u32 matrix, u32 n_rows)
{
    struct pair r;
    r.matrix[0] = r.matrix[1] = matrix;
    r.row[0] = 2 * at;
    r.second = 2 * at + 1 < n_rows;
    r.row[1] = r.second ? 2 * at + 1 : 2 * at;
    r.turn = ~0u;
    r.head = 0;
    return r;
}

// Pair `at` of q, k and v, which follow each other; each has an even number of rows.
static __device__ __forceinline__ struct pair pair_rope(const struct gemm_params &p, u32 at, u32 mode)
{
    u32 half = p.rope.pages.head_dim / 2, n_q = p.w[0].n_rows / 2, n_kv = p.w[1].n_rows / 2, matrix = 0;

    if (at >= n_q) {
        at -= n_q;
        matrix = at < n_kv ? 1 : 2;
        at -= at < n_kv ? 0 : n_kv;
    }
    struct pair r = pair_plain(at, matrix, ~0u);
    u32 head = at / half, i = at - head * half;
    r.head = head;
    if (mode == EPILOGUE_QKV || 2 * i >= p.rope.n_dims)
        return r;
    if (matrix < 2)
        r.turn = 2 * i;
    if (p.rope.pairs == ROPE_HALVES) { // v is not rotated, but its rows pair up the same way
        r.row[0] = head * 2 * half + i;
        r.row[1] = r.row[0] + p.rope.n_dims / 2;
    }
    return r;
}

// mode, here and below: p.mode, or the constant that a kernel was built for.
static __device__ __forceinline__ struct pair pair_find(const struct gemm_params &p, u32 at, u32 mode)
{
    if (mode >= EPILOGUE_ROPE_STORE)
        return pair_rope(p, at, mode);
    if (mode == EPILOGUE_GATED) {
        struct pair r;
        r.matrix[0] = 0;
        r.matrix[1] = 1;
        r.row[0] = r.row[1] = at;
        r.second = true;
        r.turn = ~0u;
        r.head = 0;
        return r;
    }
    return pair_plain(at, 0, p.w[0].n_rows);
}

// The epilogue's operands for a pair, loaded before the sums are there.
struct pair_inputs {
    f32 add[2], bias[2], cosine, sine;
    u32 place, elements; // of k and v in their pages; elements: of 16 bits
};

static __device__ __forceinline__ struct page_side page_side_of(const struct gemm_params &p,
                                                                const struct pair &r)
{
    return { &p.rope.pages, r.matrix[0] == 1 ? p.k_pages : p.v_pages, r.matrix[0] == 2 };
}

// Data that is older than any launch of this step.
static __device__ __forceinline__ struct pair_inputs pair_load_early(const struct gemm_params &p,
                                                                     const struct pair &r, u32 row, u32 mode)
{
    struct pair_inputs in = { { 0, 0 }, { 0, 0 }, 1, 0, 0, 0 };
    const f32 *bias = mode == EPILOGUE_GATED ? nullptr : p.bias[r.matrix[0]];

    if (bias) {
        in.bias[0] = bias[r.row[0]];
        in.bias[1] = bias[r.row[1]];
    }
    if (mode == EPILOGUE_ROPE_STORE && r.matrix[0] > 0) {
        u32 position = step_positions(p.step)[row], token = position % PAGE_TOKENS,
            dims = r.head * p.rope.pages.head_dim;
        u32 page = p.table[(u64)step_slots(p.step)[row] * p.rope.pages.max_pages + position / PAGE_TOKENS];
        struct page_side side = page_side_of(p, r);
        in.place = (u32)page_place(&p.rope.pages, page, r.head);
        in.elements = (u32)side.element(token, r.row[0] - dims) | (u32)side.element(token, r.row[1] - dims)
                                                                      << 16;
    }
    return in;
}
static __device__ __forceinline__ void pair_load_late(const struct gemm_params &p, const struct pair &r,
                                                      u32 row, struct pair_inputs &in, u32 mode)
{
    if (mode < EPILOGUE_ROPE_STORE && mode != EPILOGUE_GATED && p.add) {
        in.add[0] = p.add[(u64)row * p.out_stride[0] + r.row[0]];
        in.add[1] = p.add[(u64)row * p.out_stride[0] + r.row[1]];
    }
    if (mode == EPILOGUE_ROPE_STORE && r.turn != ~0u) {
        float2 angle = *(const float2 *)(p.angles + (u64)row * p.rope.n_dims + r.turn);
        in.cosine = angle.x;
        in.sine = angle.y;
    }
}
static __device__ __forceinline__ struct pair_inputs pair_load(const struct gemm_params &p,
                                                               const struct pair &r, u32 row, u32 mode)
{
    struct pair_inputs in = pair_load_early(p, r, row, mode);
    pair_load_late(p, r, row, in, mode);
    return in;
}

// q, k or v: bias, RoPE and store.
static __device__ __forceinline__ void pair_rope_end(const struct gemm_params &p, const struct pair &r,
                                                     u32 row, const struct pair_inputs &in, f32 (&sums)[2],
                                                     u32 mode)
{
    u32 m = r.matrix[0];

    if (r.turn != ~0u) {
        f32 x = sums[0], y = sums[1];
        sums[0] = x * in.cosine - y * in.sine;
        sums[1] = y * in.cosine + x * in.sine;
    }
    if (m > 0 && mode == EPILOGUE_ROPE_STORE) {
        struct page_side side = page_side_of(p, r);
        u64 first = (u64)in.place * PAGE_TOKENS * p.rope.pages.head_dim;
        page_put_at(side, first + (in.elements & 0xffff), sums[0]);
        page_put_at(side, first + (in.elements >> 16), sums[1]);
        return;
    }
    f32 *out = p.out[m] + (u64)row * p.out_stride[m];
    out[r.row[0]] = sums[0];
    out[r.row[1]] = sums[1];
}

// The epilogue of one pair and one row of activations.
static __device__ __forceinline__ void pair_epilogue_store(const struct gemm_params &p, const struct pair &r,
                                                           u32 row, const struct pair_inputs &in, float2 sum,
                                                           u32 mode)
{
    f32 sums[2] = { sum.x + in.bias[0] + in.add[0], sum.y + in.bias[1] + in.add[1] };

    if (mode >= EPILOGUE_ROPE_STORE) {
        pair_rope_end(p, r, row, in, sums, mode);
        return;
    }
    f32 *out = p.out[0] + (u64)row * p.out_stride[0];
    if (mode == EPILOGUE_GATED) {
        out[r.row[0]] = activation_of(p.activation, sum.x) * sum.y;
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++)
        if (i == 0 || r.second)
            out[r.row[i]] = mode == EPILOGUE_GATE_OVER ? activation_of(p.activation, sums[i]) * out[r.row[i]]
                            : mode == EPILOGUE_ACTIVATED ? activation_of(p.activation, sums[i])
                                                         : sums[i];
}

static __device__ __forceinline__ void pair_finish(const struct gemm_params &p, const struct pair &r, u32 row,
                                                   f32 first, f32 second)
{
    pair_epilogue_store(p, r, row, pair_load(p, r, row, p.mode), make_float2(first, second), p.mode);
}
