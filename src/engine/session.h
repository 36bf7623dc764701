// session.h - one sequence that outlives its requests: a slot, its pages, and their tokens.
#pragma once
#include "engine/engine.h"

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
