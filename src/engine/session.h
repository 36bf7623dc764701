// session.h - one timeline: a slot, its pages, and the tokens that are in them.
#pragma once
#include "engine/engine.h"

struct ingot_session {
    struct engine *engine;
    uint32_t slot;
    uint32_t *tokens;  // [n_context] by position
    uint32_t n_tokens; // whose K and V are in the pages
    bool busy;         // a request runs on it
};

// Takes a slot; the state lock is held. NULL with code ERR_LIMIT when all slots are taken.
struct ingot_session *session_open(struct engine *e, struct err *err);
void session_close(struct ingot_session *s); // the state lock is held; NULL is allowed
