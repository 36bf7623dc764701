// latent_prompt: attention in a latent space for steps of many rows, from queries to values
//
//   key to its page; absorbed queries = [Wuk[h] x, rope(y)]        latent_qk
//   attended = softmax(scale * absorbed . key) latent              latent_attend
//   out[h]   = Wuv[h] attended[h]                                  latent_project
//
// The definition is the operations in turn, each as its own header has it (ops/latent). What they hand on
// stays in the operation, so that a device may expand the keys and values of a prompt instead:
//   k[h] = [Wuk[h]^T latent, rotated], v[h] = Wuv[h] latent, out[h] = softmax(scale * [x, rope(y)] . k[h])
//   v[h]
// which is the same but for rounding, needs fewer products for a pair of a query and a key, and more for a
// key. A device may do so for rows of a sequence that has at least LATENT_PROMPT_ROWS in the step. It is
// recorded for tapes of at least twice as many, whose steps are rarely all answers, and for pages of F16, but
// not under --invariant and --exact: which form a row takes depends on its neighbours.
#pragma once
#include "ops/latent/latent.h"

enum { LATENT_PROMPT_ROWS = 256 };

struct latent_prompt_args {
    struct latent_qk_args qk;
    u32 n_value; // numbers of a head's value
    f32 scale;   // of scores
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct latent_prompt_args) == 80);

// Operand numbers, for the kernels: latent_qk's, of which OUT is handed on, and behind them
enum {
    LATENT_PROMPT_ATTENDED = LATENT_QK_OUT + 1, // handed on
    LATENT_PROMPT_V_B,
    LATENT_PROMPT_EXPANDED, // room for expanded keys and values
    LATENT_PROMPT_OUT
};

// Keys and values that have room, in fp16, for each row that a tape can get; more are expanded in turns, one
// for so many rows: the fewer rows, the less a long past is worth it.
enum { LATENT_PROMPT_KEYS = 8, LATENT_PROMPT_TURN_ROWS = 256 };
// Columns (of 4 bytes) of that room per row.
SHARED_INLINE u32 latent_prompt_expanded_cols(u32 n_heads, u32 n_key, u32 n_value)
{
    return LATENT_PROMPT_KEYS * n_heads * (n_key + n_value) / 2;
}

#ifdef HOST_C
#include "device/tape.h"

// The parts as they would be recorded: each reads what the one before it writes.
struct latent_prompt {
    struct latent_store store;
    struct latent_project absorb;
    struct latent_attend attend;
    struct latent_project expand;
};
// Records the operation and returns true. False: this tape takes the parts.
bool op_latent_prompt(struct tape *t, const struct latent_prompt *p);

// The commands of the parts, for devices that play them one by one.
enum { LATENT_PROMPT_QK, LATENT_PROMPT_ATTEND, LATENT_PROMPT_PROJECT, LATENT_PROMPT_N_PARTS };
void latent_prompt_parts(const struct command *c, struct command parts[LATENT_PROMPT_N_PARTS]);
#endif
