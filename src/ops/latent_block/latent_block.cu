// latent_block.cu - a layer's latent attention for one row in one launch (a persistent kernel with exchanges
// through memory in place of launches); see latent_block.h.
//
//   block b: its weights are requested by bulk copies, a product's while the one before waits
//            its rows of Wqa and Wkva         -> first, kv   --+   every block norms and packs for itself
//            its rows of Wqb                  -> queries     --+
//            its rows of Wuk                  -> absorbed    --+
//            some blocks: 8 heads, a split    -> parts       --+   as attend_few.cuh; the split that has the
//            its rows of Wuv                  -> values      --+   row's position has stored the key before
//            its rows of Wo, + x              -> x
//
//   grid: one block an SM, all of which run at once; block: 16 warps
//
// The five products are one loop: code that is run once comes from memory, instruction by instruction, and is
// most of the time of a kernel like this.
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

enum {
    WARPS = BLOCK_THREADS / 32,
    AT_ONCE = 8,
    PART_WORDS = LATENT_VALUE + 4,
    ROTATED = LATENT_KEY - LATENT_VALUE,
    KEY_FROM = BLOCK_THREADS / 2 // threads from here on store the key
};

struct block_state { // shared memory
    u64 full[BLOCK_N_PRODUCTS];
    f32 sums[2][WARPS];  // of squares
    f32 key_sums[WARPS]; // of squares
    u32 last;
};
static_assert(sizeof(struct block_state) <= BLOCK_STATE, "");

