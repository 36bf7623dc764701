// attend_block.cu - a layer's attention for one row in one launch (a persistent kernel with exchanges through
// memory in place of launches); see attend_block.h. Heads of 128.
//
// Bound by reading the weights, and by the round trips between blocks.
//
//   block b: its rows of Wq, Wk, Wv       -> heads    --+   weights by bulk copies, before the row is there
//            some blocks: 8 heads, a split            <-+   as attend_few.cuh; the split that has the row's
//                                         -> attended --+   position stores k and v first
//            its rows of Wo, + x                      <-+   requested when those of Wq are multiplied
//                                         -> x
//
//   grid: one block an SM, all of which run at once; block: 8 warps, with shared memory and registers for a
//   block of moe_row beside it: each of the two begins while the other one ends
//
// Exchange: words (device/cuda/words.cuh), q, k and v as fp32, what was attended as pairs of bf16. Who has
// all of that knows that all blocks have read the heads, and makes its share of them zero again; the last
// block to have read it makes it zero. Waiting ends only because all blocks run at once: attend_block_cuda.c
// launches as many as there are SMs, and later launches begin when all have begun. Activations are int8 with
// a scale for each 32. A sum's order depends on the shape alone; how a past is split on the row's position.
#include "device/cuda/words.cuh"
#include "gemm/cuda/block_rows.cuh"
#include "ops/attend/attend_few.cuh"
#include "ops/attend_block/attend_block_cuda.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum { DIM = ATTEND_BLOCK_DIM, THREADS = ATTEND_BLOCK_THREADS, WARPS = THREADS / 32 };

template <u32 KV> struct block_shape : few_shape<DIM, DIM, ATTEND_FEW_PARTS(DIM), THREADS, KV, false> {
    static constexpr bool hands_on = true;
};

struct attend_state {              // shared memory
    u64 full[2];                   // barriers: of the weights of q, k and v, and of the output's
    alignas(16) f32 norms[2][DIM]; // of q and k
    float2 angles[DIM / 2];
    f32 sums[WARPS], in[ATTEND_BLOCK_MOST_ROWS]; // in: x, of the block's rows of the output
    u32 last;
};
static_assert(sizeof(struct attend_state) <= ATTEND_BLOCK_STATE, "");

// What attention has in its shared memory before its sums are there: q's heads, then k's and v's. The pitch
// keeps lanes of unlike heads in unlike banks.
struct head_stage {
    f32 heads[ATTEND_FEW_HEADS + 2][DIM + 4];
};

static __device__ __forceinline__ struct rows_span span_of(const struct attend_block_rows &r)
{
    struct rows_span span = rows_of_block(r.of_block, blockIdx.x);

    span.n = blockIdx.x < r.n_blocks ? span.n : 0;
    return span;
}

// ---- weights

// One thread. Rows of q, k and v, which follow each other.
template <u32 F>
static __device__ __forceinline__ void request_qkv(const struct attend_block_params &p,
                                                   const struct rows_span &span, u32 shared,
                                                   struct attend_state &s)
{
    u32 n_kv = p.args.qkv.rope.pages.n_kv_heads * DIM, begin = 0, end = p.args.qkv.rope.n_heads * DIM,
        full = shared_address(&s.full[0]);

    barrier_begin(full, 1);
    barrier_begin(shared_address(&s.full[1]), 1);
    show_barriers();
    expect_bytes(full, span.n * p.qkv.of_block.row_bytes);
#pragma unroll 1
    for (u32 m = 0; m < 3; m++) {
        u32 first = max(span.first, begin), last = min(span.first + span.n, end);
        if (first < last)
            copy_rows<F>(p.qkv.of_block, p.w[m], first - begin, last - first, first - span.first, shared,
                         full);
        begin = end;
        end += n_kv;
    }
}

// The output's rows, where other things have been in shared memory. All threads come.
template <u32 F>
static __device__ __forceinline__ void request_out(const struct attend_block_params &p,
                                                   const struct rows_span &span, u32 shared,
                                                   struct attend_state &s)
{
    u32 full = shared_address(&s.full[1]);

    __syncthreads();
    if (threadIdx.x / 32 != WARPS - 1 || !elect_one() || span.n == 0)
        return;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    expect_bytes(full, span.n * p.rows.of_block.row_bytes);
    copy_rows<F>(p.rows.of_block, p.o, span.first, span.n, 0, shared, full);
}

// ---- products

