// latent_block_attend.cuh - the attention of latent_block.cu: a block's state, and a split of the past by 16
// warps.
//
// As attend_few.cuh, a page at a time, whose dims the warps share: 32 of the latent each, as keys and as
// values; some have 16 rotated dims each too. Queries are fragments as soon as they come, in registers;
// scores are added up in shared memory. Of a short past the page comes from memory, and what a warp has of
// the sums is handed on from its registers. Of a long one pages come by bulk copies, some ahead, to where the
// first products' weights were, and two halves of the block take a page each.
#pragma once
#include "device/cuda/words.cuh"
#include "gemm/cuda/pipeline.cuh"
#include "ops/attend/attend_few.cuh"
#include "ops/latent_block/latent_block_cuda.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum {
    WARPS = BLOCK_THREADS / 32,
    BY_SLOTS = 3,                     // pages of a split
    AT_ONCE = 8,                      // parts that a thread asks for
    SLOT_PARTS = WARPS / BLOCK_SLOTS, // warps that share a page of a slot
    PART_WORDS = LATENT_VALUE + 4,
    ROTATED = LATENT_KEY - LATENT_VALUE,
    KEY_FROM = BLOCK_THREADS / 2, // threads from here on store the key
    SCORES = ATTEND_FEW_HEADS * PAGE_TOKENS,
    SCORES_PITCH = SCORES + 8 // four warps' scores of a head and token lie in different banks
};

// PARTS warps share a page: all of them one that lies in memory, or half of them one in shared memory.
template <u32 KV, u32 PARTS>
struct block_shape : few_shape<LATENT_KEY, LATENT_VALUE, PARTS, BLOCK_THREADS, KV, true> {
    static constexpr u32 latents = LATENT_VALUE / 16 / PARTS, steps = latents + 1, // the last one rotates
        group = KV == KV_F16    ? 1
                : KV == KV_BF16 ? 2
                                : 4, // dims of a line
        lines = 4 / group;           // of a lane's four dims in 16
    static constexpr bool in_shared = PARTS < WARPS;
};

struct block_state { // shared memory
    alignas(16) f32 scores[WARPS][SCORES_PITCH];
    alignas(16) f32 all_scores[SCORES];
    alignas(16) f32 sums[2][WARPS]; // of squares
    f32 key_sums[WARPS];            // of squares
    u64 full[BLOCK_N_PRODUCTS];
    u64 page_full[BLOCK_SLOTS * BLOCK_DEPTH];
    u32 last;
};
static_assert(sizeof(struct block_state) <= BLOCK_STATE, "");

struct slot_sums { // shared memory, over the pages; four warps' numbers of two heads lie in different banks
    f32 sums[BLOCK_SLOTS][ATTEND_FEW_HEADS][LATENT_VALUE + 4];
    f32 row_max[BLOCK_SLOTS][ATTEND_FEW_HEADS], total[BLOCK_SLOTS][ATTEND_FEW_HEADS];
};
static_assert(sizeof(struct slot_sums) == BLOCK_SLOT_SUMS, "");

// What a block has: rows of a head of the projections, if that exists; and of the attention a split of a
// tile. The last blocks, of which some have no head, attend first.
struct block_job {
    u32 head, part;         // of the projections; which of the head's blocks this is
    u32 tile_head, n_heads; // of the tile
    u32 split, n_splits;    // of the past
    u32 first, end;         // pages of the split
    bool by_slots;          // from shared memory, a page for each half of the warps
};

// To 8 bytes that begin at a multiple of that, both not zero.
static __device__ __forceinline__ void publish_two(u32 *to, f32 low, f32 high)
{
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to),
                 "r"(low == 0 ? 0x80000000u : __float_as_uint(low)),
                 "r"(high == 0 ? 0x80000000u : __float_as_uint(high))
                 : "memory");
}
static __device__ __forceinline__ uint2 load_two(const u32 *at)
{
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
    return v;
}

// A page, which other blocks read too.
static __device__ __forceinline__ void copy_page(u32 to, const u8 *from, u32 bytes, u32 full)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(full)
        : "memory");
}

