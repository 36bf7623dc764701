// gemm_adapters.cuh - what adapters add to the product of one row, in the same launch (ops/lora/lora.h).
//
//   h[j] = s * sum over k of x[k] * a[j][k]      sum[n] += sum over j of h[j] * b[j][n]
//
// The first sum is cut into units: a rank, of which a power of two blocks share the columns. A block computes
// one unit (or one in gridDim.x) and stores its sum in global memory, ADAPTER_COPIES times. Then it polls one
// of the copies until it holds the sums of all units: with a single copy all blocks would poll the same cache
// lines (bench/results/2026-11-29-h200-models.md). After ADAPTER_PATIENCE polls it computes what is missing,
// so that it never waits for a block that has not started. The last block to leave zeroes the copies for the
// next launch.
//
// x is the row times the norm's weights, without the norm's factor, which multiplies the product's sum and
// this one. ADAPTER_THREADS threads of a block do all this, beside those that multiply.
#pragma once
#include "device/cuda/fours.cuh"
#include "device/cuda/words.cuh"
#include "gemm/cuda/gemm_adapters.h"
#include "gemm/cuda/epilogue.cuh"

// Kernels without and with adapters: a kernel's arguments tell.
static __device__ __forceinline__ const struct gemm_params &product_of(const struct gemm_params &p)
{
    return p;
}
static __device__ __forceinline__ const struct gemm_params &product_of(const struct adapted_params &p)
{
    return p.product;
}
static __device__ __forceinline__ u32 adapters_bytes(const struct gemm_params &)
{
    return 0;
}
static __device__ __forceinline__ u32 adapters_bytes(const struct adapted_params &p)
{
    return p.adapters.shared_bytes;
}
template <typename Params> static constexpr bool has_adapters = false;
template <> constexpr bool has_adapters<struct adapted_params> = true;

enum { ADAPTER_PATIENCE = 64 }; // looks at the words, some 40 us

static __device__ __forceinline__ void sync_adapters()
{
    asm volatile("bar.sync 3, 96;" ::: "memory"); // ADAPTER_THREADS
}

static __device__ __forceinline__ bool any_of_adapters(bool is)
{
    u32 any;

    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\t"
                 "bar.red.or.pred q, 3, 96, p;\n\tselp.u32 %0, 1, 0, q;\n\t}" // ADAPTER_THREADS
                 : "=r"(any)
                 : "r"((u32)is)
                 : "memory");
    return any;
}

// Of the row's sequence.
static __device__ __forceinline__ u32 adapter_slot(const struct adapted_params &p)
{
    bool of_outputs = p.product.rows != ROWS_STEP && p.product.step->n_outputs > 0;
    return step_slots(p.product.step)[of_outputs ? step_outputs(p.product.step)[0] : 0];
}
static __device__ __forceinline__ bool any_adapter(const struct adapted_params &p)
{
    const f32 *scales = p.adapters.scales + (u64)adapter_slot(p) * p.adapters.n_adapters;
    bool any = false;

    for (u32 i = 0; i < p.adapters.n_adapters; i++)
        any = any || scales[i] != 0;
    return any;
}

struct adapter_unit {
    const f32 *a;   // the rank's line of n_cols
    u32 first, end; // columns
    u32 owner, slot;

    // Call it when the row's loads are issued. The asm keeps the compiler from computing the address earlier,
    // where the thread would stall on owner and slot.
    __device__ __forceinline__ f32 scale(const struct adapted_params &p) const
    {
        u32 of = owner, in = slot;
        asm volatile("" : "+r"(of), "+r"(in));
        return p.adapters.scales[(u64)in * p.adapters.n_adapters + of];
    }
};
static __device__ __forceinline__ struct adapter_unit adapter_unit_at(const struct adapted_params &p,
                                                                      u32 unit)
{
    u32 log2 = p.adapters.shares_log2, rank = unit >> log2, share = unit & ((1u << log2) - 1), matrix = 0;

#pragma unroll
    for (u32 m = 0; m < 2; m++)
        if (matrix == m && rank >= p.adapters.n_ranks[m])
            rank -= p.adapters.n_ranks[matrix++];
    return { p.adapters.a[matrix] + (u64)rank * p.product.n_cols, share * p.adapters.share_cols,
             min((share + 1) * p.adapters.share_cols, p.product.n_cols), p.adapters.owners[matrix][rank],
             adapter_slot(p) };
}

