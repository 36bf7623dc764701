// step.h - one step of a batch, as the device sees it: what changes from play to play. For C, CUDA and MSL.
//
// A header of 64 bytes, then arrays whose offsets follow from the capacities in the header. The engine fills
// it, one copy goes to the device, and the tape is played unchanged. A row is one token of one sequence; rows
// of many sequences mix freely. What lives longer than a step (page tables, the token history) is not here
// but in device/pages.h, so a step does not grow with the context.
#pragma once
#include "base/lang.h"

#if defined(__METAL_VERSION__)
#define STEP_SPACE constant
#else
#define STEP_SPACE
#endif

#define STEP_TOKEN_POOLED  0x80000000u // set: the lower bits name a row of embeddings, see ops/embed/embed.h
#define STEP_TOKEN_HISTORY 0xffffffffu // the row's token is in the history: the step before sampled it
#define STEP_TOKEN_INVALID 0xfffffffeu // the result of a row whose logits held NaN or infinity

// Of layers that carry a state from row to row; see device/states.h.
#define STATE_ZERO 0xffffffffu // from: a sequence begins, the state before its first row is zero
#define STATE_NEXT 0xfffffffeu // from: the row above is the one before in its sequence
#define STATE_NONE 0xffffffffu // to: nobody needs the state behind this row

struct sample_params {     // of one output row
    f32 temperature;       // 0: greedy
    f32 top_p, min_p;      // 1 and 0 switch them off
    u32 top_k;             // 0: all
    f32 repeat_penalty;    // 1 switches it off; > 1 makes seen tokens less likely, whatever the logit's sign
    f32 presence_penalty;  // subtracted once from the logit of a seen token
    f32 frequency_penalty; // subtracted for each time it was seen
    u32 penalty_window;    // how many of the last tokens count as seen
    u32 seed[2];           // random numbers come from (seed, position), never from a state
    u32 flags;             // SAMPLE_*
    u32 n_biases;          // logit biases of the row, see ops/sample/sample.h
};
STATIC_ASSERT(sizeof(struct sample_params) == 48);
#define SAMPLE_SKIP   1u // logits only: no token is drawn
#define SAMPLE_MASKED 2u // only tokens of the row's mask may be drawn

enum tensor_rows { ROWS_STEP, ROWS_OUTPUT }; // a tensor has one row per row of the step | one per output row

struct step {
    u32 n_rows;    // rows in use, from 0
    u32 n_outputs; // rows whose logits are wanted
    u32 max_rows, max_outputs;
    u32 reserved[11];
    u32 results_at; // index of the first sampled id in the results; steps in flight write disjoint ranges
};
STATIC_ASSERT(sizeof(struct step) == 64);

// In words from the start of the step.
SHARED_INLINE u32 step_at_tokens(void)
{
    return (u32)sizeof(struct step) / 4;
}
SHARED_INLINE u32 step_at_positions(u32 max_rows)
{
    return step_at_tokens() + max_rows;
}
SHARED_INLINE u32 step_at_slots(u32 max_rows)
{
    return step_at_tokens() + 2 * max_rows;
}
SHARED_INLINE u32 step_at_states_from(u32 max_rows)
{
    return step_at_tokens() + 3 * max_rows;
}
SHARED_INLINE u32 step_at_states_to(u32 max_rows)
{
    return step_at_tokens() + 4 * max_rows;
}
SHARED_INLINE u32 step_at_outputs(u32 max_rows)
{
    return step_at_tokens() + 5 * max_rows;
}
SHARED_INLINE u32 step_at_samples(u32 max_rows, u32 max_outputs)
{
    return step_at_outputs(max_rows) + max_outputs;
}
SHARED_INLINE u32 step_bytes(u32 max_rows, u32 max_outputs)
{
    return step_at_samples(max_rows, max_outputs) * 4 + max_outputs * (u32)sizeof(struct sample_params);
}

// [n_rows] token ids, STEP_TOKEN_HISTORY, or STEP_TOKEN_POOLED with a row
SHARED_INLINE const STEP_SPACE u32 *step_tokens(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_tokens();
}
// [n_rows] position of the row in its sequence, from 0
SHARED_INLINE const STEP_SPACE u32 *step_positions(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_positions(s->max_rows);
}
// [n_rows] the sequence's slot: its row in the page table and in the token history
SHARED_INLINE const STEP_SPACE u32 *step_slots(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_slots(s->max_rows);
}
// [n_rows] where the state before the row lies: STATE_ZERO, STATE_NEXT, or a row of the layers' states
SHARED_INLINE const STEP_SPACE u32 *step_states_from(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_states_from(s->max_rows);
}
// [n_rows] the row of the layers' states that receives the state behind the row, or STATE_NONE
SHARED_INLINE const STEP_SPACE u32 *step_states_to(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_states_to(s->max_rows);
}
// [n_outputs] which rows want logits, ascending
SHARED_INLINE const STEP_SPACE u32 *step_outputs(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE u32 *)s + step_at_outputs(s->max_rows);
}
// [n_outputs]
SHARED_INLINE const STEP_SPACE struct sample_params *step_samples(const STEP_SPACE struct step *s)
{
    return (const STEP_SPACE struct sample_params *)((const STEP_SPACE u32 *)s +
                                                     step_at_samples(s->max_rows, s->max_outputs));
}
