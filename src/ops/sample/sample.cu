// sample.cu - draws a token per output row, and keeps the token history; see sample.h.
//
//   vocabulary:  | block 0 | block 1 | ... | block 31 |     grid: (up to 32 parts, output rows)
//                each finds its best logit and whether there is a NaN, and keeps what may be among the
//                row's top k; the last block awaits them and draws
//
// Greedy rows without penalties: the last block compares the blocks' results and reads no logit again. A
// result is one word, which is also the sign that it has come, so that nothing waits for a counter. Rows with
// top-k alone: it reads what the blocks have kept. Rows whose logits are altered, or with a large k or none:
// it reads all logits twice. Candidates are ordered by a key of 64 bits, the logit's order above and the
// lowest id first below. Top-k, top-p and the draw are each a select: sums of ones or weights in bins, first
// of 1/32 of a logit, then by the key's bytes. Behind the first bins only the candidates that still matter
// are read; as soon as each has a thread of its own, they are ranked at once, without bins and bytes. Weights
// are integers of 2^-40, so that the order of additions does not matter. No epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/sample/sample_cuda.h"

enum { DRAW_THREADS = SAMPLE_THREADS };

// A candidate as a number: the largest is the best, the lowest id among equals.
static __device__ __forceinline__ u64 key_of(f32 logit, u32 id)
{
    u32 bits = __float_as_uint(logit);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | ~id;
}
static __device__ __forceinline__ f32 logit_of(u64 key)
{
    u32 bits = (u32)(key >> 32);
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// The best of candidates, where one that is NaN or infinite is above all: a key, or 0 of none.
enum { KEY_OF_MINUS_INFINITY = 0x007fffff }; // its upper half
static __device__ __forceinline__ bool is_invalid(u64 best)
{
    return best == ~0ull;
}
static __device__ __forceinline__ bool is_any(u64 best) // above -infinity
{
    return best >> 32 > KEY_OF_MINUS_INFINITY;
}
static __device__ __forceinline__ u64 better(u64 best, f32 logit, u32 id)
{
    u64 key = logit < __int_as_float(0x7f800000) ? key_of(logit + 0.0f, id) : ~0ull; // -0 and 0 are equal
    return key > best ? key : best;
}

static __device__ __forceinline__ u64 warp_best(u64 key)
{
    u32 high = __reduce_max_sync(~0u, (u32)(key >> 32)),
        low = __reduce_max_sync(~0u, (u32)(key >> 32) == high ? (u32)key : 0);
    return (u64)high << 32 | low;
}

static __device__ __noinline__ u64 block_best(u64 key) // one for all who call it: it is there already then
{
    __shared__ u64 room[DRAW_THREADS / 32];

    key = warp_best(key);
    if ((threadIdx.x & 31) == 0)
        room[threadIdx.x >> 5] = key;
    __syncthreads();
    key = warp_best(room[threadIdx.x & 31]);
    __syncthreads();
    return key;
}

// Writes the step's tokens to the history: those of one slot, or all of them.
enum { ALL_SLOTS = ~0u };
static __device__ void write_history(const struct sample_launch_params &p, u32 slot)
{
    for (u32 r = threadIdx.x; r < p.step->n_rows; r += DRAW_THREADS) {
        u32 own = step_slots(p.step)[r], position = step_positions(p.step)[r] + p.args.ahead;
        if (step_tokens(p.step)[r] != STEP_TOKEN_HISTORY && (slot == ALL_SLOTS || slot == own) &&
            position < p.args.history_stride)
            p.history[(u64)own * p.args.history_stride + position] = step_tokens(p.step)[r];
    }
}

struct candidates { // of one row
    const f32 *logits;
    const u32 *ids; // NULL: first, first + 1, ...
    u32 first, n;
    f32 temperature, top, min_p; // top: the best logit, divided by the temperature
    f32 *room;                   // for as many logits, then ids; or NULL
};

// This block's part of a row.
static __device__ struct candidates part_of_row(const struct sample_launch_params &p, u32 output)
{
    u32 n = p.args.n_tokens, size = (n + gridDim.x - 1) / gridDim.x, first = min(blockIdx.x * size, n);
    return { p.logits + (u64)output * n + first, NULL, first, min(size, n - first), 1, 0, 0, NULL };
}

static __device__ u64 scan(const struct candidates &c)
{
    u64 best = 0;

#pragma unroll 4
    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS)
        best = better(best, c.logits[i], c.first + i);
    return block_best(best);
}