// How number d of a rotated part is made: of numbers `first` and `second` of it.
struct rotation {
    u32 first, second;
    f32 by_first, by_second;
};
static __device__ __forceinline__ struct rotation rotation_of(const struct latent_block_params &p, u32 d)
{
    bool adjacent = p.args.absorb.pairs == ROPE_ADJACENT;
    u32 i = adjacent ? d / 2 : d % (ROTATED / 2);
    bool second = adjacent ? d % 2 : d / (ROTATED / 2);
    f32 cosine = p.angles[2 * i], sine = p.angles[2 * i + 1];

    return { adjacent ? 2 * i : i, adjacent ? 2 * i + 1 : i + ROTATED / 2, second ? sine : cosine,
             second ? cosine : -sine };
}

// ---- attention

// threadIdx.x, but what is made of it stays in the place where it is needed: as it is the same in every turn
// of the loop of products, the compiler would make it before that loop, and registers would spill.
static __device__ __forceinline__ u32 thread_number()
{
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

template <class S, class T> static __device__ __forceinline__ T page_word(const u8 *at)
{
    return S::in_shared ? *(const T *)at : __ldcg((const T *)at);
}

// Lines of a lane's dims are taken in another order by each lane where they lie in shared memory: at once,
// they would come from the same banks.
template <class S> static __device__ __forceinline__ u32 line_turn(u32 thread)
{
    return S::in_shared ? thread % S::lines : 0;
}

// Keys of N times 16 dims from the `first` 16 on, to places `to` and on. A lane has neighbouring dims, so
// that queries come to it by whole words: of the dims of N steps those from 4 N t on, four for each step.
template <class S, u32 N>
static __device__ __forceinline__ void load_key_dims(u32 thread, const u8 *head, u32 first, u32 to,
                                                     struct few_page<S> &page)
{
    constexpr u32 line = PAGE_TOKENS * (S::format == KV_F16 ? 2 : 4); // bytes
    u32 g = thread % 32 / 4, t = thread % 4;
    const u8 *at =
        head + (first * (16 / S::group) + t * N * S::lines) * line + g * (S::format == KV_F16 ? 4 : 8);

#pragma unroll
    for (u32 s = 0; s < N; s++, at += S::lines * line) {
#pragma unroll
        for (u32 i = 0; i < S::lines; i++) {
            const u8 *from = at + (i ^ line_turn<S>(thread)) * line;
            if (S::format == KV_F16) {
                page.k[to + s][i] = page_word<S, u32>(from);
            } else {
                uint2 two = page_word<S, uint2>(from);
                page.k[to + s][2 * i % S::words] = two.x;
                page.k[to + s][(2 * i + 1) % S::words] = two.y;
            }
        }
        if (S::format == KV_Q8_0)
            page.k_scales[S::format == KV_Q8_0 ? to + s : 0] = page_word<S, uint2>(
                head + PAGE_TOKENS * S::key + first / 2 * PAGE_TOKENS * 2 + t * sizeof(uint2));
    }
}

// The warp's dims of a page's keys.
template <class S>
static __device__ __forceinline__ void load_page_keys(u32 thread, const u8 *head, struct few_page<S> &page)
{
    u32 part = thread / 32 % S::parts;

    static_assert(S::latents % 2 == 0, "dims of a scale");
#pragma unroll
    for (u32 i = 0; i < S::latents; i += 2)
        load_key_dims<S, 2>(thread, head, part * S::latents + i, i, page);
    if (part < ROTATED / 16)
        load_key_dims<S, 1>(thread, head, LATENT_VALUE / 16 + part, S::latents, page);
}

// As load_key_values, from shared memory. F16: the two lines of a lane in turns, as those of keys.
template <class S>
static __device__ __forceinline__ void load_shared_values(u32 thread, const u8 *head,
                                                          struct few_page<S> &page)
{
    constexpr u32 line = PAGE_TOKENS * 4; // bytes of two dims, of Q8_0 of four
    u32 g = thread % 32 / 4, t = thread % 4, first = thread / 32 % S::parts * S::rows * 16;
    const u8 *at = S::format == KV_F16 ? head + (first / 2 + g) * line + t * 8
                                       : head + (first / S::group + g) * line + t * 16;

#pragma unroll
    for (u32 r = 0; r < S::rows; r++) {
        if (S::format == KV_F16) {
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                uint2 two = *(const uint2 *)(at + r * 8 * line + (i ^ (g / 2 % 2)) * (line / 2));
                page.v[r][2 * i % S::words] = two.x;
                page.v[r][(2 * i + 1) % S::words] = two.y;
            }
        } else if (S::format == KV_BF16) {
            put_four<S>(page, r, *(const uint4 *)(at + r * 8 * line));
        } else if (r % 2 == 0) {
            uint4 four = *(const uint4 *)(at + r * 4 * line);
            page.v[r][0] = four.x;
            page.v[r][1] = four.y;
            page.v[(r + 1) % S::rows][0] = four.z;
            page.v[(r + 1) % S::rows][1] = four.w;
            page.v_scales[S::format == KV_Q8_0 ? r / 2 : 0] =
                *((const uint2 *)(head + PAGE_TOKENS * S::key +
                                  (first + r * 16) / KV_Q8_0_BLOCK * PAGE_TOKENS * 2) +
                  t);
        }
    }
}