// A thread's columns, N times four, from `base` on, of a, the norm and the row; zero behind the unit's end.
template <u32 N> struct adapter_fours {
    float4 a[N], norm[N], x[N];

    static __device__ __forceinline__ u32 column(u32 base, u32 i, u32 thread)
    {
        return base + 4 * (i * ADAPTER_THREADS + thread);
    }
    __device__ __forceinline__ void load(const struct adapted_params &p, const struct adapter_unit &u,
                                         u32 base, u32 thread)
    {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            u32 k = column(base, i, thread);
            a[i] = k < u.end ? load_four(u.a, k, p.product.n_cols) : make_float4(0, 0, 0, 0);
            norm[i] = k < u.end && p.product.norm ? load_four(p.product.norm, k, p.product.n_cols)
                                                  : make_float4(1, 1, 1, 1);
        }
    }
    __device__ __forceinline__ void load_row(const struct adapted_params &p, const struct adapter_unit &u,
                                             u32 base, u32 thread)
    {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            u32 k = column(base, i, thread);
            x[i] = k < u.end ? load_four(p.product.in, k, p.product.n_cols) : make_float4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ f32 add(f32 sum) const
    {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            sum = fmaf(x[i].x * norm[i].x, a[i].x, fmaf(x[i].y * norm[i].y, a[i].y, sum));
            sum = fmaf(x[i].z * norm[i].z, a[i].z, fmaf(x[i].w * norm[i].w, a[i].w, sum));
        }
        return sum;
    }
};

// Numbers of b for both rows of a pair, N ranks from `first` on.
template <u32 N> struct adapter_rows {
    f32 b[2][N];

    __device__ __forceinline__ void load(const struct adapted_params &p, const struct pair &r, u32 first)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 m = r.matrix[i], n = p.product.w[m].n_rows, n_ranks = p.adapters.n_ranks[m];
            const f32 *at = p.adapters.b[m] + (u64)first * n + r.row[i];
#pragma unroll
            for (u32 j = 0; j < N; j++)
                b[i][j] = first + j < n_ranks ? at[(u64)j * n] : 0;
        }
    }
    // h: of all ranks. One that is 0 is left out, whatever b is.
    __device__ __forceinline__ float2 add(const struct adapted_params &p, const struct pair &r, u32 first,
                                          const f32 *h, float2 sum) const
    {
        f32 sums[2] = { sum.x, sum.y };
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 m = r.matrix[i], n_ranks = p.adapters.n_ranks[m];
            const f32 *of = h + adapter_first_rank(&p.adapters, m) + first;
#pragma unroll
            for (u32 j = 0; j < N; j++) {
                f32 factor = first + j < n_ranks ? of[j] : 0;
                sums[i] = factor != 0 ? fmaf(factor, b[i][j], sums[i]) : sums[i];
            }
        }
        return make_float2(sums[0], sums[1]);
    }
};
// All ranks of a pair; rows: the first ones.
template <u32 N>
static __device__ __forceinline__ float2 adapter_sums(const struct adapted_params &p, const struct pair &r,
                                                      const f32 *h, struct adapter_rows<N> &rows)
{
    u32 n = max(p.adapters.n_ranks[r.matrix[0]], p.adapters.n_ranks[r.matrix[1]]);
    float2 sum = rows.add(p, r, 0, h, make_float2(0, 0));

#pragma unroll 1
    for (u32 first = N; first < n; first += N) {
        rows.load(p, r, first);
        sum = rows.add(p, r, first, h, sum);
    }
    return sum;
}

static __device__ __forceinline__ u32 adapter_units(const struct adapted_params &p)
{
    return adapter_first_rank(&p.adapters, 3) << p.adapters.shares_log2;
}

// fours: of the unit, from its first column on.
template <u32 N>
static __device__ __forceinline__ void adapter_publish_one(const struct adapted_params &p, u32 thread, u32 u,
                                                           const struct adapter_unit &unit,
                                                           struct adapter_fours<N> &fours)
{
    __shared__ f32 room[ADAPTER_THREADS / 32];
    constexpr u32 step = 4 * N * ADAPTER_THREADS;

    fours.load_row(p, unit, unit.first, thread);
    f32 scale = unit.scale(p); // while the row is on its way
    f32 sum = fours.add(0);
#pragma unroll 1
    for (u32 base = unit.first + step; base < unit.end; base += step) {
        fours.load(p, unit, base, thread);
        fours.load_row(p, unit, base, thread);
        sum = fours.add(sum);
    }
    sum = warp_sum(sum);
    if (thread % 32 == 0)
        room[thread / 32] = sum;
    sync_adapters();
    if (thread < ADAPTER_COPIES) {
        f32 all = scale * (room[0] + room[1] + room[2]);
        publish_number(p.adapters.words + thread * p.adapters.copy_words + u, scale != 0 ? all : 0);
    }
}