// Hands on this part's best, and whatever the block has kept before. True in the block that draws: the last
// of the row, which begins when all others have begun; on the emulator, whose blocks come one after the other
// in any order, the one that comes last. Then *best is the row's.
static __device__ bool gathers(const struct sample_launch_params &p, u32 output, bool keeps, u64 *best)
{
    volatile u64 *parts = p.parts + output * SAMPLE_PARTS, *mine = parts + threadIdx.x;
    bool has = threadIdx.x < gridDim.x;
    u64 key = 0;

    if (threadIdx.x == 0) {
        if (keeps)
            __threadfence();
        parts[blockIdx.x] = *best ? *best : 1; // 1 is below all keys
    }
#ifdef CUDA_EMULATED
    __syncthreads();
    if (!__syncthreads_and(!has || *mine))
        return false;
#else
    if (blockIdx.x < gridDim.x - 1)
        return false;
#endif
    while (has && !key)
        key = *mine;
    if (has)
        *mine = 0;
    if (keeps)
        __threadfence();
    *best = block_best(key);
    return true;
}

static __device__ const u32 *mask_of(const struct sample_launch_params &p, u32 output)
{
    return p.mask_bias + (u64)output * p.args.mask_bias_stride;
}

// Two biases may name one token.
static __device__ void add_biases(const struct sample_launch_params &p, f32 *logits, u32 output, u32 n_biases)
{
    const struct sample_bias *biases =
        (const struct sample_bias *)(mask_of(p, output) + sample_mask_words(p.args.n_tokens));

    for (u32 i = threadIdx.x; i < n_biases; i += DRAW_THREADS)
        if (biases[i].token < p.args.n_tokens)
            atomicAdd(&logits[biases[i].token], biases[i].bias);
    __syncthreads();
}

static __device__ void keep_allowed(f32 *logits, u32 n, const u32 *mask)
{
    for (u32 i = threadIdx.x; i < n; i += DRAW_THREADS)
        if (!(mask[i >> 5] >> (i & 31) & 1))
            logits[i] = -__int_as_float(0x7f800000);
    __syncthreads();
}

// Copies the logits and applies biases and penalties: step 2 of sample.h.
static __device__ void penalise(const struct sample_launch_params &p, f32 *altered, u32 output,
                                const u32 *history, u32 position)
{
    // Another block writes the whole history too, but this one does not wait for it.
    write_history(p, step_slots(p.step)[step_outputs(p.step)[output]]);
    const struct sample_params *s = &step_samples(p.step)[output];
    const f32 *logits = p.logits + (u64)output * p.args.n_tokens;
    u32 n = p.args.n_tokens, n_seen = min(s->penalty_window, position + 1);
    u32 *counts = (u32 *)altered + 2 * (u64)n;
    const u32 *seen = history + position + 1 - n_seen;

    for (u32 i = threadIdx.x; i < n; i += DRAW_THREADS) {
        altered[i] = logits[i];
        counts[i] = 0;
    }
    __syncthreads();
    if (s->n_biases)
        add_biases(p, altered, output, s->n_biases);
    if (s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0)
        return;
    for (u32 i = threadIdx.x; i < n_seen; i += DRAW_THREADS)
        if (seen[i] < n)
            atomicAdd(&counts[seen[i]], 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_seen; i += DRAW_THREADS) {
        u32 times = seen[i] < n ? atomicExch(&counts[seen[i]], 0) : 0;
        if (times == 0)
            continue; // another thread has this token
        f32 l = altered[seen[i]];
        l = l > 0 ? l / s->repeat_penalty : l * s->repeat_penalty;
        altered[seen[i]] = l - (s->presence_penalty + (f32)times * s->frequency_penalty);
    }
    __syncthreads();
}