// The sums of a lane's even dim and of the next one are in this order.
template <class S> static __device__ __forceinline__ bool is_odd_first(u32 thread)
{
    return S::in_shared && S::format == KV_F16 && thread / 8 % 2;
}

template <class S>
static __device__ __forceinline__ const u8 *page_in_memory(const struct latent_block_params &p, u32 number)
{
    return (const u8 *)p.attend.k_pages + (u64)number * page_head_bytes(S::format, LATENT_KEY);
}
template <class S>
static __device__ __forceinline__ void load_page(const struct latent_block_params &p, u32 number,
                                                 struct few_page<S> &page)
{
    const u32 thread = threadIdx.x;
    load_page_keys<S>(thread, page_in_memory<S>(p, number), page);
    load_values<S>(p.attend, page, number, 0);
}

static __device__ __forceinline__ f32 half_of_pair(u32 word, u32 which)
{
    return __uint_as_float(which ? word & 0xffff0000 : word << 16);
}

// Four numbers as a lane's part of a fragment; as put_queries in attend_few.cuh.
template <class S>
static __device__ __forceinline__ uint4 query_words(u32 thread, const struct latent_block_params &p,
                                                    f32 (&x)[4])
{
    u32 turn = line_turn<S>(thread) * S::group;
#pragma unroll
    for (u32 bit = 1; bit <= 2; bit *= 2)
        if (turn & bit)
#pragma unroll
            for (u32 c = 0; c < 4; c++)
                if (!(c & bit)) {
                    f32 v = x[c];
                    x[c] = x[c + bit];
                    x[c + bit] = v;
                }
    f32 scale = p.args.scale * (LOG2_E / S::divide);
    uint2 low = two_parts<S::bf16>(x[0] * scale, x[1] * scale),
          high = two_parts<S::bf16>(x[2] * scale, x[3] * scale);
    return make_uint4(low.x, low.y, high.x, high.y);
}

// The warp's 16 rotated dims of head g of the tile.
template <class S>
static __device__ __forceinline__ uint4 rotated_queries(u32 thread, const struct latent_block_params &p,
                                                        const struct block_job &j)
{
    const struct latent_project_args &a = p.args.absorb;
    u32 part = thread / 32 % S::parts, g = thread % 32 / 4, t = thread % 4;
    const u32 *at = p.words[BLOCK_UP] + ((j.tile_head + g) * (a.n_cols + ROTATED) + a.n_cols) / 2;
    struct rotation turns[4];
    u32 v[4][2];
    f32 x[4] = {};
    bool all;

    if (g < j.n_heads) {
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            turns[c] = rotation_of(p, part * 16 + 4 * t + c);
        do {
            all = true;
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                v[c][0] = load_word(at + turns[c].first / 2);
                v[c][1] = load_word(at + turns[c].second / 2);
                all = all && v[c][0] && v[c][1];
            }
        } while (!all);
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            x[c] = half_of_pair(v[c][0], turns[c].first % 2) * turns[c].by_first +
                   half_of_pair(v[c][1], turns[c].second % 2) * turns[c].by_second;
    }
    return query_words<S>(thread, p, x);
}

