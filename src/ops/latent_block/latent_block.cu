// latent_block.cu - a layer's latent attention for one row in one launch (a persistent kernel with exchanges
// through memory in place of launches); see latent_block.h.
//
//   block b: its weights are requested by bulk copies, those needed late when the row is there
//            its rows of Wqa and Wkva         -> first, kv   --+   every block norms and packs for itself
//            its rows of Wqb                  -> queries     --+
//            its rows of Wuk                  -> absorbed    --+
//            some blocks: 8 heads, a split    -> parts       --+   as attend_few.cuh; the split that has the
//            its rows of Wuv                  -> values      --+   row's position stores the key first
//            its rows of Wo, + x              -> x
//
//   grid: one block an SM, all of which run at once; block: 16 warps
//
// Exchange: as in moe.cu. Words in memory that is zero between launches; a word that has arrived is
// not zero: a zero is stored as -0. So there is no flag behind the data, and no fence is needed. What is
// handed on travels as fp32 or as pairs of bf16. Who has all values knows that all blocks have read
// everything else, and makes its share of that zero again; the last block to have read the values makes those
// zero.
// Waiting ends only because all blocks run at once: latent_block_cuda.c launches as many as there are SMs,
// each takes one, and later launches begin when all have begun. Activations are int8 with a scale for each
// 32. A sum's order depends on the shape alone; how a past is split on the row's position.
#include "device/cuda/words.cuh"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"
#include "ops/attend/attend_few.cuh"
#include "ops/latent_block/latent_block_cuda.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum { WARPS = BLOCK_THREADS / 32, AT_ONCE = 8, PART_WORDS = LATENT_VALUE + 4 };

struct block_state { // shared memory
    u64 full[BLOCK_N_PRODUCTS];
    f32 sums[WARPS];
    f32 room[33];
    u32 last;
};
static_assert(sizeof(struct block_state) <= BLOCK_STATE, "");

// What attention has in its shared memory before its sums are there.
struct query_stage {
    f32 absorbed[ATTEND_FEW_HEADS][LATENT_VALUE];
    f32 rest[ATTEND_FEW_HEADS][LATENT_KEY - LATENT_VALUE]; // not rotated yet
    f32 kv[LATENT_KEY];
};

struct rows_span {
    u32 first, n;
};

static __device__ __forceinline__ struct rows_span span_of(const struct latent_rows &r)
{
    return { (r.each * blockIdx.x + min(blockIdx.x, r.more)) * BLOCK_GROUP,
             (r.each + (blockIdx.x < r.more)) * BLOCK_GROUP };
}

// ---- weights

template <u32 F> static constexpr __device__ bool has_plane(u32 plane)
{
    return plane == 1 ? layout_high_bytes(F, 256) > 0 : plane == 3 ? layout_has_super_blocks(F) : true;
}

// One thread: n rows of a matrix, from row `from` on, to rows `to` and on.
template <u32 F>
static __device__ __forceinline__ void copy_rows(const struct latent_rows &r, const struct weight_planes &w,
                                                 u32 from, u32 n, u32 to, u32 shared, u32 full)
{
    const u8 *const planes[4] = { w.quants, w.high, w.scales, w.deltas };

#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (has_plane<F>(i) && n > 0)
            copy_run(shared + r.at + r.plane[i] + to * r.row[i], planes[i] + (u64)from * r.row[i],
                     n * r.row[i], full);
}

static __device__ __forceinline__ void begin_barriers(struct block_state &s)
{
#pragma unroll
    for (u32 i = 0; i < BLOCK_N_PRODUCTS; i++)
        barrier_begin(shared_address(&s.full[i]), 1);
    show_barriers();
}

// One thread: the block's weights of the products [FIRST, END).
template <u32 F, u32 FIRST, u32 END>
static __device__ __forceinline__ void request_weights(const struct latent_block_params &p, u8 *shared,
                                                       struct block_state &s)
{
    u32 at = shared_address(shared);

#pragma unroll
    for (u32 i = FIRST; i < END; i++) {
        struct rows_span span = span_of(p.rows[i]);
        u32 full = shared_address(&s.full[i]), n = span.n, row = 0;
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            row += p.rows[i].row[k];
        expect_bytes(full, n * row);
        if (i == BLOCK_DOWN) { // of two matrices, one behind the other
            u32 n_a = min(max(p.args.q_latent, span.first) - span.first, n);
            copy_rows<F>(p.rows[i], p.w[i], span.first, n_a, 0, at, full);
            copy_rows<F>(p.rows[i], p.kv_a, span.first + n_a - p.args.q_latent, n - n_a, n_a, at, full);
        } else {
            copy_rows<F>(p.rows[i], p.w[i], span.first, n, 0, at, full);
        }
    }
}