// The row times norm, to int8. norm: this thread's first eight. All threads come. Returns the norm's factor.
static __device__ __forceinline__ f32 pack_row(const struct attend_block_params &p, const struct row_int8 &x,
                                               const struct float8 &norm, struct attend_state &s)
{
    u32 n = p.args.qkv.n_cols / 8, end = (n + 31) / 32 * 32;
    f32 squares = 0, sum = 0;

#pragma unroll 1
    for (u32 i = threadIdx.x; i < end; i += THREADS) {
        struct float8 v = load_eight(p.in, i, n), by = i < THREADS ? norm : load_eight(p.norm, i, n);
        const f32 numbers[8] = { v.a.x * by.a.x, v.a.y * by.a.y, v.a.z * by.a.z, v.a.w * by.a.w,
                                 v.b.x * by.b.x, v.b.y * by.b.y, v.b.z * by.b.z, v.b.w * by.b.w };
        squares += i < n ? squares_of(v) : 0;
        quantise_eight(x, i, numbers, i < n);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0)
        s.sums[threadIdx.x / 32] = squares;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < WARPS; i++)
        sum += s.sums[i];
    return norm_factor(sum, p.args.qkv.n_cols, p.args.qkv.norm_eps);
}

// The block's rows times the row of activations, N at a time by a warp. end(i, sum) takes row i's. Loops are
// short in instructions, since a launch runs through most of them once.
template <u32 F, u32 N, typename End>
static __device__ __forceinline__ void multiply_rows(const struct attend_block_rows &r, u32 n,
                                                     const u8 *shared, u64 *full, const struct row_int8 &x,
                                                     End end)
{
    u32 lane = threadIdx.x % 32;

    wait_for_stage(shared_address(full), 0);
#pragma unroll 1
    for (u32 first = threadIdx.x / 32; first < n; first += N * WARPS) {
        struct plane_pointers rows[N];
        f32 sums[N] = {}, sum = 0;
#pragma unroll
        for (u32 k = 0; k < N; k++)
            rows[k] = row_of(r.of_block, shared, min(first + k * WARPS, n - 1));
#pragma unroll 1
        for (u32 at = lane; at < r.n_cols / 32; at += 32) {
            struct facing<F> facing = face<F>(x, at);
#pragma unroll
            for (u32 k = 0; k < N; k++)
                sums[k] = dot_block<F>(block_at<F, false>(rows[k], at), facing, sums[k]);
        }
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            f32 all = warp_sum(sums[k]);
            sum = lane == k ? all : sum;
        }
        u32 row = first + lane * WARPS;
        if (lane < N && row < n)
            end(row, sum);
    }
}

// ---- attention

// A head in shared memory is rotated, a pair by each of 16 lanes.
static __device__ __forceinline__ void rotate_head(const struct rope_store_args &a, f32 *head,
                                                   const float2 *angles)
{
    u32 half = a.n_dims / 2, step = a.pairs == ROPE_ADJACENT ? 2 : 1,
        apart = a.pairs == ROPE_ADJACENT ? 1 : half;

#pragma unroll 1
    for (u32 i = threadIdx.x % 16; i < half; i += 16) {
        f32 x = head[i * step], y = head[i * step + apart];
        float2 angle = angles[i];
        head[i * step] = x * angle.x - y * angle.y;
        head[i * step + apart] = y * angle.x + x * angle.y;
    }
}

// 16 lanes a head: n of the tile's queries, then k and v. Normalised and rotated, in shared memory.
static __device__ __forceinline__ void take_heads(const struct attend_block_params &p,
                                                  const struct few_job &j, bool stores,
                                                  struct head_stage &stage, const struct attend_state &s)
{
    const struct rope_store_args &a = p.args.qkv.rope;
    u32 row = threadIdx.x / 16, lane = threadIdx.x % 16, n_kv = a.pages.n_kv_heads;
    bool is_k = row == ATTEND_FEW_HEADS, is_v = row == ATTEND_FEW_HEADS + 1, exists = row < j.n_heads;
    u32 head = is_k ? a.n_heads + j.kv : is_v ? a.n_heads + n_kv + j.kv : j.head + row;
    f32 *at = stage.heads[row], x[8] = {}, squares = 0;