// The queries of a tile, in shared memory until sums come there. Rows of heads fall into different banks.
struct query_stage {
    f32 q[ATTEND_FEW_HEADS][LATENT_KEY + 4];
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

// One thread: the block's weights of a product.
template <u32 F>
static __device__ __forceinline__ void request_weights(const struct latent_block_params &p, u32 product,
                                                       u8 *shared, struct block_state &s)
{
    const struct latent_rows &r = p.rows[product];
    struct rows_span span = span_of(r);
    u32 at = shared_address(shared), full = shared_address(&s.full[product]), n = span.n;

    expect_bytes(full, n * (r.row[0] + r.row[1] + r.row[2] + r.row[3]));
    if (product == BLOCK_DOWN) { // of two matrices, one behind the other
        u32 n_a = min(max(p.args.q_latent, span.first) - span.first, n);
        copy_rows<F>(r, p.kv_a, span.first + n_a - p.args.q_latent, n - n_a, n_a, at, full);
        n = n_a;
    }
    copy_rows<F>(r, p.w[product], span.first, n, 0, at, full);
}

// ---- products

// Rows of different heads have activations of their own, one head's behind the other's.
static __device__ __forceinline__ u32 head_of(const struct latent_rows &r, u32 row) // row / r.head_rows
{
    return __umulhi(row, r.head_inverse);
}
// Of the block's rows.
static __device__ __forceinline__ u32 first_head(const struct latent_rows &r)
{
    return head_of(r, span_of(r).first);
}
static __device__ __forceinline__ u32 n_heads(const struct latent_rows &r)
{
    struct rows_span span = span_of(r);
    return head_of(r, span.first + span.n - 1) - head_of(r, span.first) + 1;
}

// Eight numbers of x, which is there, or of the latents.
static __device__ __forceinline__ void take_numbers(const u32 *at, bool there, f32 (&v)[8])
{
    uint4 a, b;
    do {
        a = load_four(at);
        b = load_four(at + 4);
    } while (!there && !(are_there(a) && are_there(b)));
    const u32 words[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        v[i] = __uint_as_float(words[i]);
}

// Eights of the product's activations: a thread's, of this number. attended: those of BLOCK_EXPAND.
static __device__ __forceinline__ void take_eight(const struct latent_block_params &p, u32 product, u32 i,
                                                  const f32 *attended, f32 (&v)[8])
{
    const struct latent_rows &r = p.rows[product];

    if (product <= BLOCK_UP) {
        take_numbers(product == BLOCK_DOWN ? (const u32 *)p.in + 8 * i : p.words[BLOCK_DOWN] + 8 * i,
                     product == BLOCK_DOWN, v);
    } else if (product == BLOCK_EXPAND) {
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            v[k] = attended[8 * i + k];
    } else {
        u32 head = i >= 4 * r.n_blocks;
        open_pairs(await_four(p.words[product - 1] + (first_head(r) + head) * r.head_words +
                              4 * (i - head * 4 * r.n_blocks)),
                   v);
    }
}

static __device__ __forceinline__ f32 scale_by(const struct float8 &norm, f32 (&v)[8])
{
    const f32 scale[8] = { norm.a.x, norm.a.y, norm.a.z, norm.a.w, norm.b.x, norm.b.y, norm.b.z, norm.b.w };
    f32 squares = 0;

#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        squares += v[i] * v[i];
        v[i] *= scale[i];
    }
    return squares;
}

// The product's activations, times their norm, to x. Returns the norm's factor, or 1. All threads come.
static __device__ __forceinline__ f32 pack(const struct latent_block_params &p, u32 product,
                                           const struct row_int8 &x, const f32 *attended,
                                           struct block_state &s)
{
    const struct latent_rows &r = p.rows[product];
    u32 n = n_heads(r) * r.n_blocks * 4;
    bool normed = product <= BLOCK_UP;
    f32 squares = 0, sum = 0;

#pragma unroll 1
    for (u32 i = threadIdx.x; i < (n + 31) / 32 * 32; i += BLOCK_THREADS) {
        f32 v[8] = {};
        if (i < n) {
            struct float8 norm = {};
            if (normed)
                norm = load_eight(p.norms[product], i, n);
            take_eight(p, product, i, attended, v);
            if (normed)
                squares += scale_by(norm, v);
        }
        quantise_eight(x, i, v, i < n);
    }
    if (normed) {
        squares = warp_sum(squares);
        if (threadIdx.x % 32 == 0)
            s.sums[product][threadIdx.x / 32] = squares;
    }
    __syncthreads();
    if (!normed)
        return 1;
#pragma unroll
    for (u32 i = 0; i < WARPS; i++)
        sum += s.sums[product][i];
    return norm_factor(sum, 8 * n, product == BLOCK_DOWN ? p.args.eps : p.args.q_eps);
}

// Row i of the block's times the row of activations from block `first` of 32 on: 1 << shift lanes, which all
// get the sum.
template <u32 F>
static __device__ __forceinline__ f32 dot_row(const struct latent_rows &r, const u8 *shared, u32 i,
                                              const struct row_int8 &x, u32 first)
{
    const u8 *at = shared + r.at;
    const struct plane_pointers row = { at + i * r.row[0], at + r.plane[1] + i * r.row[1],
                                        at + r.plane[2] + i * r.row[2], at + r.plane[3] + i * r.row[3] };
    u32 lanes = 1 << r.shift;
    f32 sum = 0;

#pragma unroll 2
    for (u32 block = threadIdx.x & (lanes - 1); block < r.n_blocks; block += lanes)
        sum = dot_block<F>(block_at<F, false>(row, block), face<F>(x, first + block), sum);
#pragma unroll
    for (u32 o = 16; o; o /= 2) {
        f32 other = __shfl_xor_sync(~0u, sum, o);
        sum += o < lanes ? other : 0;
    }
    return sum;
}

// The block's rows. What is handed on are numbers, or pairs; the last product adds to x.
template <u32 F>
static __device__ __forceinline__ void multiply(const struct latent_block_params &p, u32 product,
                                                const u8 *shared, const struct row_int8 &x, f32 factor,
                                                struct block_state &s)
{
    const struct latent_rows &r = p.rows[product];
    struct rows_span span = span_of(r);
    u32 lane = threadIdx.x % 32, lanes = 1 << r.shift, step = 32 >> r.shift,
        second = (first_head(r) + 1) * r.head_rows; // where another head begins