// Row i of a product's, of the block's, times the row of activations from block `first` of 32 on: LANES
// lanes, which all get the sum.
template <u32 F, u32 LANES>
static __device__ __forceinline__ f32 dot_row(const struct latent_rows &r, const u8 *shared, u32 i,
                                              const struct row_int8 &x, u32 first, u32 n_blocks)
{
    const u8 *at = shared + r.at;
    const struct plane_pointers row = { at + i * r.row[0], at + r.plane[1] + i * r.row[1],
                                        at + r.plane[2] + i * r.row[2], at + r.plane[3] + i * r.row[3] };
    f32 sum = 0;

#pragma unroll 2
    for (u32 block = threadIdx.x % LANES; block < n_blocks; block += LANES)
        sum = dot_block<F>(block_at<F, false>(row, block), face<F>(x, first + block), sum);
#pragma unroll
    for (u32 o = LANES / 2; o; o /= 2)
        sum += __shfl_xor_sync(~0u, sum, o);
    return sum;
}

// Eight numbers of each thread, times norm, to the row of activations; n: eights. All threads come. Returns
// the norm's factor.
static __device__ __forceinline__ f32 pack_normed(const struct row_int8 &x, f32 (&v)[8],
                                                  const struct float8 &norm, u32 n, f32 eps,
                                                  struct block_state &s)
{
    const f32 scale[8] = { norm.a.x, norm.a.y, norm.a.z, norm.a.w, norm.b.x, norm.b.y, norm.b.z, norm.b.w };
    bool exists = threadIdx.x < n;
    f32 squares = 0, sum = 0;

#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        squares += exists ? v[i] * v[i] : 0;
        v[i] *= scale[i];
    }
    if (threadIdx.x / 32 * 32 < n)
        quantise_eight(x, threadIdx.x, v, exists);
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0)
        s.sums[threadIdx.x / 32] = squares;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < WARPS; i++)
        sum += s.sums[i];
    return norm_factor(sum, 8 * n, eps);
}

// ---- products

// Wqa and Wkva: a warp a row.
template <u32 F>
static __device__ __forceinline__ void multiply_down(const struct latent_block_params &p, const u8 *shared,
                                                     struct block_state &s, const struct row_int8 &x,
                                                     f32 factor)
{
    struct rows_span span = span_of(p.rows[BLOCK_DOWN]);
    u32 i = threadIdx.x / 32;

    wait_for_stage(shared_address(&s.full[BLOCK_DOWN]), 0);
    if (i >= span.n)
        return;
    f32 sum = dot_row<F, 32>(p.rows[BLOCK_DOWN], shared, i, x, 0, p.args.n_cols / 32);
    if (threadIdx.x % 32 == 0)
        publish_number(p.first + span.first + i, sum * factor);
}

// Wqb, Wuk or Wuv, whose results are pairs: LANES lanes a row. HEADS: rows of different heads have
// activations of their own, one head's behind the other's.
template <u32 F, u32 LANES, bool HEADS>
static __device__ __forceinline__ void
multiply_pairs(const struct latent_block_params &p, u32 product, const u8 *shared, struct block_state &s,
               const struct row_int8 &x, u32 head_rows, u32 n_blocks, f32 factor, u32 *to)
{
    const struct latent_rows &r = p.rows[product];
    struct rows_span span = span_of(r);
    u32 first_head = HEADS ? span.first / head_rows : 0;

    wait_for_stage(shared_address(&s.full[product]), 0);
    for (u32 at = threadIdx.x / 32 * (32 / LANES); at < span.n; at += BLOCK_THREADS / LANES) {
        u32 i = at + threadIdx.x % 32 / LANES, row = span.first + min(i, span.n - 1),
            head = HEADS ? row / head_rows - first_head : 0;
        f32 sum = dot_row<F, LANES>(r, shared, min(i, span.n - 1), x, head * n_blocks, n_blocks) * factor,
            next = __shfl_down_sync(~0u, sum, LANES);
        if (threadIdx.x % (2 * LANES) == 0 && i < span.n)
            publish_pair(to + row / 2, sum, next);
    }
}

