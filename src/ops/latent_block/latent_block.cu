// latent_block.cu - a layer's latent attention for one row in one launch (a persistent kernel with exchanges
// through memory in place of launches); see latent_block.h.
//
//   block b: its weights are requested by bulk copies, a product's while the one before waits
//            its rows of Wqa and Wkva         -> first, kv   --+   every block norms and packs for itself
//            its rows of a head's Wqb         -> queries     --+
//            its rows of the head's Wuk       -> absorbed    --+
//            some blocks: 8 heads, a split    -> parts       --+   the split that has the row's position has
//            its rows of the head's Wuv       -> values      --+   stored the key before
//            its rows of Wo, + x              -> x
//
//   grid: one block an SM, all of which run at once; block: 16 warps
//
// The five products are one loop: code that is run once comes from memory, instruction by instruction, and is
// most of the time of a kernel like this. So a block has rows of one head, and a page is shared by all warps.
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
#include "gemm/cuda/block_rows.cuh"
#include "ops/latent_block/latent_block_attend.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

static __device__ __forceinline__ void split_past(const struct latent_block_params &p, u32 position,
                                                  struct block_job &j)
{
    u32 rank = gridDim.x - 1 - blockIdx.x, n = position / PAGE_TOKENS + 1,
        each = max((n + p.n_splits - 1) / p.n_splits, n > AT_ONCE ? 2 : 1);

    j.by_slots = each >= BY_SLOTS && p.depth > 0;
    each = j.by_slots ? (each + BLOCK_SLOTS - 1) / BLOCK_SLOTS * BLOCK_SLOTS : each;
    j.split = rank / p.tiles;
    j.tile_head = (rank - j.split * p.tiles) * ATTEND_FEW_HEADS;
    j.n_heads = min(p.args.absorb.n_heads - j.tile_head, ATTEND_FEW_HEADS);
    j.n_splits = (n + each - 1) / each;
    j.first = j.split * each;
    j.end = min(j.first + each, n);
}

static __device__ __forceinline__ bool is_projection(u32 product)
{
    return product != BLOCK_DOWN && product != BLOCK_OUT;
}
static __device__ __forceinline__ struct rows_span span_of(const struct latent_block_params &p, u32 product,
                                                           const struct block_job &j)
{
    const struct latent_rows &r = p.rows[product];
    bool projects = is_projection(product);
    struct rows_span span = rows_of_block(r.of_block, projects ? j.part : blockIdx.x);

    if (projects) {
        span.first += j.head * r.n_rows;
        span.n = j.head < p.args.absorb.n_heads ? span.n : 0;
    }
    return span;
}

// Where all blocks read a product's results: each reads one of some copies. All at one would be in each
// other's way, and in that of the results.
static __device__ __forceinline__ u32 copy_words(const struct latent_block_params &p, u32 product)
{
    return product == BLOCK_DOWN     ? p.args.q_latent + LATENT_KEY
           : product == BLOCK_EXPAND ? p.args.absorb.n_heads * p.args.n_value / 2
                                     : 0;
}
static __device__ __forceinline__ const u32 *words_of(const struct latent_block_params &p, u32 product)
{
    return p.words[product] + blockIdx.x % BLOCK_COPIES * copy_words(p, product);
}

// ---- weights

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
                                                       const struct block_job &j, u8 *shared,
                                                       struct block_state &s)
{
    const struct block_rows &r = p.rows[product].of_block;
    struct rows_span span = span_of(p, product, j);
    u32 at = shared_address(shared) + p.rows[product].at, full = shared_address(&s.full[product]), n = span.n;

    expect_bytes(full, n * r.row_bytes);
    if (product == BLOCK_DOWN) { // of two matrices, one behind the other
        u32 n_a = min(max(p.args.q_latent, span.first) - span.first, n);
        if (n_a < n)
            copy_rows<F>(r, p.kv_a, span.first + n_a - p.args.q_latent, n - n_a, n_a, at, full);
        n = n_a;
    }
    if (n > 0)
        copy_rows<F>(r, p.w[product], span.first, n, 0, at, full);
}

// ---- products