// The warp's dims of the latent of head g of the tile: eight a lane of each 32.
template <class S>
static __device__ __forceinline__ void absorbed_queries(u32 thread, const struct latent_block_params &p,
                                                        const struct block_job &j, uint4 (&q)[S::steps])
{
    constexpr u32 n = S::latents / 2;
    u32 lane = thread % 32, at = (j.tile_head + lane / 4) * LATENT_VALUE +
                                 thread / 32 % S::parts * S::latents * 16 + lane % 4 * 8;
    uint4 words[n] = {};
    bool all = lane / 4 >= j.n_heads;

    while (!all) {
        all = true;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            words[i] = load_four(p.words[BLOCK_ABSORB] + (at + 32 * i) / 2);
            all = all && are_there(words[i]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < n; i++) {
        f32 v[8];
        open_pairs(words[i], v);
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
            f32 x[4] = { v[4 * s], v[4 * s + 1], v[4 * s + 2], v[4 * s + 3] };
            q[2 * i + s] = query_words<S>(thread, p, x);
        }
    }
}

// The scores of all warps' dims, the same in every warp. All threads come.
static __device__ __forceinline__ void add_dims(struct block_state &s, f32 (&scores)[4])
{
    u32 lane = threadIdx.x % 32, at = threadIdx.x / 4, first = threadIdx.x % 4;
    f32 sum = 0;

    *(float4 *)&s.scores[threadIdx.x / 32][4 * lane] =
        make_float4(scores[0], scores[1], scores[2], scores[3]);
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < WARPS; i += 4)
        sum += s.scores[first + i][at];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (first == 0)
        s.all_scores[at] = sum;
    __syncthreads();
    float4 all = *(const float4 *)&s.all_scores[4 * lane];
    scores[0] = all.x;
    scores[1] = all.y;
    scores[2] = all.z;
    scores[3] = all.w;
}

static __device__ __forceinline__ void meet_slot(u32 thread) // the warps of a page
{
    asm volatile("bar.sync %0, %1;" ::"r"(2 + thread / (32 * SLOT_PARTS)), "n"(32 * SLOT_PARTS) : "memory");
}

// The scores of all dims of the slot's page, in all of its warps.
static __device__ __forceinline__ void add_parts_of_slot(u32 thread, struct block_state &s, f32 (&scores)[4])
{
    u32 lane = thread % 32, warp = thread / 32, first = warp / SLOT_PARTS * SLOT_PARTS;

    *(float4 *)&s.scores[warp][4 * lane] = make_float4(scores[0], scores[1], scores[2], scores[3]);
    meet_slot(thread);
    scores[0] = scores[1] = scores[2] = scores[3] = 0;
#pragma unroll
    for (u32 i = 0; i < SLOT_PARTS; i++) {
        float4 part = *(const float4 *)&s.scores[first + i][4 * lane];
        scores[0] += part.x;
        scores[1] += part.y;
        scores[2] += part.z;
        scores[3] += part.w;
    }
}

template <class S>
static __device__ __forceinline__ void score_dims(u32 thread, const struct few_page<S> &page,
                                                  const uint4 (&q)[S::steps], f32 (&scores)[4])
{
    f32 c[2][4] = {};

#pragma unroll
    for (u32 i = 0; i < S::steps; i++) {
        if (i == S::latents && thread / 32 % S::parts >= ROTATED / 16)
            break;
        score_step<S>(page, i, q[i], c);
        if (S::format == KV_Q8_0)
            end_scores<S>(page, i, c, scores);
    }
    if (S::format != KV_Q8_0)
        end_scores<S>(page, 0, c, scores);
}