// The latent of queries, normed and packed.
static __device__ __forceinline__ f32 take_first(const struct latent_block_params &p,
                                                 const struct row_int8 &x, const struct float8 &norm,
                                                 struct block_state &s)
{
    u32 n = p.args.q_latent / 8;
    f32 v[8] = {};

    if (threadIdx.x < n) {
        const u32 *at = p.first + 8 * threadIdx.x;
        uint4 a = await_four(at);
        open_numbers(a, await_four(at + 4), v);
    }
    return pack_normed(x, v, norm, n, p.args.q_eps, s);
}

// What of the queries is multiplied by Wuk, of the heads whose rows the block has.
static __device__ __forceinline__ void take_queries(const struct latent_block_params &p,
                                                    const struct row_int8 &x)
{
    const struct latent_project_args &a = p.args.absorb;
    struct rows_span span = span_of(p.rows[BLOCK_ABSORB]);
    u32 eights = a.n_cols / 8, first = span.first / a.n_rows, last = (span.first + span.n - 1) / a.n_rows,
        n = (last - first + 1) * eights, head = threadIdx.x / eights, i = threadIdx.x - head * eights;
    f32 v[8] = {};

    if (threadIdx.x / 32 * 32 >= n)
        return;
    if (threadIdx.x < n)
        open_pairs(await_four(p.queries + (first + head) * ((a.n_cols + a.n_rotated) / 2) + 4 * i), v);
    quantise_eight(x, threadIdx.x, v, threadIdx.x < n);
}

// ---- attention

template <class S>
static __device__ __forceinline__ struct few_job block_job(const struct latent_block_params &p,
                                                           const struct seen_range &r)
{
    constexpr u32 most = ATTEND_FEW_HEADS;
    u32 n = r.position / PAGE_TOKENS + 1, head = blockIdx.x % p.tiles * most;
    struct few_job j = { .head = head, .n_heads = min(p.args.absorb.n_heads - head, most) };

    j.end = n;
    j.each = n <= p.attend.alone_pages
                 ? n
                 : max((n + p.attend.n_splits - 1) / p.attend.n_splits, p.attend.fewest_pages);
    j.n_splits = (n + j.each - 1) / j.each;
    j.n_blocks = j.n_splits;
    return j;
}

// The key of the row, to its page. Every block that reads that page does so, with the same bits, rather than
// to wait for one.
static __device__ __forceinline__ void store_key(const struct latent_block_params &p,
                                                 const struct seen_range &r, struct query_stage &stage,
                                                 struct block_state &s)
{
    const struct latent_store_args &a = p.args.store;
    u32 d = threadIdx.x, n_rotated = LATENT_KEY - LATENT_VALUE, token = r.position % PAGE_TOKENS,
        page = r.table[r.position / PAGE_TOKENS];
    const u32 *kv = p.first + p.args.q_latent;
    struct page_side side = { &a.pages, (void *)p.attend.k_pages, false };
    f32 norm = p.kv_norm[d], x = await_number(kv + d);

    if (d < n_rotated)
        stage.kv[d] = await_number(kv + LATENT_VALUE + d);
    f32 factor = norm_factor(block_sum(x * x, s.room), LATENT_VALUE, a.eps);
    page_put_block(side, page, 0, token, d, x * norm * factor);
    if (d < n_rotated) {
        u32 half = n_rotated / 2, i = a.pairs == ROPE_ADJACENT ? d / 2 : d % half,
            second = a.pairs == ROPE_ADJACENT ? d % 2 : d / half;
        f32 u = stage.kv[a.pairs == ROPE_ADJACENT ? 2 * i : i],
            v = stage.kv[a.pairs == ROPE_ADJACENT ? 2 * i + 1 : i + half], cosine = p.angles[2 * i],
            sine = p.angles[2 * i + 1];
        page_put_block(side, page, 0, token, LATENT_VALUE + d,
                       second ? v * cosine + u * sine : u * cosine - v * sine);
    }
    __syncthreads();
}

// Number d of a head's query, of the rotated part.
static __device__ __forceinline__ f32 rotated_at(const struct latent_block_params &p, const f32 *rest, u32 d)
{
    constexpr u32 half = (LATENT_KEY - LATENT_VALUE) / 2;
    bool adjacent = p.args.absorb.pairs == ROPE_ADJACENT;
    u32 i = adjacent ? d / 2 : d % half, second = adjacent ? d % 2 : d / half;
    f32 u = rest[adjacent ? 2 * i : i], v = rest[adjacent ? 2 * i + 1 : i + half], cosine = p.angles[2 * i],
        sine = p.angles[2 * i + 1];

    return second ? v * cosine + u * sine : u * cosine - v * sine;
}