    exists = exists || (stores && (is_k || is_v));
    if (exists) {
        const u32 *words = p.heads + head * DIM + 8 * lane;
        uint4 v[2];
        do {
            v[0] = load_four(words);
            v[1] = load_four(words + 4);
        } while (!are_there(v[0]) || !are_there(v[1]));
        open_numbers(v[0], v[1], x);
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        squares += x[i] * x[i];
#pragma unroll
    for (u32 o = 8; o; o /= 2)
        squares += __shfl_xor_sync(~0u, squares, o);
    if (exists) {
        bool normed = !is_v && (is_k ? p.k_norm : p.q_norm);
        f32 factor = normed ? norm_factor(squares, DIM, a.eps) : 1;
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            at[8 * lane + i] = normed ? x[i] * (factor * s.norms[is_k][8 * lane + i]) : x[i];
    }
    __syncwarp();
    if (exists && !is_v)
        rotate_head(a, at, s.angles);
}

// A number of k or of v by each thread, to its page. Every block that reads that page stores them, with the
// same bits, rather than to wait for one.
template <u32 KV>
static __device__ __forceinline__ void store_heads(const struct attend_block_params &p, u32 page, u32 token,
                                                   u32 kv, const struct head_stage &stage)
{
    const struct page_shape shape = { p.args.qkv.rope.pages.n_kv_heads, DIM, 0, KV, KV };
    bool is_v = threadIdx.x >= DIM;
    u32 d = threadIdx.x % DIM;
    f32 v = stage.heads[ATTEND_FEW_HEADS + is_v][d];
    struct page_side side = { &shape, (void *)(is_v ? p.attend.v_pages : p.attend.k_pages), is_v };

    page_put_block(side, page, kv, token, d, v);
}

// The tile's queries as fragments; see put_queries in attend_few.cuh.
template <class S>
static __device__ __forceinline__ void put_fragments(const struct attend_block_params &p,
                                                     const struct few_job &j, const struct head_stage &stage,
                                                     struct few_room<S> &room)
{
    u32 lane = threadIdx.x % 32, at = threadIdx.x / 32, head = lane / 4;
    f32 scale = p.args.scale * (LOG2_E / S::divide), x[4];

    static_assert(S::key / 16 == WARPS, "");
#pragma unroll
    for (u32 c = 0; c < 4; c++)
        x[c] = head < j.n_heads ? stage.heads[head][at * 16 + key_dim<S::format>(lane % 4, c)] * scale : 0;
    uint2 low = two_parts<S::bf16>(x[0], x[1]), high = two_parts<S::bf16>(x[2], x[3]);
    room.q[at][lane] = make_uint4(low.x, low.y, high.x, high.y);
}

template <class S>
static __device__ __forceinline__ void attend(const struct attend_block_params &p, const struct seen_range &r,
                                              const struct few_job &j, u8 *shared, struct attend_state &s)
{
    struct few_room<S> &room = *(struct few_room<S> *)shared;
    struct head_stage &stage = *(struct head_stage *)room.sums;
    u32 first = j.first + j.block * j.each, end = min(first + j.each, j.end), at = first + threadIdx.x / 32,
        now = r.table[r.position / PAGE_TOKENS];
    bool early = at < end && (at + 1) * PAGE_TOKENS <= r.position, stores = end == j.end;
    struct few_page<S> page;

    static_assert(sizeof(struct head_stage) <= sizeof room.sums, "");
    if (early) {
        u32 number = r.table[at];
        load_keys<S>(p.attend, page, number, j.kv);
        load_values<S>(p.attend, page, number, j.kv);
    }
    __syncthreads(); // the weights that lay here are multiplied
    take_heads(p, j, stores, stage, s);
    __syncthreads();
    if (stores)
        store_heads<S::format>(p, now, r.position % PAGE_TOKENS, j.kv, stage);
    put_fragments<S>(p, j, stage, room);
    __syncthreads();
    take_pages<S>(p.attend, r, j, first, end, early, page, room);
    __syncthreads();
    combine_warps<S, false>(p.attend, j, end - first, j.block, room);
    if (j.n_splits > 1)
        combine_splits<S, false>(p.attend, j, room);
}

// ---- the end

// What was attended, packed. Two words of eight at a time.
static __device__ __forceinline__ void take_attended(const struct attend_block_params &p,
                                                     const struct row_int8 &x)
{
    u32 n = p.rows.n_cols / 8, end = (n + 31) / 32 * 32;
    const u32 *words = (const u32 *)p.attend.out;

    for (u32 first = threadIdx.x; first < end; first += 2 * THREADS) {
        u32 at[2] = { min(first, n - 1), min(first + THREADS, n - 1) };
        uint4 v[2];
        do {
            v[0] = load_four(words + 4 * at[0]);
            v[1] = load_four(words + 4 * at[1]);
        } while (!are_there(v[0]) || !are_there(v[1]));
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            u32 i = first + k * THREADS;
            f32 numbers[8];
            open_pairs(v[k], numbers);
            if (i < end)
                quantise_eight(x, i, numbers, i < n);
        }
    }
}

