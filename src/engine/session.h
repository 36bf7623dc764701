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
    struct sha256 root; // of the salt
    bool busy;          // a request uses it
};

// The state lock is held for all of these.
// Takes a slot. NULL with code ERR_LIMIT when all slots are taken.
struct ingot_session *session_open(struct engine *e, struct err *err);
void session_close(struct ingot_session *s); // NULL is allowed
// Truncates to at most n tokens, so that rows can be added from there. Returns the tokens kept, which may be
// fewer: a shared page is never written.
uint32_t session_rewind(struct ingot_session *s, uint32_t n);
// Adds the full pages before position n to the prefix index. Row n - 1 gave valid logits.
void session_index(struct ingot_session *s, uint32_t n);

// The prompt that the sequence is about to read; its first n_shared tokens others are known to begin with.
void session_state_expect(struct ingot_session *s, uint32_t n_prompt, uint32_t n_shared);
// Says where the state of the batch's next row comes from and goes to. Rows are added one after the other.
void session_state_feed(struct ingot_session *s, const struct batch *b, struct batch_row *row);
// The most tokens, at most n of those in the slot's pages, behind which there is a state.
uint32_t session_state_below(const struct ingot_session *s, uint32_t n);
// The row that has the state behind that many tokens, for which there is one.
uint32_t session_state_row(const struct ingot_session *s, uint32_t n);
// The slot's own row has got the state behind the session's n tokens.
void session_state_arrived(struct ingot_session *s, uint32_t n);
// Goes on behind that many tokens, for which there is a state.
void session_state_resume(struct ingot_session *s, uint32_t n);