// x, which is there, or the latents, times their norm, to int8. Returns the norm's factor. Eight numbers a
// thread. All threads come.
static __device__ __forceinline__ f32 pack_normed(const struct latent_block_params &p, u32 product,
                                                  const struct row_int8 &x, struct block_state &s)
{
    u32 n = p.rows[product].n_blocks * 4, i = threadIdx.x;
    const u32 *at = (product == BLOCK_DOWN ? (const u32 *)p.in : words_of(p, BLOCK_DOWN)) + 8 * i;
    f32 squares = 0;

    if (i < (n + 31) / 32 * 32) {
        struct float8 norm = load_eight(p.norms[product], i, n);
        const f32 by[8] = { norm.a.x, norm.a.y, norm.a.z, norm.a.w, norm.b.x, norm.b.y, norm.b.z, norm.b.w };
        f32 v[8] = {};
        if (i < n) {
            uint4 a, b;
            do {
                a = load_four(at);
                b = load_four(at + 4);
            } while (product != BLOCK_DOWN && !(are_there(a) && are_there(b)));
            open_numbers(a, b, v);
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            squares += v[k] * v[k];
            v[k] *= by[k];
        }
        quantise_eight(x, i, v, i < n);
        squares = warp_sum(squares);
    }
    if (threadIdx.x % 32 == 0)
        s.sums[product][threadIdx.x / 32] = squares;
    __syncthreads();
    const float4 *sums = (const float4 *)s.sums[product], a = sums[0], b = sums[1], c = sums[2], d = sums[3];
    f32 sum = ((a.x + a.y) + (a.z + a.w) + ((b.x + b.y) + (b.z + b.w))) +
              ((c.x + c.y) + (c.z + c.w) + ((d.x + d.y) + (d.z + d.w)));
    return rsqrtf(sum * p.inverse_cols[product] + (product == BLOCK_DOWN ? p.args.eps : p.args.q_eps));
}

// Pairs from all blocks that have them, from `words` on, to int8. Two words of eight at a time. All threads
// come.
static __device__ __forceinline__ void pack_pairs(const u32 *words, u32 n, const struct row_int8 &x)
{
    u32 end = (n + 31) / 32 * 32, i = threadIdx.x;

    if (i < end) {
        bool two = i + BLOCK_THREADS < end;
        const u32 *at = words + 4 * min(i, n - 1), *next = words + 4 * min(i + BLOCK_THREADS, n - 1);
        uint4 v, w = make_uint4(~0u, ~0u, ~0u, ~0u);
        do {
            v = load_four(at);
            if (two)
                w = load_four(next);
        } while (!are_there(v) || !are_there(w));
#pragma unroll 1
        for (; i < end; i += BLOCK_THREADS, v = w) {
            f32 numbers[8];
            open_pairs(v, numbers);
            quantise_eight(x, i, numbers, i < n);
        }
    }
    __syncthreads();
}

// A warp has 32 numbers from a multiple of 32 on, one a lane: the same bits as quantise_eight.
static __device__ __forceinline__ void quantise_one(const struct row_int8 &x, u32 column, f32 v)
{
    u32 lane = threadIdx.x % 32, block = column / 32;
    // infinity for a NaN too
    f32 top = __uint_as_float(min(__reduce_max_sync(~0u, __float_as_uint(v) & 0x7fffffff), 0x7f800000));
    int q = __float2int_rn(v * int8_inverse(top)), low = __reduce_add_sync(~0u, lane < 16 ? q : 0),
        all = __reduce_add_sync(~0u, q);

    ((u8 *)((lane < 16 ? x.low : x.high) + block))[lane % 16] = (u8)q;
    if (lane == 0) {
        x.scale[block] = int8_scale(top);
        x.sums[block] = make_int2(low, all - low);
    }
}

// Row i of the block's times the row of activations: 1 << shift lanes, which all get the sum.
template <u32 F>
static __device__ __forceinline__ f32 dot_row(const struct latent_rows &r, const u8 *shared, u32 i,
                                              const struct row_int8 &x)
{
    const struct plane_pointers row = row_of(r.of_block, shared + r.at, i);
    u32 lanes = 1 << r.shift;
    f32 sum = 0;

#pragma unroll 2
    for (u32 block = threadIdx.x & (lanes - 1); block < r.n_blocks; block += lanes)
        sum = dot_block<F>(block_at<F, false>(row, block), face<F>(x, block), sum);
#pragma unroll
    for (u32 o = 16; o; o /= 2) {
        f32 other = __shfl_xor_sync(~0u, sum, o);
        sum += o < lanes ? other : 0;
    }
    return sum;
}

