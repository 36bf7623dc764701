// sample.cu - draws a token per output row, and keeps the token history; see sample.h.
//
//   vocabulary:  | block 0 | block 1 | ... | block 31 |     grid: (32 parts of the vocabulary, output rows)
//                each finds its best logit and whether there is a NaN; the last block to arrive draws
//
// Greedy rows without penalties: the last block compares the blocks' results and reads no logit again. Other
// rows: candidates are ordered by a key of 64 bits, the logit's order above and the lowest id first below.
// Top-k, top-p and min-p are each a radix select: a descent through the key's bytes with a histogram of
// counts and weights. Weights are integers of 2^-40, so that the order of additions does not matter. No
// pipeline, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/sample/sample_cuda.h"

enum { DRAW_THREADS = SAMPLE_THREADS };

static __device__ __forceinline__ struct sample_part better(const struct sample_part &a,
                                                            const struct sample_part &b)
{
    bool second = b.any && (!a.any || b.logit > a.logit || (b.logit == a.logit && b.id < a.id));
    struct sample_part r = second ? b : a;
    r.invalid = a.invalid | b.invalid;
    r.any = a.any | b.any;
    return r;
}

static __device__ __forceinline__ struct sample_part look(f32 logit, u32 id)
{
    struct sample_part r;
    r.logit = logit;
    r.id = id;
    r.invalid = !(logit < __int_as_float(0x7f800000)); // NaN too
    r.any = logit > -__int_as_float(0x7f800000);
    return r;
}

static __device__ struct sample_part block_best(struct sample_part r)
{
    __shared__ struct sample_part room[32];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const struct sample_part none = { 0, ~0u, 0, 0 };

    for (u32 round = 0; round < 2; round++) {
        for (u32 o = 16; o; o >>= 1) {
            struct sample_part other;
            other.logit = __shfl_xor_sync(~0u, r.logit, o);
            other.id = __shfl_xor_sync(~0u, r.id, o);
            other.invalid = __shfl_xor_sync(~0u, r.invalid, o);
            other.any = __shfl_xor_sync(~0u, r.any, o);
            r = better(r, other);
        }
        if (round == 1)
            break;
        if (lane == 0)
            room[warp] = r;
        __syncthreads();
        r = lane < blockDim.x / 32 ? room[lane] : none;
    }
    __syncthreads();
    return r;
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

// This block's part of a row.
static __device__ struct sample_part scan(const struct sample_launch_params &p, u32 output)
{
    const f32 *logits = p.logits + (u64)output * p.args.n_tokens;
    struct sample_part best = { 0, ~0u, 0, 0 };

#pragma unroll 4
    for (u32 i = blockIdx.x * DRAW_THREADS + threadIdx.x; i < p.args.n_tokens;
         i += SAMPLE_PARTS * DRAW_THREADS)
        best = better(best, look(logits[i], i));
    return block_best(best);
}

// Is this block the last of its row's?
static __device__ bool arrives_last(const struct sample_launch_params &p, u32 output,
                                    const struct sample_part &part)
{
    bool last = false;

    if (threadIdx.x == 0) {
        p.parts[output * SAMPLE_PARTS + blockIdx.x] = part;
        __threadfence();
        last = atomicAdd(&p.arrived[output], 1) == SAMPLE_PARTS - 1;
        __threadfence();
        if (last)
            p.arrived[output] = 0;
    }
    return __syncthreads_or(last);
}

struct candidates { // of one row
    f32 *logits;
    u32 n;
    f32 top, min_p;
};

static __device__ __forceinline__ u64 key_of(f32 logit, u32 id)
{
    u32 bits = __float_as_uint(logit);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | ~id;
}
static __device__ __forceinline__ u64 weight_of(f32 logit, f32 top)
{
    return (u64)(expf(logit - top) * 1099511627776.0f); // 2^40
}

static __device__ const u32 *mask_of(const struct sample_launch_params &p, u32 output)
{
    return p.mask_bias + (u64)output * p.args.mask_bias_stride;
}

// Two biases may name one token.
static __device__ void add_biases(const struct sample_launch_params &p, const struct candidates &c,
                                  u32 output, u32 n_biases)
{
    const struct sample_bias *biases =
        (const struct sample_bias *)(mask_of(p, output) + sample_mask_words(c.n));

    for (u32 i = threadIdx.x; i < n_biases; i += DRAW_THREADS)
        if (biases[i].token < c.n)
            atomicAdd(&c.logits[biases[i].token], biases[i].bias);
    __syncthreads();
}

static __device__ void keep_allowed(const struct candidates &c, const u32 *mask)
{
    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS)
        if (!(mask[i >> 5] >> (i & 31) & 1))
            c.logits[i] = -__int_as_float(0x7f800000);
    __syncthreads();
}