// All attending blocks have read the heads: a share of them.
static __device__ __forceinline__ void clear_heads(const struct attend_block_params &p)
{
    u32 n = (p.args.qkv.rope.n_heads + 2 * p.args.qkv.rope.pages.n_kv_heads) * DIM / 4;

#pragma unroll 1
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < n; i += p.rows.n_blocks * THREADS)
        ((uint4 *)p.heads)[i] = make_uint4(0, 0, 0, 0);
}
static __device__ __forceinline__ void clear_attended(const struct attend_block_params &p)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < p.rows.n_cols / 8; i += THREADS)
        ((uint4 *)p.attend.out)[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0)
        *p.arrived = 0;
}

template <u32 F, u32 KV>
static __device__ __forceinline__ void attend_block(const struct attend_block_params &p)
{
    extern __shared__ __align__(128) u8 block_shared[];
    struct attend_state &s = *(struct attend_state *)(block_shared + p.state_at);
    struct rows_span qkv = span_of(p.qkv), out = span_of(p.rows);
    u32 shared = shared_address(block_shared), rank = gridDim.x - 1 - blockIdx.x, arrived = 0;

    if (p.attend.step->n_rows == 0) {
        wait_for_inputs();
        return;
    }
    if (threadIdx.x / 32 == WARPS - 1 && elect_one())
        request_qkv<F>(p, qkv, shared, s);
    const struct float8 norm = load_eight(p.norm, threadIdx.x, p.args.qkv.n_cols / 8);
    struct seen_range r = range_of(p.attend, 0);
    struct few_job j = job_of(p.attend, r, rank % p.tiles, rank / p.tiles, p.attend.n_splits);
    bool attends = j.block < j.n_splits;
    const f32 *head_norm = threadIdx.x < DIM ? p.q_norm : p.k_norm;
    if (attends && head_norm)
        s.norms[threadIdx.x / DIM][threadIdx.x % DIM] = head_norm[threadIdx.x % DIM];
    wait_before_next();
    if (attends && threadIdx.x < p.args.qkv.rope.n_dims / 2)
        s.angles[threadIdx.x] = ((const float2 *)p.angles)[threadIdx.x];
    struct row_int8 x = row_int8_at(block_shared + p.row_at, p.qkv.n_cols / 32);
    f32 factor = pack_row(p, x, norm, s);
    multiply_rows<F, 5>(p.qkv, qkv.n, block_shared, &s.full[0], x,
                        [&](u32 i, f32 sum) { publish_number(p.heads + qkv.first + i, sum * factor); });
    if (attends)
        attend<block_shape<KV>>(p, r, j, block_shared, s);
    let_next_begin(); // not earlier: what it does first would delay the attending blocks
    request_out<F>(p, out, shared, s);
    if (out.n == 0)
        return;
    if (threadIdx.x < out.n)
        s.in[threadIdx.x] = p.in[out.first + threadIdx.x];
    x = row_int8_at(block_shared + p.row_at, p.rows.n_cols / 32);
    take_attended(p, x);
    __syncthreads();
    if (threadIdx.x == 0)
        arrived = atomicAdd(p.arrived, 1);
    clear_heads(p);
    multiply_rows<F, 2>(p.rows, out.n, block_shared, &s.full[1], x,
                        [&](u32 i, f32 sum) { p.out[out.first + i] = s.in[i] + sum; });
    if (threadIdx.x == 0)
        s.last = arrived == p.rows.n_blocks - 1;
    __syncthreads();
    if (s.last)
        clear_attended(p);
}

#define ATTEND_BLOCK(name, F, KV)                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                      \
        attend_block_##name(const __grid_constant__ struct attend_block_params p) \
    {                                                                             \
        attend_block<F, KV>(p);                                                   \
    }
#define ATTEND_BLOCKS(name, F)            \
    ATTEND_BLOCK(name##_f16, F, KV_F16)   \
    ATTEND_BLOCK(name##_bf16, F, KV_BF16) \
    ATTEND_BLOCK(name##_q8_0, F, KV_Q8_0)
ATTEND_BLOCKS(q4_0, QUANT_Q4_0)
ATTEND_BLOCKS(q8_0, QUANT_Q8_0)
#endif