// The block's rows, of which there are some. What is handed on are numbers, or pairs; the last product adds
// to x.
template <u32 F>
static __device__ __forceinline__ void multiply(const struct latent_block_params &p, u32 product,
                                                const struct rows_span &span, const u8 *shared,
                                                const struct row_int8 &x, f32 factor, struct block_state &s)
{
    const struct latent_rows &r = p.rows[product];
    u32 lane = threadIdx.x % 32, lanes = 1 << r.shift, step = 32 >> r.shift, place = lane & (2 * lanes - 1),
        stride = copy_words(p, product), copies = stride ? BLOCK_COPIES : 1; // a lane each

    wait_for_stage(shared_address(&s.full[product]), 0);
#pragma unroll 1
    for (u32 at = threadIdx.x / 32 * step; at < span.n; at += WARPS * step) {
        u32 i = at + (lane >> r.shift), mine = min(i, span.n - 1), row = span.first + mine;
        f32 add = product == BLOCK_OUT ? p.in[row] : 0, sum = dot_row<F>(r, shared, mine, x) * factor;
        if (product == BLOCK_DOWN || product == BLOCK_OUT) { // by whole warps
            if (lane < copies && product == BLOCK_DOWN)
                publish_number(p.words[product] + lane * stride + row, sum);
            else if (lane == 0)
                p.out[row] = add + sum;
            continue;
        }
        f32 next = __shfl_down_sync(~0u, sum, lanes);
        if (place < copies && i < span.n)
            publish_pair(p.words[product] + place * stride + row / 2, sum, next);
    }
}

// ---- the key

// The key of the row, to its page, by the upper half of the threads, while queries are waited for. Every
// block that reads that page does so, with the same bits, rather than to wait for one.
template <class S>
static __device__ __forceinline__ void
store_key(const struct latent_block_params &p, const struct seen_range &r, bool copied, struct block_state &s)
{
    constexpr u32 n = BLOCK_THREADS - KEY_FROM, each = LATENT_VALUE / n;
    u32 d = threadIdx.x - KEY_FROM, token = r.position % PAGE_TOKENS,
        page = r.table[r.position / PAGE_TOKENS];
    const u32 *kv = words_of(p, BLOCK_DOWN) + p.args.q_latent;
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
        struct rotation turn = rotation_of(p, d);
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
    if (copied) // to shared memory, by a bulk copy
        asm volatile("fence.proxy.async;" ::: "memory");
}

// ---- the attended latent

// What splits `lane` and `lane` + 32 weigh in a head's attended latent. sums: their maxima and totals.
static __device__ __forceinline__ void split_weights(const uint2 (&sums)[2], f32 (&weights)[2])
{
    f32 most = warp_max(fmaxf(__uint_as_float(sums[0].x), __uint_as_float(sums[1].x))), total = 0;

    for (u32 i = 0; i < 2; i++) {
        weights[i] = exp2f(__uint_as_float(sums[i].x) - most);
        total += __uint_as_float(sums[i].y) * weights[i];
    }
    total = warp_sum(total);
    for (u32 i = 0; i < 2; i++)
        weights[i] /= total;
}

// The attended latent of the block's head, of all splits, to int8: a number a thread.
static __device__ __forceinline__ void take_attended(const struct latent_block_params &p,
                                                     const struct block_job &j, const struct row_int8 &x)
{
    const u32 *parts = part_words(p, 0, j.head), *at = parts + threadIdx.x;
    const u32 stride = p.args.absorb.n_heads * PART_WORDS, lane = threadIdx.x % 32;
    const uint2 none = make_uint2(__float_as_uint(-INFINITY_F32), 0x80000000u); // a total of -0
    uint2 sums[2] = { none, none };
    f32 sum = 0, weights[2];
    bool all;

    static_assert(BLOCK_THREADS == LATENT_VALUE && BLOCK_SPLITS <= 64 && 32 % AT_ONCE == 0, "");
    // these first: polls of all parts by all blocks delay what they wait for
    do {
        all = true;
        for (u32 i = 0; i < 2; i++)
            if (lane + 32 * i < j.n_splits) {
                sums[i] = load_two(parts + (lane + 32 * i) * stride + LATENT_VALUE);
                all = all && sums[i].x && sums[i].y;
            }
    } while (!__all_sync(~0u, all));
    split_weights(sums, weights);
#pragma unroll 1
    for (u32 split = 0; split < j.n_splits; split += AT_ONCE) {
        f32 weight = split < 32 ? weights[0] : weights[1];
        u32 v[AT_ONCE];
        do {
            all = true;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                v[i] = split + i < j.n_splits ? load_word(at + i * stride) : 0x80000000u;
                all = all && v[i];
            }
        } while (!all);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++)
            sum = fmaf(__shfl_sync(~0u, weight, split + i), __uint_as_float(v[i]), sum);
        at += AT_ONCE * stride;
    }
    quantise_one(x, threadIdx.x, sum);
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
    for (u32 i = threadIdx.x; i < BLOCK_COPIES * p.args.absorb.n_heads * p.args.n_value / 8;
         i += BLOCK_THREADS)
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