// Which candidates count, and at which key, in falling order, their sum reaches its limit: k ones, or a share
// of all weights.
enum cut { CUT_TOP_K, CUT_TOP_P, CUT_DRAW };
struct goal {
    enum cut cut;
    u32 k;
    f32 share;
    u64 floor; // only keys at or above it count
};

// 64-bit sums as two halves: shared memory adds 32 bits by itself, and 64 by compare-and-swap in a loop
// (NVIDIA's Maxwell tuning guide).
enum { DRAW_BINS = DRAW_THREADS, DRAW_DIGITS = 256, DRAW_LOADS = 2, NO_ID = ~0u };
struct tally {
    u32 low[DRAW_BINS], high[DRAW_BINS];
};
struct tally_place {
    u32 bin;
    u64 left; // of the limit, when the bins before are taken
};

// Bins of 1/32 in falling order; the last one has all the rest, whose weights are 0. Unlike the keys' first
// byte, which is the same for most logits, they keep the lanes of a warp apart.
static __device__ __forceinline__ u32 bin_of(const struct candidates &c, f32 logit)
{
    return (u32)fminf((c.top - logit) * 32, DRAW_BINS - 1);
}

// What a candidate adds to the sum; weights are integers of 2^-40.
static __device__ __forceinline__ u64 share_of(const struct candidates &c, const struct goal &g, f32 logit,
                                               u32 id)
{
    if (id == NO_ID || key_of(logit, id) < g.floor)
        return 0;
    if (g.cut == CUT_TOP_K)
        return 1;
    f32 weight = expf(logit - c.top);
    return g.cut == CUT_DRAW && logit != c.top && !(weight >= c.min_p) ? 0 : (u64)(weight * 1099511627776.0f);
}

// Whole warps, with NO_ID behind the last candidate. The loads of a few turns are under way together.
template <class F> static __device__ __forceinline__ void each_candidate(const struct candidates &c, F f)
{
    for (u32 first = 0; first < c.n; first += DRAW_LOADS * DRAW_THREADS) {
        f32 logits[DRAW_LOADS];
        u32 ids[DRAW_LOADS];
#pragma unroll
        for (u32 k = 0; k < DRAW_LOADS; k++) {
            u32 i = first + k * DRAW_THREADS + threadIdx.x;
            logits[k] = i < c.n ? __ldcg(c.logits + i) : 0; // other blocks may have written it
            ids[k] = i >= c.n ? NO_ID : c.ids ? __ldcg(c.ids + i) : c.first + i;
        }
#pragma unroll
        for (u32 k = 0; k < DRAW_LOADS; k++)
            if (first + k * DRAW_THREADS < c.n)
                f(logits[k] / c.temperature, ids[k]);
    }
}