static __device__ __forceinline__ void see(u32 thread, u32 tokens, bool (&seen)[4]) // of the page
{
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        seen[i] = 4 * (thread % 4) + i < tokens;
}

template <class S>
static __device__ __forceinline__ void take_page(const struct few_page<S> &page, const uint4 (&q)[S::steps],
                                                 u32 tokens, struct few_state<S> &state,
                                                 struct block_state &s)
{
    const u32 thread = threadIdx.x;
    f32 scores[4] = {};
    bool seen[4];

    score_dims<S>(thread, page, q, scores);
    add_dims(s, scores);
    see(thread, tokens, seen);
    weigh<S>(state, seen, scores);
    add_values<S>(state, page, seen, scores);
}

static __device__ __forceinline__ u32 *part_words(const struct latent_block_params &p, u32 split, u32 head)
{
    return p.parts + (split * p.args.absorb.n_heads + head) * PART_WORDS;
}

// A split's sums, with their maximum and total.
template <class S>
static __device__ __forceinline__ void publish_split(const struct latent_block_params &p,
                                                     const struct block_job &j,
                                                     const struct few_state<S> &state)
{
    u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    f32 total = state.row_sum + __shfl_xor_sync(~0u, state.row_sum, 1);

    total += __shfl_xor_sync(~0u, total, 2);
#pragma unroll
    for (u32 i = 0; i < 2; i++)
        if (2 * t + i < j.n_heads)
#pragma unroll
            for (u32 r = 0; r < S::rows; r++)
                publish_two(part_words(p, j.split, j.tile_head + 2 * t + i) + warp * S::rows * 16 +
                                value_dim<S>(r, g),
                            state.sums[r][i], state.sums[r][2 + i]);
    if (warp == 0 && t == 0 && g < j.n_heads)
        publish_two(part_words(p, j.split, j.tile_head + g) + LATENT_VALUE, state.row_max, total);
}

template <class S>
static __device__ __forceinline__ void attend(const struct latent_block_params &p, const struct seen_range &r,
                                              const struct block_job &j, struct block_state &s)
{
    const u32 thread = threadIdx.x;
    struct few_page<S> next;
    struct few_state<S> state = {
        .row_max = -INFINITY_F32
    };
    uint4 q[S::steps] = {};

    __syncthreads(); // the key is stored
    load_page<S>(p, r.table[j.first], next);
    if (threadIdx.x / 32 < ROTATED / 16)
        q[S::latents] = rotated_queries<S>(thread, p, j);
    absorbed_queries<S>(thread, p, j, q);
#pragma unroll 1
    for (u32 at = j.first; at < j.end; at++) {
        struct few_page<S> page = next;
        if (at + 1 < j.end)
            load_page<S>(p, r.table[at + 1], next);
        take_page<S>(page, q, r.position + 1 - at * PAGE_TOKENS, state, s);
    }
    publish_split<S>(p, j, state);
}

// ---- a long past

// What the slots have summed up becomes the split's.
template <class S>
static __device__ __forceinline__ void publish_slots(u32 thread, const struct latent_block_params &p,
                                                     const struct block_job &j,
                                                     const struct few_state<S> &state, struct slot_sums &s)
{
    u32 warp = thread / 32, g = thread % 32 / 4, t = thread % 4, slot = warp / S::parts,
        first = thread / 32 % S::parts * S::rows * 16;
    f32 total = state.row_sum + __shfl_xor_sync(~0u, state.row_sum, 1);

    total += __shfl_xor_sync(~0u, total, 2);
    __syncthreads(); // all pages are read
#pragma unroll
    for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 r = 0; r < S::rows; r++) {
            f32 a = state.sums[r][i], b = state.sums[r][2 + i];
            *(float2 *)&s.sums[slot][2 * t + i][first + value_dim<S>(r, g)] =
                is_odd_first<S>(thread) ? make_float2(b, a) : make_float2(a, b);
        }
    if (warp % S::parts == 0 && t == 0) {
        s.row_max[slot][g] = state.row_max;
        s.total[slot][g] = total;
    }
    __syncthreads();
    u32 dim = thread % (LATENT_VALUE / 2) * 2;