// The tile's queries as fragments; see put_queries in attend_few.cuh.
template <class S>
static __device__ __forceinline__ void stage_queries(const struct latent_block_params &p,
                                                     const struct few_job &j, struct query_stage &stage,
                                                     struct few_room<S> &room)
{
    constexpr u32 eights = LATENT_VALUE / 8, n = S::key / 16 * 32, n_rest = LATENT_KEY - LATENT_VALUE;
    const struct latent_project_args &a = p.args.absorb;
    f32 scale = p.args.scale * (LOG2_E / S::divide), v[8];

    for (u32 i = threadIdx.x; i < j.n_heads * n_rest / 8; i += S::threads) {
        u32 head = i / (n_rest / 8), at = i % (n_rest / 8);
        open_pairs(
            await_four(p.queries + ((j.head + head) * (a.n_cols + a.n_rotated) + a.n_cols) / 2 + 4 * at), v);
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            stage.rest[head][8 * at + k] = v[k];
    }
    for (u32 i = threadIdx.x; i < j.n_heads * eights; i += S::threads) {
        u32 head = i / eights, at = i % eights;
        open_pairs(await_four(p.absorbed + (j.head + head) * (LATENT_VALUE / 2) + 4 * at), v);
#pragma unroll
        for (u32 k = 0; k < 8; k += 4)
            *(float4 *)&stage.absorbed[head][8 * at + k] = make_float4(v[k], v[k + 1], v[k + 2], v[k + 3]);
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < n; i += S::threads) {
        u32 lane = i % 32, at = i / 32, head = lane / 4;
        f32 x[4];
#pragma unroll
        for (u32 c = 0; c < 4; c++) {
            u32 d = at * 16 + key_dim<S::format>(lane % 4, c);
            x[c] = head >= j.n_heads  ? 0
                   : d < LATENT_VALUE ? stage.absorbed[head][d] * scale
                                      : rotated_at(p, stage.rest[head], d - LATENT_VALUE) * scale;
        }
        uint2 low = two_parts<S::bf16>(x[0], x[1]), high = two_parts<S::bf16>(x[2], x[3]);
        room.q[at][lane] = make_uint4(low.x, low.y, high.x, high.y);
    }
    __syncthreads();
}

static __device__ __forceinline__ u32 *part_words(const struct latent_block_params &p, u32 split, u32 head)
{
    return p.parts + (split * p.args.absorb.n_heads + head) * PART_WORDS;
}

// A split's sums, with their maximum and total; or, of a past that is not split, the result.
template <class S>
static __device__ __forceinline__ void publish_split(const struct latent_block_params &p,
                                                     const struct few_job &j, u32 split, u32 n_pages,
                                                     struct few_room<S> &room)
{
    u32 n = min(n_pages, S::slots);

    weigh_warps<S, false>(p.attend, j, n, room);
    __syncthreads();
#pragma unroll 2
    for (u32 i = threadIdx.x; i < j.n_heads * S::value; i += S::threads) {
        u32 h = i / S::value, dim = i % S::value;
        publish_number(part_words(p, split, j.head + h) + dim, sum_of_warps<S>(room, n, h, dim));
    }
    if (j.n_splits > 1 && threadIdx.x < j.n_heads) {
        u32 *part = part_words(p, split, j.head + threadIdx.x) + LATENT_VALUE;
        publish_number(part, room.most[threadIdx.x]);
        publish_number(part + 1, room.total[threadIdx.x]);
    }
}

template <class S>
static __device__ __forceinline__ void attend(const struct latent_block_params &p, const struct seen_range &r,
                                              const struct few_job &j, u8 *shared, struct block_state &s)
{
    struct few_room<S> &room = *(struct few_room<S> *)shared;
    struct query_stage &stage = *(struct query_stage *)room.sums;
    u32 split = blockIdx.x / p.tiles, first = split * j.each, end = min(first + j.each, j.end),
        at = first + threadIdx.x / 32 / S::parts;
    bool early = at < end && (at + 1) * PAGE_TOKENS <= r.position;
    struct few_page<S> page;

    static_assert(sizeof(struct query_stage) <= sizeof room.sums, "");
    if (early) {
        u32 number = r.table[at];
        load_keys<S>(p.attend, page, number, 0);
        load_values<S>(p.attend, page, number, 0);
    }
    __syncthreads(); // the weights that lay here are multiplied
    if (end == j.end)
        store_key(p, r, stage, s);
    stage_queries<S>(p, j, stage, room);
    take_pages<S>(p.attend, r, j, first, end, early, page, room);
    __syncthreads();
    publish_split<S>(p, j, split, end - first, room);
}