// The pages of the block's split, to the L2 cache: `attend` loads one ahead, which is too late for memory.
template <class S>
static __device__ __forceinline__ void prefetch_past(const struct latent_block_params &p, const u32 *table,
                                                     const struct block_job &j)
{
    const u32 page_bytes = page_head_bytes(S::format, LATENT_KEY), lines = (page_bytes + 127) / 128;
    u32 n = j.split < j.n_splits ? (j.end - j.first) * lines : 0;

#pragma unroll 1
    for (u32 i = j.tile_head / ATTEND_FEW_HEADS * BLOCK_THREADS + threadIdx.x; i < n;
         i += p.tiles * BLOCK_THREADS) { // by the blocks of all tiles
        const u8 *page = (const u8 *)p.attend.k_pages + (u64)table[j.first + i / lines] * page_bytes;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(page + i % lines * 128));
    }
}

template <u32 F, u32 KV>
static __device__ __forceinline__ void latent_block(const struct latent_block_params &p)
{
    using S = struct block_shape<KV, WARPS>;
    extern __shared__ __align__(128) u8 block_shared[];
    struct block_state &s = *(struct block_state *)(block_shared + p.state_at);
    struct block_job j = {};
    bool requests = threadIdx.x == BLOCK_THREADS - 1; // elect_one() costs registers here
    u32 before = 0;

    if (requests) {
        begin_barriers(s);
        request_weights<F>(p, BLOCK_DOWN, j, block_shared, s);
    }
    prefetch_norms(p);
    if (p.attend.step->n_rows == 0) { // the request does not wait for this number
        wait_for_inputs();
        __syncthreads();
        wait_for_stage(shared_address(&s.full[BLOCK_DOWN]), 0);
        return;
    }
    struct seen_range r = range_of(p.attend, 0);
    j.head = blockIdx.x / p.head_blocks;
    j.part = blockIdx.x - j.head * p.head_blocks;
    split_past(p, r.position, j);
    prefetch_past<S>(p, r.table, j);
#pragma unroll 1
    for (u32 product = 0; product < BLOCK_N_PRODUCTS; product++) {
        if (requests && product + 1 < BLOCK_N_PRODUCTS)
            request_weights<F>(p, product + 1, j, block_shared, s);
        if (product == BLOCK_DOWN) {
            wait_before_next();
            let_next_begin();
        }
        if (product == BLOCK_ABSORB && j.split == j.n_splits - 1 && threadIdx.x >= KEY_FROM)
            store_key<S>(p, r, j.by_slots, s);
        if (product == BLOCK_EXPAND && j.split < j.n_splits)
            j.by_slots ? attend_slots<struct block_shape<KV, SLOT_PARTS>>(p, r, j, block_shared, s)
                       : attend<S>(p, r, j, s);
        struct rows_span span = span_of(p, product, j);
        if (span.n == 0 && is_projection(product)) // of no head
            continue;
        u32 n = p.rows[product].n_blocks;
        struct row_int8 x = row_int8_at(block_shared + p.row_at[product % 2], n);
        f32 factor = 1;
        if (product <= BLOCK_UP)
            factor = pack_normed(p, product, x, s);
        else if (product == BLOCK_EXPAND)
            take_attended(p, j, x);
        else
            pack_pairs(product == BLOCK_OUT
                           ? words_of(p, BLOCK_EXPAND)
                           : p.words[BLOCK_UP] + j.head * (p.args.absorb.n_cols + ROTATED) / 2,
                       4 * n, x);
        if (product == BLOCK_OUT) { // all threads have read the values
            if (threadIdx.x == 0)
                before = atomicAdd(p.arrived, 1);
            make_zero(p, j.n_splits);
        }
        multiply<F>(p, product, span, block_shared, x, factor, s);
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
