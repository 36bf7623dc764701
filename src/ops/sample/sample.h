// sample: one token id per output row, and the log of tokens kept up to date.
//
// First every row's token goes to the log. Then for each output row with parameters p (step.h), from its logits l[0..n_tokens):
//   1. a NaN or infinity other than -inf anywhere: the result is STEP_TOKEN_INVALID.
//   2. penalties, for each token t seen n times among the last p.penalty_window tokens of the log, the row's own included:
//      l[t] = l[t] > 0 ? l[t] / repeat : l[t] * repeat;  l[t] -= presence + n * frequency
//   3. temperature 0: the largest l, ties to the lowest id. Else l /= temperature and probabilities are softmax(l).
//   4. keep the top_k most likely (ties to the lowest id); of these the fewest whose sum reaches top_p of theirs; of these those
//      with at least min_p times the probability of the best. At least one stays.
//   5. draw from what is left, in order of falling probability, with a random number that depends on (seed, position) alone:
//      Philox 4x32-10 (Salmon et al., 2011), key = seed, counter = position.
// The id goes to results[i], and to the log at position + 1. Rows with SAMPLE_SKIP are left out. logits are not changed.
#pragma once
#include "base/lang.h"

struct sample_args {
    u32 n_tokens;
    u32 log_stride;
};
STATIC_ASSERT(sizeof(struct sample_args) == 8);

enum { SAMPLE_LOGITS, SAMPLE_LOG, SAMPLE_WORK, SAMPLE_RESULTS };

// A number in [0, 1) with 24 bits, from (seed, position). Philox 4x32-10, first output word.
SHARED_INLINE f32 sample_random(u32 seed_low, u32 seed_high, u32 position)
{
    u32 c[4] = { position, 0, 0, 0 }, k0 = seed_low, k1 = seed_high;

    for (u32 round = 0; round < 10; round++) {
        u64 a = (u64)0xD2511F53u * c[0], b = (u64)0xCD9E8D57u * c[2];
        u32 next0 = (u32)(b >> 32) ^ c[1] ^ k0, next2 = (u32)(a >> 32) ^ c[3] ^ k1;
        c[1] = (u32)b;
        c[3] = (u32)a;
        c[0] = next0;
        c[2] = next2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (f32)(c[0] >> 8) * (1.0f / 16777216.0f);
}

#ifdef HOST_C
#include "device/tape.h"

struct sample {
    struct value logits;      // [outputs, n_tokens]
    const struct buffer *log; // [n_slots, log_stride] u32
    uint32_t log_stride;
    const struct buffer *results; // [max outputs] u32
};
void op_sample(struct tape *t, struct sample s);
#endif