// Copies the logits and applies biases and penalties: step 2 of sample.h.
static __device__ void penalise(const struct sample_launch_params &p, const struct candidates &c, u32 output,
                                const u32 *history, u32 position)
{
    // Another block writes the whole history too, but this one does not wait for it.
    write_history(p, step_slots(p.step)[step_outputs(p.step)[output]]);
    const struct sample_params *s = &step_samples(p.step)[output];
    const f32 *logits = p.logits + (u64)output * p.args.n_tokens;
    u32 *counts = (u32 *)(c.logits + 2 * (u64)c.n), n_seen = min(s->penalty_window, position + 1);
    const u32 *seen = history + position + 1 - n_seen;

    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS) {
        c.logits[i] = logits[i];
        counts[i] = 0;
    }
    __syncthreads();
    if (s->n_biases)
        add_biases(p, c, output, s->n_biases);
    if (s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0)
        return;
    for (u32 i = threadIdx.x; i < n_seen; i += DRAW_THREADS)
        if (seen[i] < c.n)
            atomicAdd(&counts[seen[i]], 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_seen; i += DRAW_THREADS) {
        u32 n = seen[i] < c.n ? atomicExch(&counts[seen[i]], 0) : 0;
        if (n == 0)
            continue; // another thread has this token
        f32 l = c.logits[seen[i]];
        l = l > 0 ? l / s->repeat_penalty : l * s->repeat_penalty;
        c.logits[seen[i]] = l - (s->presence_penalty + (f32)n * s->frequency_penalty);
    }
    __syncthreads();
}

struct goal {      // the last key, in falling order, that is taken
    u64 floor;     // only keys at or above it count
    u64 limit;     // stop at the first key with which the sum reaches this
    bool counting; // the sum of ones, or of weights
};

static __device__ __forceinline__ bool counts_for(const struct candidates &c, const struct goal &g, u32 i)
{
    f32 l = c.logits[i];
    return key_of(l, i) >= g.floor && (g.counting || l == c.top || expf(l - c.top) >= c.min_p);
}

// Byte by byte from the top: which value of the byte holds the key at which the sum in falling order reaches
// the limit? 0 when all keys together do not reach it.
static __device__ u64 descend(const struct candidates &c, const struct goal &g)
{
    __shared__ unsigned long long sums[256], prefix, left;

    if (threadIdx.x == 0) {
        prefix = 0;
        left = g.limit;
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (u32 i = threadIdx.x; i < 256; i += DRAW_THREADS)
            sums[i] = 0;
        __syncthreads();
        u64 above = shift == 56 ? 0 : ~0ull << (shift + 8), wanted = prefix;
        for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS) {
            u64 key = key_of(c.logits[i], i);
            if ((key & above) == wanted && counts_for(c, g, i))
                atomicAdd(&sums[key >> shift & 255],
                          (unsigned long long)(g.counting ? 1 : weight_of(c.logits[i], c.top)));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int byte = 255;
            while (byte > 0 && sums[byte] < left)
                left -= sums[byte--];
            prefix = wanted | (u64)byte << shift;
        }
        __syncthreads();
    }
    return prefix;
}