// Numbers `dim` of a head's attended latent: of all splits.
static __device__ __forceinline__ f32 attended_at(const struct latent_block_params &p, u32 head, u32 n_splits,
                                                  u32 dim)
{
    const u32 *parts = part_words(p, 0, head);
    u32 stride = p.args.absorb.n_heads * PART_WORDS, lane = threadIdx.x % 32;
    f32 sum = 0;

    if (n_splits == 1)
        return await_number(parts + dim);
    f32 most = lane < n_splits ? await_number(parts + lane * stride + LATENT_VALUE) : -INFINITY_F32,
        total = lane < n_splits ? await_number(parts + lane * stride + LATENT_VALUE + 1) : 0,
        weight = exp2f(most - warp_max(most));
    total = warp_sum(total * weight);
    for (u32 split = 0; split < n_splits; split += AT_ONCE) {
        u32 v[AT_ONCE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++)
                v[i] = load_word(parts + min(split + i, n_splits - 1) * stride + dim);
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++)
                all = all && v[i];
        } while (!all);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            f32 w = __shfl_sync(~0u, weight, min(split + i, 31u));
            sum += split + i < n_splits ? w * __uint_as_float(v[i]) : 0;
        }
    }
    return sum / total;
}

// The attended latents of the heads whose rows of Wuv the block has. room: [BLOCK_HEADS][LATENT_VALUE].
static __device__ __forceinline__ void take_attended(const struct latent_block_params &p, u32 n_splits,
                                                     const struct row_int8 &x, f32 *room)
{
    struct rows_span span = span_of(p.rows[BLOCK_EXPAND]);
    u32 first = span.first / p.args.n_value, n = (span.first + span.n - 1) / p.args.n_value - first + 1;
    f32 v[8];

    static_assert(BLOCK_THREADS == LATENT_VALUE, "");
    for (u32 i = 0; i < n; i++)
        room[i * LATENT_VALUE + threadIdx.x] = attended_at(p, first + i, n_splits, threadIdx.x);
    __syncthreads();
    if (threadIdx.x >= n * LATENT_VALUE / 8)
        return;
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        v[i] = room[8 * threadIdx.x + i];
    quantise_eight(x, threadIdx.x, v, true);
}

// ---- the end

static __device__ __forceinline__ void take_values(const struct latent_block_params &p,
                                                   const struct row_int8 &x)
{
    u32 n = p.args.absorb.n_heads * p.args.n_value / 8, end = (n + 31) / 32 * 32;

    for (u32 i = threadIdx.x; i < end; i += BLOCK_THREADS) {
        f32 v[8] = {};
        if (i < n)
            open_pairs(await_four(p.values + 4 * i), v);
        quantise_eight(x, i, v, i < n);
    }
}

// All other blocks have read what is made zero.
static __device__ __forceinline__ void make_zero(const struct latent_block_params &p, u32 n_splits)
{
    u32 step = gridDim.x * BLOCK_THREADS, first = blockIdx.x * BLOCK_THREADS + threadIdx.x,
        n = (p.n_words + n_splits * p.args.absorb.n_heads * PART_WORDS) / 4;

    for (u32 i = first; i < n; i += step)
        ((uint4 *)p.first)[i] = make_uint4(0, 0, 0, 0);
}
static __device__ __forceinline__ void leave(const struct latent_block_params &p, struct block_state &s)
{
    if (threadIdx.x == 0) // all threads have read the values
        s.last = atomicAdd(p.arrived, 1) == gridDim.x - 1;
    __syncthreads();
    if (!s.last)
        return;
    for (u32 i = threadIdx.x; i < p.args.absorb.n_heads * p.args.n_value / 8; i += BLOCK_THREADS)
        ((uint4 *)p.values)[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0)
        *p.arrived = 0;
}

// Eight numbers of the row.
static __device__ __forceinline__ void load_row(const struct latent_block_params &p, f32 (&v)[8])
{
    struct float8 in = load_eight(p.in, threadIdx.x, p.args.n_cols / 8);

    v[0] = in.a.x, v[1] = in.a.y, v[2] = in.a.z, v[3] = in.a.w;
    v[4] = in.b.x, v[5] = in.b.y, v[6] = in.b.z, v[7] = in.b.w;
}