// This block's units. fours, unit: of the first, loaded before the block's inputs were there.
template <u32 N>
static __device__ __forceinline__ void adapter_publish(const struct adapted_params &p, u32 thread,
                                                       struct adapter_unit unit,
                                                       struct adapter_fours<N> &fours)
{
#pragma unroll 1
    for (u32 u = blockIdx.x; u < adapter_units(p); u += gridDim.x) {
        if (u != blockIdx.x) {
            sync_adapters(); // what the last one left in shared memory is read
            unit = adapter_unit_at(p, u);
            fours.load(p, unit, unit.first, thread);
        }
        adapter_publish_one(p, thread, u, unit, fours);
    }
}

// The copy that this block polls.
static __device__ __forceinline__ const u32 *adapter_words(const struct adapted_params &p)
{
    return p.adapters.words + blockIdx.x % ADAPTER_COPIES * p.adapters.copy_words;
}

// Computes what no block has published: those whose units they are may wait for this block to end, where
// another launch has taken their place. Who publishes a unit makes no difference to its bits, and how many
// columns are loaded at once neither.
static __device__ __forceinline__ void adapter_help(const struct adapted_params &p, u32 thread)
{
    __shared__ u32 missing;

#pragma unroll 1
    for (u32 u = 0; u < adapter_units(p); u++) {
        sync_adapters();
        if (thread == 0)
            missing = !load_word(adapter_words(p) + u);
        sync_adapters();
        if (!missing)
            continue;
        struct adapter_unit unit = adapter_unit_at(p, u);
        struct adapter_fours<1> fours;
        fours.load(p, unit, unit.first, thread);
        adapter_publish_one(p, thread, u, unit, fours);
    }
}

// Adds the shares of each rank. A lane holds four neighbouring words of a warp's 128; a rank's sum replaces
// its first word.
static __device__ __forceinline__ void adapter_join(f32 (&v)[4], u32 shares)
{
    if (shares > 1) {
        v[0] += v[1];
        v[2] += v[3];
    }
    if (shares > 2)
        v[0] += v[2];
    for (u32 o = shares / 8; o; o >>= 1)
        v[0] += __shfl_xor_sync(~0u, v[0], o);
}

// Waits for all words; a warp takes 128 at a time. h: [ranks], in shared memory.
static __device__ __forceinline__ void adapter_collect(const struct adapted_params &p, u32 thread, f32 *h)
{
    u32 n = adapter_units(p), log2 = p.adapters.shares_log2;

#pragma unroll 1
    for (u32 base = 0; base < n; base += 4 * ADAPTER_THREADS) {
        u32 u = base + 4 * thread;
        uint4 words = make_uint4(1, 1, 1, 1);
        bool missing = true;
        for (u32 tries = 1; missing; tries++) {
            if (u < n)
                words = load_four(adapter_words(p) + u);
            missing = u < n && !(words.x && (words.y || u + 1 >= n) && (words.z || u + 2 >= n) &&
                                 (words.w || u + 3 >= n));
            missing = __any_sync(~0u, missing);
            if (missing && tries % ADAPTER_PATIENCE != 0)
                continue;
            missing = any_of_adapters(missing);
            if (missing)
                adapter_help(p, thread);
        }
        f32 v[4] = { __uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                     __uint_as_float(words.w) };
        adapter_join(v, 1u << log2);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            if (u + k < n && ((u + k) & ((1u << log2) - 1)) == 0)
                h[(u + k) >> log2] = v[k];
    }
    sync_adapters();
}

// Called by a warp of a block that has read all words.
static __device__ __forceinline__ void adapter_leave(const struct adapted_params &p, u32 lane)
{
    u32 left = 0;

    if (lane == 0) {
        __threadfence();
        left = atomicAdd((u32 *)p.adapters.left, 1);
    }
    left = __shfl_sync(~0u, left, 0);
    if (left + 1 < gridDim.x)
        return;
    for (u32 i = lane; i < ADAPTER_COPIES * p.adapters.copy_words; i += 32)
        p.adapters.words[i] = 0;
    if (lane == 0)
        *p.adapters.left = 0;
}