    wait_for_stage(shared_address(&s.full[product]), 0);
#pragma unroll 1
    for (u32 at = threadIdx.x / 32 * step; at < span.n; at += WARPS * step) {
        u32 i = at + (lane >> r.shift), mine = min(i, span.n - 1), row = span.first + mine;
        f32 add = product == BLOCK_OUT ? p.in[row] : 0,
            sum = dot_row<F>(r, shared, mine, x, row >= second ? r.n_blocks : 0) * factor;
        if (product == BLOCK_DOWN || product == BLOCK_OUT) { // by whole warps
            if (lane == 0 && product == BLOCK_DOWN)
                publish_number(p.words[product] + row, sum);
            else if (lane == 0)
                p.out[row] = add + sum;
            continue;
        }
        f32 next = __shfl_down_sync(~0u, sum, lanes);
        if ((lane & (2 * lanes - 1)) == 0 && i < span.n)
            publish_pair(p.words[product] + row / 2, sum, next);
    }
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

// What makes number `threadIdx.x % ROTATED` of a rotated part: of numbers `first` and `second` of it.
struct rotation {
    u32 first, second;
    f32 by_first, by_second;
};
static __device__ __forceinline__ struct rotation rotation_of(const struct latent_block_params &p)
{
    bool adjacent = p.args.absorb.pairs == ROPE_ADJACENT;
    u32 d = threadIdx.x % ROTATED, i = adjacent ? d / 2 : d % (ROTATED / 2);
    bool second = adjacent ? d % 2 : d / (ROTATED / 2);
    f32 cosine = p.angles[2 * i], sine = p.angles[2 * i + 1];

    return { adjacent ? 2 * i : i, adjacent ? 2 * i + 1 : i + ROTATED / 2, second ? sine : cosine,
             second ? cosine : -sine };
}

// The key of the row, to its page, by the warps that pack no queries, while these are waited for. Every block
// that reads that page does so, with the same bits, rather than to wait for one.
template <class S>
static __device__ __forceinline__ void store_key(const struct latent_block_params &p,
                                                 const struct seen_range &r, struct block_state &s)
{
    constexpr u32 n = BLOCK_THREADS - KEY_FROM, each = LATENT_VALUE / n;
    u32 d = threadIdx.x - KEY_FROM, token = r.position % PAGE_TOKENS,
        page = r.table[r.position / PAGE_TOKENS];
    const u32 *kv = p.words[BLOCK_DOWN] + p.args.q_latent;
    const struct page_shape shape = { 1, LATENT_KEY, p.args.store.pages.max_pages, S::format, S::format };
    struct page_side side = { &shape, (void *)p.attend.k_pages, false };
    f32 norm[each], x[each], squares = 0, sum = 0;

#pragma unroll
    for (u32 i = 0; i < each; i++) {
        norm[i] = p.kv_norm[d + i * n];
        x[i] = await_number(kv + d + i * n);
        squares += x[i] * x[i];
    }
    if (d < ROTATED) {
        struct rotation turn = rotation_of(p);
        f32 u = await_number(kv + LATENT_VALUE + turn.first),
            v = await_number(kv + LATENT_VALUE + turn.second);
        page_put_block(side, page, 0, token, LATENT_VALUE + d, u * turn.by_first + v * turn.by_second);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0)
        s.key_sums[d / 32] = squares;
    asm volatile("bar.sync 1, %0;" ::"n"((int)n) : "memory");
#pragma unroll
    for (u32 i = 0; i < n / 32; i++)
        sum += s.key_sums[i];
    f32 factor = norm_factor(sum, LATENT_VALUE, p.args.store.eps);
#pragma unroll
    for (u32 i = 0; i < each; i++)
        page_put_block(side, page, 0, token, d + i * n, x[i] * norm[i] * factor);
}

static __device__ __forceinline__ f32 await_half(const u32 *pairs, u32 i)
{
    u32 word = __float_as_uint(await_number(pairs + i / 2));
    return __uint_as_float(i % 2 ? word & 0xffff0000 : word << 16);
}

// The tile's queries as fragments; see put_queries in attend_few.cuh.
template <class S>
static __device__ __forceinline__ void stage_queries(const struct latent_block_params &p,
                                                     const struct few_job &j, const struct rotation &turn,
                                                     struct query_stage &stage, struct few_room<S> &room)
{
    constexpr u32 eights = LATENT_VALUE / 8, n = S::key / 16 * 32;
    const struct latent_project_args &a = p.args.absorb;
    f32 scale = p.args.scale * (LOG2_E / S::divide), v[8];
    u32 own = threadIdx.x / ROTATED;