#pragma unroll 1
    for (u32 h = thread / (LATENT_VALUE / 2); h < j.n_heads; h += BLOCK_THREADS / (LATENT_VALUE / 2)) {
        f32 most = -INFINITY_F32, all = 0;
        float2 sum = {};
#pragma unroll
        for (u32 i = 0; i < BLOCK_SLOTS; i++)
            most = fmaxf(most, s.row_max[i][h]);
#pragma unroll
        for (u32 i = 0; i < BLOCK_SLOTS; i++) {
            f32 weight = exp2f(s.row_max[i][h] - most);
            float2 v = *(const float2 *)&s.sums[i][h][dim];
            all = fmaf(s.total[i][h], weight, all);
            sum.x = fmaf(v.x, weight, sum.x);
            sum.y = fmaf(v.y, weight, sum.y);
        }
        u32 *part = part_words(p, j.split, j.tile_head + h);
        publish_two(part + dim, sum.x, sum.y);
        if (dim == 0)
            publish_two(part + LATENT_VALUE, most, all);
    }
}

// A slot has p.depth pages in flight. Its first thread requests one where one was read.
template <class S>
static __device__ __forceinline__ void attend_slots(const struct latent_block_params &p,
                                                    const struct seen_range &r, const struct block_job &j,
                                                    u8 *shared, struct block_state &s)
{
    const u32 bytes = page_head_bytes(S::format, LATENT_KEY);
    const u32 thread = thread_number();
    u32 slot = thread / (32 * S::parts), first = j.first + slot, parity = 0,
        full = shared_address(&s.page_full[slot * BLOCK_DEPTH]);
    const u8 *pages = shared + slot * p.depth * bytes;
    bool requests = thread % (32 * S::parts) == 0;
    struct few_state<S> state = {
        .row_max = -INFINITY_F32
    };
    uint4 q[S::steps] = {};
    auto request = [&](u32 at, u32 buffer) {
        if (at < j.end) {
            expect_bytes(full + 8 * buffer, bytes);
            copy_page(shared_address(pages) + buffer * bytes, page_in_memory<S>(p, r.table[at]), bytes,
                      full + 8 * buffer);
        }
    };

    if (requests) {
#pragma unroll 1
        for (u32 i = 0; i < p.depth; i++)
            barrier_begin(full + 8 * i, 1);
        show_barriers();
    }
    __syncthreads(); // the key is stored, and the weights that lay where pages will are read
    if (requests)
#pragma unroll 1
        for (u32 i = 0; i < p.depth; i++)
            request(first + i * S::slots, i);
    if (thread / 32 % S::parts < ROTATED / 16)
        q[S::latents] = rotated_queries<S>(thread, p, j);
    absorbed_queries<S>(thread, p, j, q);
#pragma unroll 1
    for (u32 at = first, buffer = 0; at < j.end; at += S::slots) {
        wait_for_stage(full + 8 * buffer, parity);
        struct few_page<S> page;
        f32 scores[4] = {};
        bool seen[4];
        load_page_keys<S>(thread, pages + buffer * bytes, page);
        score_dims<S>(thread, page, q, scores);
        add_parts_of_slot(thread, s, scores);
        see(thread, r.position + 1 - at * PAGE_TOKENS, seen);
        weigh<S>(state, seen, scores);
        load_shared_values<S>(thread, pages + buffer * bytes, page);
        add_values<S>(state, page, seen, scores);
        meet_slot(thread); // all have read the page
        if (requests)
            request(at + p.depth * S::slots, buffer);
        if (++buffer == p.depth) {
            buffer = 0;
            parity ^= 1;
        }
    }
    publish_slots<S>(thread, p, j, state, *(struct slot_sums *)shared);
}
#endif
