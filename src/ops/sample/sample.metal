// sample.metal - the operation as defined in sample.h, in two launches.
//
// sample_scan: up to 64 threadgroups a row look for the largest logit and for what must not be there.
// sample_draw: one threadgroup a row; for greedy rows without penalties it only compares the parts. Else
// candidates are ordered by a key of 64 bits, the logit's order above and the lowest id first below, and each
// limit is a descent through the key's bytes with a histogram of counts or weights: exact for any k. Weights
// are integers of 2^-36 in three digits of 12 bits, since threadgroups have no 64-bit atomic addition; a
// digit's sum over 2^20 tokens fits 32 bits. So the order of the additions does not matter. Numbers are
// judged by the bits that lie in memory: under fast math a compiler may take the result of arithmetic for
// finite.
#include "device/metal/msl.h"
#include "ops/sample/sample_metal.h"

#define BINS     256u
#define DIGITS   3u
#define COUNTERS (DIGITS + 2)

static u32 order_of(f32 logit) // rises with the logit
{
    u32 bits = as_type<u32>(logit);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static struct sample_part better(struct sample_part a, struct sample_part b)
{
    bool second = b.any && (!a.any || order_of(b.logit) > order_of(a.logit) ||
                            (order_of(b.logit) == order_of(a.logit) && b.id < a.id));
    struct sample_part r = second ? b : a;

    r.invalid = a.invalid | b.invalid;
    r.any = a.any | b.any;
    return r;
}

static struct sample_part look(f32 logit, u32 id)
{
    struct sample_part r;
    u32 bits = as_type<u32>(logit);

    r.logit = bits == 0x80000000u ? 0.0f : logit; // both zeros are equal
    r.id = id;
    r.invalid = (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u;
    r.any = bits != 0xff800000u;
    return r;
}

static struct sample_part part_none()
{
    struct sample_part r;

    r.logit = 0.0f;
    r.id = ~0u;
    r.invalid = r.any = 0;
    return r;
}

// The best of a threadgroup's, the same in every thread. room: 32.
static struct sample_part threadgroup_best(struct sample_part r, threadgroup struct sample_part *room,
                                           u32 thread_index, u32 n_threads)
{
    u32 lane = thread_index % 32;

    for (u32 round = 0; round < 2; round++) {
        for (u32 o = 16; o > 0; o /= 2) {
            struct sample_part other;
            other.logit = simd_shuffle_xor(r.logit, o);
            other.id = simd_shuffle_xor(r.id, o);
            other.invalid = simd_shuffle_xor(r.invalid, o);
            other.any = simd_shuffle_xor(r.any, o);
            r = better(r, other);
        }
        if (round == 1)
            break;
        if (lane == 0)
            room[thread_index / 32] = r;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        r = part_none();
        if (lane < n_threads / 32)
            r = room[lane];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return r;
}

// Grid: parts, outputs.
kernel void sample_scan(constant struct sample_metal_args &args [[buffer(0)]],
                        constant struct step &step [[buffer(1)]], device const f32 *logits [[buffer(2)]],
                        device u32 *history [[buffer(3)]], device struct sample_part *parts [[buffer(18)]],
                        uint3 at [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup struct sample_part room[32];
    u32 n = args.sample.n_tokens;
    struct sample_part best = part_none();

    if (at.x == 0 && at.y == 0)
        for (u32 r = thread_index; r < step.n_rows; r += SCAN_THREADS)
            if (step_tokens(&step)[r] != STEP_TOKEN_HISTORY &&
                step_positions(&step)[r] + args.sample.ahead < args.sample.history_stride)
                history[u64(step_slots(&step)[r]) * args.sample.history_stride + step_positions(&step)[r] +
                        args.sample.ahead] = step_tokens(&step)[r];
    if (at.y >= step.n_outputs)
        return;
    logits += u64(at.y) * n;
    for (u32 i = at.x * SCAN_THREADS + thread_index; i < n; i += args.n_parts * SCAN_THREADS)
        best = better(best, look(logits[i], i));
    best = threadgroup_best(best, room, thread_index, SCAN_THREADS);
    if (thread_index == 0)
        parts[at.y * args.n_parts + at.x] = best;
}

struct draw_room { // of the threadgroup
    threadgroup struct sample_part *parts;
    threadgroup atomic_uint *sums; // [DIGITS][BINS], then how many and the sum of their indices: [2][BINS]
    threadgroup ulong *found;      // prefix, what is left to the limit, whether the key is whole
    u32 thread_index;
};

struct candidates { // of one row
    device f32 *logits;
    u32 n;
    f32 top, min_p;
};

static u64 key_of(f32 logit, u32 id)
{
    return u64(order_of(look(logit, id).logit)) << 32 | u64(~id);
}
static u64 weight_of(f32 logit, f32 top)
{
    return u64(precise::exp(logit - top) * 68719476736.0f); // 2^36
}

struct past { // the window of the token history
    device const u32 *tokens;
    u32 n;
};

// The thread of a token's first bias adds all of them, in their order.
static void add_biases(thread const struct candidates &c, device const struct sample_bias *biases,
                       u32 n_biases, u32 thread_index)
{
    for (u32 mine = thread_index; mine < n_biases; mine += DRAW_THREADS) {
        u32 token = biases[mine].token;
        bool first = token < c.n;
        for (u32 i = 0; i < mine && first; i++)
            first = biases[i].token != token;
        for (u32 i = mine; i < n_biases && first; i++)
            if (biases[i].token == token)
                c.logits[token] += biases[i].bias;
    }
    threadgroup_barrier(mem_flags::mem_device);
}

static void penalise(thread const struct candidates &c, device atomic_uint *counts,
                     constant struct sample_params &s, thread const struct past &seen, u32 thread_index)
{
    for (u32 i = thread_index; i < seen.n; i += DRAW_THREADS)
        if (seen.tokens[i] < c.n)
            atomic_fetch_add_explicit(&counts[seen.tokens[i]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_device);
    for (u32 i = thread_index; i < seen.n; i += DRAW_THREADS) {
        u32 token = seen.tokens[i],
            n = token < c.n ? atomic_exchange_explicit(&counts[token], 0u, memory_order_relaxed) : 0;
        if (n == 0)
            continue; // another thread has this token
        f32 l = c.logits[token];
        l = l > 0.0f ? l / s.repeat_penalty : l * s.repeat_penalty;
        c.logits[token] = l - (s.presence_penalty + f32(n) * s.frequency_penalty);
    }
    threadgroup_barrier(mem_flags::mem_device);
}

static bool has_penalties(constant struct sample_params &s)
{
    return s.repeat_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f;
}

// Copies the logits and applies biases, penalties and mask: step 2 of sample.h. counts: [n]. mask_bias: the
// row's.
static void adjust(thread const struct candidates &c, device const f32 *logits, device atomic_uint *counts,
                   constant struct sample_params &s, device const u32 *mask_bias,
                   thread const struct past &seen, u32 thread_index)
{
    for (u32 i = thread_index; i < c.n; i += DRAW_THREADS) {
        c.logits[i] = logits[i];
        atomic_store_explicit(&counts[i], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_device);
    if (s.n_biases)
        add_biases(c, (device const struct sample_bias *)(mask_bias + sample_mask_words(c.n)), s.n_biases,
                   thread_index);
    if (has_penalties(s))
        penalise(c, counts, s, seen, thread_index);
    if (s.flags & SAMPLE_MASKED) {
        for (u32 i = thread_index; i < c.n; i += DRAW_THREADS)
            if (!(mask_bias[i / 32] >> i % 32 & 1u))
                c.logits[i] = as_type<f32>(0xff800000u); // -inf
        threadgroup_barrier(mem_flags::mem_device);
    }
}

struct goal {      // the last key, in falling order, that is taken
    u64 floor;     // only keys at or above it count
    u64 limit;     // stop at the first key with which the sum reaches this
    bool counting; // the sum of ones, or of weights
};

// What candidate i adds to the sum of the keys that share the prefix.
static u64 share_of(thread const struct candidates &c, thread const struct goal &g, u32 i, u64 above,
                    u64 prefix)
{
    f32 l = c.logits[i];
    u64 key = key_of(l, i);

    if ((key & above) != prefix || key < g.floor)
        return 0;
    if (g.counting)
        return 1;
    if (as_type<u32>(l) == 0xff800000u)
        return 0;
    return l == c.top || precise::exp(l - c.top) >= c.min_p ? weight_of(l, c.top) : 0;
}

static void digits_clear(thread const struct draw_room &room)
{
    for (u32 i = room.thread_index; i < COUNTERS * BINS; i += DRAW_THREADS)
        atomic_store_explicit(&room.sums[i], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
static void digits_add(thread const struct draw_room &room, u32 bin, u64 share)
{
    for (u32 i = 0; i < DIGITS; i++) {
        u32 digit = u32(share >> (12 * i)) & (i + 1 < DIGITS ? 4095u : ~0u);
        if (digit)
            atomic_fetch_add_explicit(&room.sums[i * BINS + bin], digit, memory_order_relaxed);
    }
}
// The same by a whole simdgroup, whose lanes often have one bin: its digits are summed first, since additions
// to one place wait for each other. Lanes may have sums of many candidates: 32 times 2^23 fit a digit.
static void digits_add_together(thread const struct draw_room &room, u32 bin, u64 share)
{
    for (u32 first = simd_max(share ? bin + 1 : 0); first > 0; first = simd_max(share ? bin + 1 : 0)) {
        bool mine = share && bin + 1 == first;
        for (u32 i = 0; i < DIGITS; i++) {
            u32 digit = simd_sum(mine ? u32(share >> (12 * i)) & (i + 1 < DIGITS ? 4095u : ~0u) : 0);
            if (digit && room.thread_index % 32 == 0)
                atomic_fetch_add_explicit(&room.sums[i * BINS + first - 1], digit, memory_order_relaxed);
        }
        share = mine ? 0 : share;
    }
}
// Where one candidate alone is in the bin, its index is the sum.
static void count_add(thread const struct draw_room &room, u32 bin, u32 i)
{
    atomic_fetch_add_explicit(&room.sums[DIGITS * BINS + bin], 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&room.sums[(DIGITS + 1) * BINS + bin], i, memory_order_relaxed);
}
static u64 digits_sum(thread const struct draw_room &room, u32 bin)
{
    u64 sum = 0;

    for (u32 i = 0; i < DIGITS; i++)
        sum += u64(atomic_load_explicit(&room.sums[i * BINS + bin], memory_order_relaxed)) << (12 * i);
    return sum;
}

// One byte of the keys that share a prefix: what each adds, in its bin.
static void bytes_add(thread const struct candidates &c, thread const struct goal &g,
                      thread const struct draw_room &room, u32 shift, u64 prefix)
{
    u64 above = shift == 56 ? 0 : ~u64(0) << (shift + 8);

    digits_clear(room);
    for (u32 first = 0; first < c.n; first += DRAW_THREADS) {
        u32 i = first + room.thread_index, bin = 0;
        u64 share = 0;
        if (i < c.n) {
            share = share_of(c, g, i, above, prefix);
            bin = u32(key_of(c.logits[i], i) >> shift) & 255u;
        }
        if (shift == 56) // a sign and most of an exponent: a few bins have nearly all
            digits_add_together(room, bin, share);
        else if (share)
            digits_add(room, bin, share);
        if (shift == 32 && share)
            count_add(room, bin, i);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Byte by byte from the top: which value of the byte holds the key at which the sum in falling order reaches
// the limit? All zeros where all keys together do not reach it. After four bytes the logit is known, and
// mostly one candidate has it: then its index is known too, and the four bytes of it need no pass.
static u64 descend(thread const struct candidates &c, thread const struct goal &g,
                   thread const struct draw_room &room)
{
    u64 prefix = 0, left = g.limit;

    for (u32 shift = 64; shift > 0;) {
        shift -= 8;
        bytes_add(c, g, room, shift, prefix);
        if (room.thread_index == 0) {
            u32 byte = 255;
            while (byte > 0 && digits_sum(room, byte) < left)
                left -= digits_sum(room, byte--);
            room.found[0] = prefix | u64(byte) << shift;
            room.found[1] = left;
            room.found[2] = 0;
            if (shift == 32 && digits_sum(room, byte) >= left &&
                atomic_load_explicit(&room.sums[DIGITS * BINS + byte], memory_order_relaxed) == 1) {
                u32 i = atomic_load_explicit(&room.sums[(DIGITS + 1) * BINS + byte], memory_order_relaxed);
                room.found[0] |= u64(~i) & 0xffffffffu;
                room.found[2] = 1;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        prefix = room.found[0];
        left = room.found[1];
        if (room.found[2])
            break;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return prefix;
}

static u64 sum_weights(thread const struct candidates &c, thread const struct goal &g,
                       thread const struct draw_room &room)
{
    u64 mine = 0;

    digits_clear(room);
    for (u32 i = room.thread_index; i < c.n; i += DRAW_THREADS)
        mine += share_of(c, g, i, 0, 0);
    digits_add_together(room, 0, mine);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    u64 sum = digits_sum(room, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return sum;
}

// floor(fraction * sum), the fraction in 24 bits.
static u64 part_of(f32 fraction, u64 sum)
{
    u64 f = u64(fraction * 16777216.0f);
    return (sum >> 24) * f + ((sum & 0xffffffu) * f >> 24);
}

enum { LIMIT_TOP_K, LIMIT_TOP_P, LIMIT_DRAWN };

// Steps 3 to 5 of sample.h for a temperature above 0.
static u32 draw(struct candidates c, constant struct sample_params &s, u32 position,
                thread const struct draw_room &room)
{
    struct sample_part best = part_none();
    struct goal g = { 0, 0, true };

    for (u32 i = room.thread_index; i < c.n; i += DRAW_THREADS) {
        f32 l = c.logits[i]; // judged before the division: see above
        best = better(best, look(l, i));
        c.logits[i] = as_type<u32>(l) == 0xff800000u ? l : l / s.temperature;
    }
    threadgroup_barrier(mem_flags::mem_device);
    best = threadgroup_best(best, room.parts, room.thread_index, DRAW_THREADS);
    if (!best.any)
        return STEP_TOKEN_INVALID;
    c.top = c.logits[best.id];
    c.min_p = 0.0f;
    // One descent in the code for the three limits, which are top_k, top_p and the drawn number: each copy
    // costs registers.
    u64 key = 0;
    for (u32 limit = LIMIT_TOP_K; limit <= LIMIT_DRAWN; limit++) {
        if ((limit == LIMIT_TOP_K && (s.top_k == 0 || s.top_k >= c.n)) ||
            (limit == LIMIT_TOP_P && s.top_p >= 1.0f))
            continue;
        c.min_p = limit == LIMIT_DRAWN ? max(s.min_p, 1e-37f) : 0.0f;
        g.floor = key;
        g.counting = limit == LIMIT_TOP_K;
        g.limit = s.top_k;
        if (limit != LIMIT_TOP_K) {
            u64 part = part_of(limit == LIMIT_TOP_P ? s.top_p : sample_random(s.seed[0], s.seed[1], position),
                               sum_weights(c, g, room));
            g.limit = limit == LIMIT_TOP_P ? max(u64(1), part) : part + 1;
        }
        key = descend(c, g, room);
    }
    return ~u32(key);
}

static u32 choose(thread struct candidates &c, constant struct sample_params &s, device const f32 *logits,
                  device const u32 *mask_bias, thread const struct past &seen, u32 position,
                  struct sample_part best, thread const struct draw_room &room)
{
    if (best.invalid || !best.any)
        return STEP_TOKEN_INVALID;
    if (s.temperature == 0.0f && !has_penalties(s) && !s.n_biases && !(s.flags & SAMPLE_MASKED))
        return best.id;
    adjust(c, logits, (device atomic_uint *)(c.logits + 2 * u64(c.n)), s, mask_bias, seen, room.thread_index);
    if (s.temperature != 0.0f)
        return draw(c, s, position, room);
    best = part_none();
    for (u32 i = room.thread_index; i < c.n; i += DRAW_THREADS)
        best = better(best, look(c.logits[i], i));
    best = threadgroup_best(best, room.parts, room.thread_index, DRAW_THREADS);
    return best.any ? best.id : STEP_TOKEN_INVALID;
}

// Grid: outputs.
[[max_total_threads_per_threadgroup(DRAW_THREADS)]] kernel void
sample_draw(constant struct sample_metal_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
            device const f32 *logits [[buffer(2)]], device u32 *history [[buffer(3)]],
            device f32 *work [[buffer(4)]], device u32 *results [[buffer(5)]],
            device const u32 *mask_bias [[buffer(6)]], device const struct sample_part *parts [[buffer(18)]],
            uint3 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup struct sample_part best_room[32];
    threadgroup atomic_uint sums[COUNTERS * BINS];
    threadgroup ulong found[3];
    struct draw_room room = { best_room, sums, found, thread_index };
    u32 output = at.x, n = args.sample.n_tokens;

    if (output >= step.n_outputs)
        return;
    constant struct sample_params &s = step_samples(&step)[output];
    if (s.flags & SAMPLE_SKIP)
        return;
    u32 row = step_outputs(&step)[output], position = step_positions(&step)[row] + args.sample.ahead;
    struct candidates c = { work + u64(output) * 3 * n, n, 0.0f, 0.0f };
    struct sample_part best = part_none();
    history += u64(step_slots(&step)[row]) * args.sample.history_stride;
    u32 n_seen = min(s.penalty_window, position + 1);
    struct past seen = { history + position + 1 - n_seen, n_seen };
    mask_bias += u64(output) * args.sample.mask_bias_stride;
    if (thread_index < args.n_parts)
        best = parts[output * args.n_parts + thread_index];
    best = threadgroup_best(best, best_room, thread_index, DRAW_THREADS);
    u32 id = choose(c, s, logits + u64(output) * n, mask_bias, seen, position, best, room);
    if (thread_index > 0)
        return;
    results[step.results_at + output] = id;
    if (sample_tells_history(&step, row, &args.sample) && id != STEP_TOKEN_INVALID)
        history[position + 1] = id;
}