    static_assert(ATTEND_FEW_HEADS * ROTATED == S::threads && ATTEND_FEW_HEADS * eights == S::threads, "");
    if (own < j.n_heads) {
        const u32 *rest = p.words[BLOCK_UP] + ((j.head + own) * (a.n_cols + ROTATED) + a.n_cols) / 2;
        stage.q[own][LATENT_VALUE + threadIdx.x % ROTATED] =
            await_half(rest, turn.first) * turn.by_first + await_half(rest, turn.second) * turn.by_second;
    }
    own = threadIdx.x / eights;
    if (own < j.n_heads) {
        u32 at = threadIdx.x % eights;
        open_pairs(await_four(p.words[BLOCK_ABSORB] + (j.head + own) * (LATENT_VALUE / 2) + 4 * at), v);
#pragma unroll
        for (u32 k = 0; k < 8; k += 4)
            *(float4 *)&stage.q[own][8 * at + k] = make_float4(v[k], v[k + 1], v[k + 2], v[k + 3]);
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < n; i += S::threads) {
        u32 lane = i % 32, at = i / 32, head = lane / 4;
        f32 x[4];
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            x[c] = head < j.n_heads ? stage.q[head][at * 16 + key_dim<S::format>(lane % 4, c)] * scale : 0;
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
                                              const struct few_job &j, u8 *shared)
{
    struct few_room<S> &room = *(struct few_room<S> *)shared;
    struct query_stage &stage = *(struct query_stage *)room.sums;
    u32 split = blockIdx.x / p.tiles, first = split * j.each, end = min(first + j.each, j.end),
        at = first + threadIdx.x / 32 / S::parts;
    struct few_page<S> page;

    static_assert(sizeof(struct query_stage) <= sizeof room.sums, "");
    if (at < end) {
        u32 number = r.table[at];
        load_keys<S>(p.attend, page, number, 0);
        load_values<S>(p.attend, page, number, 0);
    }
    struct rotation turn = rotation_of(p);
    __syncthreads(); // the weights that lay here are multiplied
    stage_queries<S>(p, j, turn, stage, room);
    take_pages<S>(p.attend, r, j, first, end, true, page, room);
    __syncthreads();
    publish_split<S>(p, j, split, end - first, room);
}

// What a lane's split weighs in a head's attended latent, of which there are several.
static __device__ __forceinline__ f32 split_weight(const u32 *parts, u32 stride, u32 n_splits)
{
    u32 lane = threadIdx.x % 32;
    f32 most = -INFINITY_F32, total = 0;

    if (lane < n_splits) {
        most = await_number(parts + lane * stride + LATENT_VALUE);
        total = await_number(parts + lane * stride + LATENT_VALUE + 1);
    }
    f32 weight = exp2f(most - warp_max(most));
    return weight / warp_sum(total * weight);
}

// Number `dim` of a head's attended latent: of all splits.
static __device__ __forceinline__ f32 attended_at(const struct latent_block_params &p, u32 head, u32 n_splits,
                                                  u32 dim)
{
    const u32 *parts = part_words(p, 0, head);
    u32 stride = p.args.absorb.n_heads * PART_WORDS;
    f32 weight = n_splits == 1 ? 1 : split_weight(parts, stride, n_splits), sum = 0;

#pragma unroll 1
    for (u32 split = 0; split < n_splits; split += AT_ONCE) {
        const u32 *at = parts + split * stride + dim;
        u32 v[AT_ONCE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                v[i] = split + i < n_splits ? load_word(at + i * stride) : 0x80000000u;
                all = all && v[i];
            }
        } while (!all);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++)
            sum = fmaf(__shfl_sync(~0u, weight, split + i), __uint_as_float(v[i]), sum);
    }
    return sum;
}

// The attended latents of the heads whose rows of Wuv the block has, to `attended`: [heads][LATENT_VALUE].
static __device__ __forceinline__ void take_attended(const struct latent_block_params &p, u32 n_splits,
                                                     f32 *attended)
{
    const struct latent_rows &r = p.rows[BLOCK_EXPAND];
    u32 first = first_head(r), n = n_heads(r);

    static_assert(BLOCK_THREADS == LATENT_VALUE, "");
#pragma unroll 1
    for (u32 i = 0; i < n; i++)
        attended[i * LATENT_VALUE + threadIdx.x] = attended_at(p, first + i, n_splits, threadIdx.x);
    __syncthreads();
}

// ---- the end

// All other blocks have read what is made zero.
static __device__ __forceinline__ void make_zero(const struct latent_block_params &p, u32 n_splits)
{
    u32 step = gridDim.x * BLOCK_THREADS, first = blockIdx.x * BLOCK_THREADS + threadIdx.x,
        n = (p.n_words + n_splits * p.args.absorb.n_heads * PART_WORDS) / 4;

#pragma unroll 1
    for (u32 i = first; i < n; i += step)
        ((uint4 *)p.words[0])[i] = make_uint4(0, 0, 0, 0);
}
// before: how many blocks had read the values before this one, as thread 0 knows.
static __device__ __forceinline__ void leave(const struct latent_block_params &p, u32 before,
                                             struct block_state &s)
{
    if (threadIdx.x == 0)
        s.last = before == gridDim.x - 1;
    __syncthreads();
    if (!s.last)
        return;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < p.args.absorb.n_heads * p.args.n_value / 8; i += BLOCK_THREADS)
        ((uint4 *)p.words[BLOCK_EXPAND])[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0)
        *p.arrived = 0;
}