static __device__ u64 sum_weights(const struct candidates &c, const struct goal &g)
{
    __shared__ unsigned long long sum;
    u64 mine = 0;

    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS)
        if (counts_for(c, g, i))
            mine += weight_of(c.logits[i], c.top);
    atomicAdd(&sum, (unsigned long long)mine);
    __syncthreads();
    mine = sum;
    __syncthreads();
    return mine;
}

// Steps 3 to 5 of sample.h for a temperature above 0.
static __device__ u32 draw(struct candidates c, const struct sample_params *s, u32 position)
{
    struct sample_part best = { 0, ~0u, 0, 0 };
    struct goal g = { 0, 0, true };

    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS) {
        c.logits[i] /= s->temperature;
        best = better(best, look(c.logits[i], i));
    }
    best = block_best(best);
    if (!best.any)
        return STEP_TOKEN_INVALID;
    c.top = best.logit;
    c.min_p = 0;
    if (s->top_k && s->top_k < c.n) {
        g.limit = s->top_k;
        g.floor = descend(c, g);
    }
    g.counting = false;
    if (s->top_p < 1) {
        u64 total = sum_weights(c, g);
        g.limit = max((u64)1, (u64)((double)s->top_p * (double)total));
        g.floor = descend(c, g);
    }
    c.min_p = fmaxf(s->min_p, 1e-38f);
    u64 kept = sum_weights(c, g);
    g.limit = (u64)((double)sample_random(s->seed[0], s->seed[1], position) * (double)kept) + 1;
    return ~(u32)descend(c, g);
}

static __device__ __forceinline__ struct sample_part part_of(const uint4 &v)
{
    return { __uint_as_float(v.x), v.y, v.z, v.w };
}

static __device__ u32 choose(const struct sample_launch_params &p, u32 output, const u32 *history,
                             u32 position)
{
    const struct sample_params *s = &step_samples(p.step)[output];
    struct sample_part best = { 0, ~0u, 0, 0 };
    struct candidates c = { p.work + (u64)output * 3 * p.args.n_tokens, p.args.n_tokens, 0, 0 };

    if (threadIdx.x < SAMPLE_PARTS)
        best = part_of(__ldcg((const uint4 *)p.parts + output * SAMPLE_PARTS + threadIdx.x));
    best = block_best(best);
    if (best.invalid || !best.any)
        return STEP_TOKEN_INVALID;
    bool penalties = s->repeat_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    bool masked = s->flags & SAMPLE_MASKED;
    if (s->temperature == 0 && !penalties && !masked && !s->n_biases)
        return best.id;
    penalise(p, c, output, history, position);
    if (masked)
        keep_allowed(c, mask_of(p, output));
    if (s->temperature != 0)
        return draw(c, s, position);
    best.any = 0;
    for (u32 i = threadIdx.x; i < c.n; i += DRAW_THREADS)
        best = better(best, look(c.logits[i], i));
    best = block_best(best);
    return best.any ? best.id : STEP_TOKEN_INVALID;
}

extern "C" __global__ void __launch_bounds__(DRAW_THREADS)
    sample(const __grid_constant__ struct sample_launch_params p)
{
    u32 output = blockIdx.y, n_outputs = p.step->n_outputs, at = min(output, max(n_outputs, 1u) - 1);
    bool draws = output < n_outputs && !(step_samples(p.step)[at].flags & SAMPLE_SKIP);
    u32 row = step_outputs(p.step)[at], position = step_positions(p.step)[row] + p.args.ahead;
    u32 *history = p.history + (u64)step_slots(p.step)[row] * p.args.history_stride;

    wait_for_inputs();
    if (blockIdx.x == 0 && output == 0)
        write_history(p, ALL_SLOTS);
    if (!draws || !arrives_last(p, output, scan(p, output)))
        return;
    u32 id = choose(p, output, history, position);
    if (threadIdx.x > 0)
        return;
    p.results[output] = id;
    if (sample_tells_history(p.step, row, &p.args) && id != STEP_TOKEN_INVALID)
        history[position + 1] = id;
}
