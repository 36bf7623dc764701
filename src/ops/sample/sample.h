// sample: draws one token id per output row, and keeps the token history up to date.
//
// First every row's token is written to the history. A row's position here is the step's plus `ahead`, which
// is 0, but 1 for a layer that drafts: its rows are given the token behind their own (models/draft). Then for
// each output row with parameters p (step.h), from its logits l[0..n_tokens):
//   1. A NaN or +infinity anywhere: the result is STEP_TOKEN_INVALID.
//   2. l[t] += bias for each of the row's p.n_biases biases (t, bias). Then penalties, for each token t seen
//      n times among the last p.penalty_window tokens of the history, the row's own included:
//      l[t] = l[t] > 0 ? l[t] / repeat : l[t] * repeat;  l[t] -= presence + n * frequency
//      With SAMPLE_MASKED, l[t] = -inf for each token whose mask bit is 0. Nothing above -inf:
//      STEP_TOKEN_INVALID.
//   3. Temperature 0: the largest l, ties to the lowest id. Else l /= temperature, and probabilities are
//      softmax(l).
//   4. Keep the top_k most likely (ties to the lowest id); of these the fewest whose sum reaches top_p of
//      their total; of these the ones with at least min_p times the best probability. At least one stays.
//   5. Draw from what is left, in order of falling probability, with a random number that depends on
//      (seed, position) alone: Philox 4x32-10 (Salmon et al., 2011), key = seed, counter = position.
// The id goes to results[step.results_at + i], and to the history at position + 1 unless the next row of the
// step stands there: its token was drafted, and stays. Rows with SAMPLE_SKIP are left out. Logits are not
// changed. Logit mask and biases of output row i: mask_bias_stride words from mask_bias[i *
// mask_bias_stride]. First one bit per token, then pairs (token, bias). They are read only where the row's
// parameters say so.
#pragma once
#include "base/lang.h"
#include "device/step.h"

struct sample_args {
    u32 n_tokens;
    u32 history_stride;
    u32 mask_bias_stride; // in words; 0: no row has a mask or biases
    u32 ahead;            // of the rows' positions
};
STATIC_ASSERT(sizeof(struct sample_args) == 16);

enum { SAMPLE_LOGITS, SAMPLE_HISTORY, SAMPLE_WORK, SAMPLE_RESULTS, SAMPLE_MASK_BIAS };

#define SAMPLE_MAX_BIASES 1024u // of one row

struct sample_bias {
    u32 token;
    f32 bias;
};
STATIC_ASSERT(sizeof(struct sample_bias) == 8);

// The mask's words are even in number, so that the biases are aligned.
SHARED_INLINE u32 sample_mask_words(u32 n_tokens)
{
    return (n_tokens + 63) / 64 * 2;
}
SHARED_INLINE u32 sample_mask_bias_words(u32 n_tokens)
{
    return sample_mask_words(n_tokens) + 2 * SAMPLE_MAX_BIASES;
}

// Number of blocks of the CPU kernel: block i has tokens i, i + sample_tops, ..., 8 in each.
SHARED_INLINE u32 sample_tops(u32 n_tokens)
{
    return (n_tokens / 8 + 16) / 16 * 16;
}

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

// Whether the id that the row draws goes to the history.
SHARED_INLINE u32 sample_tells_history(const STEP_SPACE struct step *s, u32 row,
                                       const STEP_SPACE struct sample_args *a)
{
    u32 next = step_positions(s)[row] + 1;

    return next + a->ahead < a->history_stride &&
           !(row + 1 < s->n_rows && step_slots(s)[row + 1] == step_slots(s)[row] &&
             step_positions(s)[row + 1] == next);
}

#ifdef HOST_C
#include "device/tape.h"

struct sample {
    struct tensor logits;         // [outputs, n_tokens]
    const struct buffer *history; // [n_slots, history_stride] u32
    uint32_t history_stride, ahead;
    const struct buffer *results;   // [places of max outputs] u32
    const struct buffer *mask_bias; // [max outputs, sample_mask_bias_words] u32, or NULL: no row has any
};
void op_sample(struct tape *t, struct sample s);
#endif