// To the L2 cache, for after the wait.
static __device__ __forceinline__ void prefetch_norms(const struct latent_block_params &p)
{
    u32 line = threadIdx.x * 32;

    if (line < p.args.n_cols)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.norms[BLOCK_DOWN] + line));
    if (line < p.args.q_latent)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.norms[BLOCK_UP] + line));
    if (line < LATENT_VALUE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.kv_norm + line));
}

template <u32 F, u32 KV>
static __device__ __forceinline__ void latent_block(const struct latent_block_params &p)
{
    using S = struct few_shape<LATENT_KEY, LATENT_VALUE, LATENT_FEW_PARTS, LATENT_FEW_THREADS, KV, true>;
    extern __shared__ __align__(128) u8 block_shared[];
    struct block_state &s = *(struct block_state *)(block_shared + p.state_at);

    u32 before = 0;
    bool requests = threadIdx.x == BLOCK_THREADS - 1;
    if (requests) {
        begin_barriers(s);
        request_weights<F>(p, BLOCK_DOWN, block_shared, s);
    }
    prefetch_norms(p);
    if (p.attend.step->n_rows == 0) { // the request does not wait for this number
        wait_for_inputs();
        __syncthreads();
        wait_for_stage(shared_address(&s.full[BLOCK_DOWN]), 0);
        return;
    }
    struct seen_range r = range_of(p.attend, 0);
    struct few_job j = block_job<S>(p, r);
#pragma unroll 1
    for (u32 product = 0; product < BLOCK_N_PRODUCTS; product++) {
        const struct latent_rows &rows = p.rows[product];
        if (requests && product + 1 < BLOCK_N_PRODUCTS)
            request_weights<F>(p, product + 1, block_shared, s);
        if (product == BLOCK_DOWN) {
            wait_before_next();
            let_next_begin();
        }
        u32 split = blockIdx.x / p.tiles;
        if (product == BLOCK_ABSORB && split == j.n_splits - 1 && threadIdx.x >= KEY_FROM)
            store_key<S>(p, r, s);
        if (product == BLOCK_EXPAND) {
            if (split < j.n_splits)
                attend<S>(p, r, j, block_shared);
            __syncthreads(); // what lies where the latents come is read
            take_attended(p, j.n_splits, (f32 *)block_shared);
        }
        struct row_int8 x = row_int8_at(block_shared + p.row_at[product % 2], n_heads(rows) * rows.n_blocks);
        f32 factor = pack(p, product, x, (const f32 *)block_shared, s);
        if (product == BLOCK_OUT) { // all threads have read the values
            if (threadIdx.x == 0)
                before = atomicAdd(p.arrived, 1);
            make_zero(p, j.n_splits);
        }
        multiply<F>(p, product, block_shared, x, factor, s);
    }
    leave(p, before, s);
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
