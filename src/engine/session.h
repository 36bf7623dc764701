// session.h - one sequence that outlives its requests: a slot, its pages, and their tokens.
#pragma once
#include "engine/engine.h"
#include "engine/stage/batch.h"

struct ingot_session {
    struct engine *engine;
    struct ingot_session *next; // list of the engine
    uint32_t slot;
    uint32_t *tokens;   // [n_context] by position
    uint32_t n_tokens;  // with K and V in the pages
    uint32_t n_indexed; // pages that are in the prefix index
    // Of models with recurrent layers, see below: the row where the state lies, and behind how many
    // tokens it is; where states are to be kept.
    uint32_t state, state_at;
    uint32_t before[SPECULATE_MOST], n_drafted; // rows where it lay before each drafted token
    uint32_t n_prompt, keep_shared, keep_last, answer_kept;
    struct sha256 root; // of the salt and the adapters
    bool busy;          // a request uses it
};

// The state lock is held for all of these.
// Takes a slot. NULL with code ERR_LIMIT when all slots are taken.
struct ingot_session *session_open(struct engine *e, struct err *err);
void session_close(struct ingot_session *s); // NULL is allowed
// The pages were made anew: takes a slot of them, and begins without tokens.
void session_restart(struct ingot_session *s);
// Truncates to at most n tokens, so that rows can be added from there. Returns the tokens kept, which may be
// fewer: a shared page is never written.
uint32_t session_rewind(struct ingot_session *s, uint32_t n);
// Adds the full pages before position n to the prefix index. Row n - 1 gave valid logits.
void session_index(struct ingot_session *s, uint32_t n);

// How the sequence's state goes from step to step, where it is kept, and how it is found again. Models
// without recurrent layers have none: these calls then do nothing.
//
// A sequence goes on from the row where its last token left the state: its slot's own, or one that is kept.
// States are kept at multiples of STATE_GRID tokens: the last one within a prompt, one that other prompts
// were seen to share, every STATE_FAR tokens, and in an answer the newest. Behind drafted tokens it lies in
// spare rows until it is known which of them count.
enum { STATE_GRID = 64, STATE_FAR = 4096 };

// The prompt that the sequence is about to read; its first n_shared tokens others are known to begin with.
void session_state_expect(struct ingot_session *s, uint32_t n_prompt, uint32_t n_shared);
// Says where the state of the batch's next row comes from and goes to. Rows are added one after the other.
void session_state_feed(struct ingot_session *s, const struct batch *b, struct batch_row *row);
// The same for a drafted token's row, behind another one of the sequence in the batch. False: no spare row.
bool session_state_draft(struct ingot_session *s, struct batch_row *row);
// Of the drafted tokens those before position n count.
void session_state_settle(struct ingot_session *s, uint32_t n);
// The most tokens, at most n of those in the slot's pages, behind which there is a state.
uint32_t session_state_below(const struct ingot_session *s, uint32_t n);
// The row that has the state behind that many tokens, for which there is one.
uint32_t session_state_row(const struct ingot_session *s, uint32_t n);
// The slot's own row has got the state behind the session's n tokens.
void session_state_arrived(struct ingot_session *s, uint32_t n);
// Goes on behind that many tokens, for which there is a state.
void session_state_resume(struct ingot_session *s, uint32_t n);
