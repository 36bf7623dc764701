// session.h - one timeline: a slot, its pages, and the tokens that are in them.
#pragma once
#include "engine/engine.h"

struct ingot_session {
    struct engine *engine;
    struct ingot_session *next; // all of the engine's
    uint32_t slot;
    uint32_t *tokens;   // [n_context] by position
    uint32_t n_tokens;  // whose K and V are in the pages
    uint32_t n_indexed; // pages that were given to the index
    struct sha256 root; // of the salt that its tokens belong to
    bool busy;          // a request runs on it
};

// The state lock is held for all of these.
// Takes a slot. NULL with code ERR_LIMIT when all slots are taken.
struct ingot_session *session_open(struct engine *e, struct err *err);
void session_close(struct ingot_session *s); // NULL is allowed
// Keeps what lies before position n, or a little less, and makes ready for rows from there on. Returns what is left.
uint32_t session_rewind(struct ingot_session *s, uint32_t n);
// Gives the full pages before position n to the index: valid logits have come from row n - 1.
void session_index(struct ingot_session *s, uint32_t n);