static __device__ __forceinline__ u64 warp_sum_u64(u64 v)
{
#pragma unroll
    for (u32 o = 16; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// Adds each lane's number to its bin; where all are of one bin, their sum.
static __device__ __forceinline__ void tally_add(struct tally &t, u32 bin, u64 v)
{
    u32 adding = __ballot_sync(~0u, v != 0);

    if (adding == 0)
        return;
    u32 first = (u32)__ffs((int)adding) - 1, common = __shfl_sync(~0u, bin, first);
    if (__all_sync(~0u, v == 0 || bin == common)) {
        v = warp_sum_u64(v);
        v = (threadIdx.x & 31) == first ? v : 0;
    }
    if (v == 0)
        return;
    u32 low = (u32)v, high = (u32)(v >> 32);
    high += atomicAdd(&t.low[bin], low) + low < low; // the carry
    if (high)
        atomicAdd(&t.high[bin], high);
}

static __device__ __forceinline__ u64 warp_prefix(u64 v)
{
#pragma unroll
    for (u32 o = 1; o < 32; o <<= 1) {
        u64 before = __shfl_up_sync(~0u, v, o);
        v += (threadIdx.x & 31) >= o ? before : 0;
    }
    return v;
}

// The sum at which the goal is reached.
static __device__ __forceinline__ u64 limit_of(const struct goal &g, u64 total)
{
    return g.cut == CUT_TOP_K   ? g.k
           : g.cut == CUT_TOP_P ? max((u64)1, (u64)((double)g.share * (double)total))
                                : (u64)((double)g.share * (double)total) + 1;
}

// The first thread with which the sum of all threads' numbers reaches `limit`, or the goal's when that is 0;
// else the last.
static __device__ struct tally_place reach(u64 mine, const struct goal &g, u64 limit)
{
    __shared__ u64 warps[DRAW_THREADS / 32];
    __shared__ struct tally_place found;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    u64 up_to = warp_prefix(mine);
    if (lane == 31)
        warps[warp] = up_to;
    __syncthreads();
    u64 before = warp_prefix(warps[lane]), total = __shfl_sync(~0u, before, 31);
    before = __shfl_sync(~0u, before, (warp + 31) & 31);
    up_to += warp > 0 ? before : 0;
    limit = limit ? limit : limit_of(g, total);
    if (up_to - mine < limit && (up_to >= limit || threadIdx.x == DRAW_THREADS - 1))
        found = { threadIdx.x, limit - (up_to - mine) };
    __syncthreads();
    return found;
}

// The same of the bins, of which a thread has one. Clears the tally.
static __device__ struct tally_place tally_find(struct tally &t, const struct goal &g, u64 limit)
{
    __syncthreads();
    u64 mine = (u64)t.high[threadIdx.x] << 32 | t.low[threadIdx.x];
    t.low[threadIdx.x] = t.high[threadIdx.x] = 0;
    return reach(mine, g, limit);
}

// Appends the candidates of the bin, and of those before it where they stay too, to logits and ids, of which
// there are *n.
static __device__ void gather(const struct candidates &c, u32 bin, bool before, f32 *logits, u32 *ids, u32 *n)
{
    u32 lane = threadIdx.x & 31;

    each_candidate(c, [&](f32 logit, u32 id) {
        bool stays = id != NO_ID && (bin_of(c, logit) == bin || (before && bin_of(c, logit) < bin));
        u32 staying = __ballot_sync(~0u, stays), at = 0;
        if (lane == 0 && staying)
            at = atomicAdd(n, (u32)__popc(staying));
        at = __shfl_sync(~0u, at, 0) + (u32)__popc(staying & ((1u << lane) - 1));
        if (stays) {
            logits[at] = logit;
            ids[at] = id;
        }
    });
    __syncthreads();
}

// Those that still matter, in the room.
static __device__ struct candidates narrow(const struct candidates &c, u32 bin, bool before)
{
    __shared__ u32 n;
    u32 *ids = (u32 *)c.room + c.n;

    if (threadIdx.x == 0)
        n = 0;
    __syncthreads();
    gather(c, bin, before, c.room, ids, &n);
    return { c.room, ids, 0, n, 1, c.top, c.min_p, NULL };
}

// The bin with which the goal is reached; what no other bin holds is in the last one, uncounted.
static __device__ struct tally_place first_bin(struct tally &t, const struct candidates &c,
                                               const struct goal &g)
{
    each_candidate(c, [&](f32 logit, u32 id) {
        u32 bin = bin_of(c, logit);
        tally_add(t, bin, bin < DRAW_BINS - 1 ? share_of(c, g, logit, id) : 0);
    });
    return tally_find(t, g, 0);
}

// Returns the key at which the prefix sum over one bin's candidates, or all, in falling order, reaches
// `limit`; 0: the goal's limit. At most DRAW_THREADS candidates: each thread ranks one among all.
enum { ANY_BIN = ~0u };
static __device__ u64 rank(const struct candidates &c, const struct goal &g, u32 bin, u64 limit)
{
    __shared__ u64 keys[DRAW_THREADS];
    u32 n = c.n, place = 0;
    u64 key = 0, share = 0;

    each_candidate(c, [&](f32 logit, u32 id) { key = id == NO_ID ? 0 : key_of(logit, id); });
    keys[threadIdx.x] = key;
    __syncthreads();
    if (threadIdx.x < n)
#pragma unroll 8
        for (u32 i = 0; i < n; i++)
            place += keys[i] > key;
    __syncthreads();
    if (threadIdx.x < n)
        keys[place] = key;
    __syncthreads();
    key = keys[threadIdx.x];
    f32 logit = logit_of(key);
    if (threadIdx.x < n && (bin == ANY_BIN || bin_of(c, logit) == bin))
        share = share_of(c, g, logit, ~(u32)key);
    key = keys[min(reach(share, g, limit).bin, n - 1)];
    __syncthreads();
    return key;
}

// The key with which the goal is reached. First its bin, then byte by byte from the top. The first descent of
// a row reads what there is twice and leaves few candidates; what follows reads those alone.
static __device__ u64 descend(struct tally &t, struct candidates &c, const struct goal &g)
{
    struct tally_place place = { ANY_BIN, 0 };
    u64 prefix = 0;

    if (c.n > DRAW_THREADS)
        place = first_bin(t, c, g);
    u32 bin = place.bin;
    if (c.n > DRAW_THREADS && c.room)
        c = narrow(c, bin, g.cut != CUT_DRAW);
    if (c.n <= DRAW_THREADS)
        return rank(c, g, bin, place.left);
    for (int shift = 56; shift >= 0; shift -= 8) {
        u64 above = shift == 56 ? 0 : ~0ull << (shift + 8);
        each_candidate(c, [&](f32 logit, u32 id) {
            u64 key = key_of(logit, id);
            bool counts = (key & above) == prefix && bin_of(c, logit) == bin;
            tally_add(t, DRAW_DIGITS - 1 - (u32)(key >> shift & 255), counts ? share_of(c, g, logit, id) : 0);
        });
        place = tally_find(t, g, place.left);
        prefix |= (u64)(DRAW_DIGITS - 1 - min(place.bin, DRAW_DIGITS - 1u)) << shift;
    }
    return prefix;
}

static __device__ bool is_altered(const struct sample_params *s)
{
    return s->repeat_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0 || s->n_biases ||
           s->flags & SAMPLE_MASKED;
}

// Does the row draw from its top k logits, as they are? Many would be kept in each part.
enum { MOST_KEPT = 256 };
static __device__ bool keeps_parts(const struct sample_params *s)
{
    return s->temperature != 0 && s->top_k > 0 && s->top_k <= MOST_KEPT && !is_altered(s);
}

// Whatever of this part may be among the row's top k: all bins up to the one with which the part has as many.
static __device__ void keep(const struct sample_launch_params &p, u32 output, struct tally &t,
                            const struct sample_params *s, struct candidates part, f32 best)
{
    struct goal g = { CUT_TOP_K, s->top_k, 0, 0 };
    f32 *room = p.work + (u64)output * 3 * p.args.n_tokens;

    part.temperature = s->temperature;
    part.top = best / s->temperature;
    gather(part, first_bin(t, part, g).bin, true, room, (u32 *)room + p.args.n_tokens, &p.kept[output]);
}

static __device__ struct candidates kept(const struct sample_launch_params &p, u32 output)
{
    u32 n = p.args.n_tokens, n_kept = __ldcg(&p.kept[output]);
    f32 *room = p.work + (u64)output * 3 * n;
    return { room, (const u32 *)room + n, 0, n_kept, 1, 0, 0, n_kept <= n / 2 ? room + 2 * (u64)n : NULL };
}

// Steps 3 to 5 of sample.h for a temperature above 0. best: the best logit.
static __device__ u32 draw(struct tally &t, struct candidates c, f32 best, const struct sample_params *s,
                           u32 position)
{
    c.top = best / s->temperature; // division keeps the order
    c.min_p = fmaxf(s->min_p, 1e-38f);
    struct goal g = { CUT_TOP_K, s->top_k, s->top_p, 0 };
#pragma unroll 1 // one descent in the code
    for (u32 cut = CUT_TOP_K; cut <= CUT_DRAW; cut++) {
        if ((cut == CUT_TOP_K && (s->top_k == 0 || s->top_k >= c.n)) || (cut == CUT_TOP_P && s->top_p >= 1))
            continue;
        g.cut = (enum cut)cut;
        if (cut == CUT_DRAW)
            g.share = sample_random(s->seed[0], s->seed[1], position);
        g.floor = descend(t, c, g);
    }
    return ~(u32)g.floor;
}

// The row's logits after step 2 of sample.h, and the best of them. The work memory has room for them, then
// for the counts of penalties, and later for the candidates that matter.
static __device__ u64 alter(const struct sample_launch_params &p, f32 *altered, u32 output,
                            const u32 *history, u32 position)
{
    u64 best = 0;

    penalise(p, altered, output, history, position);
    if (step_samples(p.step)[output].flags & SAMPLE_MASKED)
        keep_allowed(altered, p.args.n_tokens, mask_of(p, output));
    for (u32 i = threadIdx.x; i < p.args.n_tokens; i += DRAW_THREADS)
        best = better(best, altered[i], i);
    return block_best(best);
}

static __device__ u32 choose(const struct sample_launch_params &p, u32 output, struct tally &t,
                             const struct sample_params *s, const u32 *history, u32 position, u64 best)
{
    u64 n = p.args.n_tokens;
    f32 *work = p.work + output * 3 * n;
    struct candidates c = { p.logits + output * n, NULL, 0, p.args.n_tokens, s->temperature, 0, 0, work + n };

    if (is_invalid(best) || !is_any(best))
        return STEP_TOKEN_INVALID;
    if (is_altered(s)) {
        best = alter(p, work, output, history, position);
        c.logits = work;
    } else if (keeps_parts(s)) {
        c = kept(p, output);
    }
    return !is_any(best)         ? STEP_TOKEN_INVALID
           : s->temperature != 0 ? draw(t, c, logit_of(best), s, position)
                                 : ~(u32)best;
}

extern "C" __global__ void __launch_bounds__(DRAW_THREADS, 2)
    sample(const __grid_constant__ struct sample_launch_params p)
{
    __shared__ struct tally t;
    __shared__ struct sample_params s;
    u32 output = blockIdx.y, n_outputs = p.step->n_outputs, at = min(output, max(n_outputs, 1u) - 1);
    bool draws = output < n_outputs && !(step_samples(p.step)[at].flags & SAMPLE_SKIP);
    u32 row = step_outputs(p.step)[at], position = step_positions(p.step)[row] + p.args.ahead;
    u32 *history = p.history + (u64)step_slots(p.step)[row] * p.args.history_stride;

    t.low[threadIdx.x] = t.high[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s = step_samples(p.step)[at];
    wait_for_inputs();
    if (blockIdx.x == 0 && output == 0)
        write_history(p, ALL_SLOTS);
    if (!draws)
        return;
    struct candidates part = part_of_row(p, output);
    u64 best = scan(part);
    bool keeps = keeps_parts(&s);
    if (keeps && is_any(best) && !is_invalid(best))
        keep(p, output, t, &s, part, logit_of(best));
    if (!gathers(p, output, keeps, &best))
        return;
    bool is_greedy = s.temperature == 0 && !is_altered(&s) && is_any(best) && !is_invalid(best);
    u32 id = is_greedy ? ~(u32)best : choose(p, output, t, &s, history, position, best);
    if (threadIdx.x > 0)
        return;
    p.kept[output] = 0;
    p.results[p.step->results_at + output] = id;
    if (sample_tells_history(p.step, row, &p.args) && id != STEP_TOKEN_INVALID)
        history[position + 1] = id;
}