template <u32 F, u32 KV>
static __device__ __forceinline__ void latent_block(const struct latent_block_params &p)
{
    using S = struct few_shape<LATENT_KEY, LATENT_VALUE, LATENT_FEW_PARTS, LATENT_FEW_THREADS, KV, true>;
    extern __shared__ __align__(128) u8 block_shared[];
    struct block_state &s = *(struct block_state *)(block_shared + p.state_at);
    const struct latent_project_args &a = p.args.absorb;
    u32 n_x = p.args.n_cols, n_q = p.args.q_latent, n_values = a.n_heads * p.args.n_value;
    u8 *rows = block_shared + p.row_at[0], *others = block_shared + p.row_at[1];
    struct rows_span out = span_of(p.rows[BLOCK_OUT]);

    if (p.attend.step->n_rows == 0) {
        wait_for_inputs();
        return;
    }
    if (threadIdx.x == BLOCK_THREADS - 1) {
        begin_barriers(s);
        request_weights<F, BLOCK_DOWN, BLOCK_ABSORB>(p, block_shared, s);
    }
    const struct float8 norm = load_eight(p.norm, threadIdx.x, n_x / 8),
                        q_norm = load_eight(p.q_norm, threadIdx.x, n_q / 8);
    struct seen_range r = range_of(p.attend, 0);
    struct few_job j = block_job<S>(p, r);
    wait_before_next();
    let_next_begin();
    struct row_int8 x = row_int8_at(rows, n_x / 32);
    f32 v[8] = {};
    load_row(p, v);
    f32 factor = pack_normed(x, v, norm, n_x / 8, p.args.eps, s);
    if (threadIdx.x == BLOCK_THREADS - 1) // not earlier: the row would wait behind them
        request_weights<F, BLOCK_ABSORB, BLOCK_N_PRODUCTS>(p, block_shared, s);
    multiply_down<F>(p, block_shared, s, x, factor);

    struct row_int8 first = row_int8_at(others, n_q / 32);
    __syncthreads(); // the sums of squares are read
    factor = take_first(p, first, q_norm, s);
    multiply_pairs<F, 8, false>(p, BLOCK_UP, block_shared, s, first, 1, n_q / 32, factor, p.queries);

    struct row_int8 queries = row_int8_at(rows, BLOCK_HEADS * a.n_cols / 32);
    take_queries(p, queries);
    __syncthreads();
    multiply_pairs<F, 2, true>(p, BLOCK_ABSORB, block_shared, s, queries, a.n_rows, a.n_cols / 32, 1,
                               p.absorbed);

    if (blockIdx.x / p.tiles < j.n_splits)
        attend<S>(p, r, j, block_shared, s);

    struct row_int8 attended = row_int8_at(others, BLOCK_HEADS * LATENT_VALUE / 32);
    __syncthreads(); // what lies where the latents come is read
    take_attended(p, j.n_splits, attended, (f32 *)block_shared);
    __syncthreads();
    multiply_pairs<F, 8, true>(p, BLOCK_EXPAND, block_shared, s, attended, p.args.n_value, LATENT_VALUE / 32,
                               1, p.values);

    struct row_int8 values = row_int8_at(rows, n_values / 32);
    u32 i = threadIdx.x / 32;
    f32 in = i < out.n ? p.in[out.first + i] : 0;
    take_values(p, values);
    __syncthreads();
    make_zero(p, j.n_splits);
    wait_for_stage(shared_address(&s.full[BLOCK_OUT]), 0);
    if (i < out.n) {
        f32 sum = dot_row<F, 32>(p.rows[BLOCK_OUT], block_shared, i, values, 0, n_values / 32);
        if (threadIdx.x % 32 == 0)
            p.out[out.first + i] = in + sum;
    }
    leave(p, s);
}

#define LATENT_BLOCK(name, F, KV)                                                 \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)                \
        latent_block_##name(const __grid_constant__ struct latent_block_params p) \
    {                                                                             \
        latent_block<F, KV>(p);                                                   \
    }
#define LATENT_BLOCKS(name, F)            \
    LATENT_BLOCK(name##_f16, F, KV_F16)   \
    LATENT_BLOCK(name##_bf16, F, KV_BF16) \
    LATENT_BLOCK(name##_q8_0, F, KV_Q8_0)
LATENT_BLOCKS(q4_0, QUANT_Q4_0)
LATENT_BLOCKS(q8_0, QUANT_Q8_0)
#endif
