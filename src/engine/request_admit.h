// request_admit.h - admission: gives a request a session, pages for all its tokens, and the cached prefix of
// them.
//
// A paused (preempted) request gives all of that back and waits in the queue with its prompt and the tokens
// that it has generated. Resuming is the same as starting; its pages are often still in the prefix index.
#pragma once
#include "engine/request.h"

enum admission {
    ADMIT_DONE,
    ADMIT_LATER,   // its session is busy, or another request is computing the same prefix
    ADMIT_NO_ROOM, // no slot, or not enough pages
};

// The state lock is held for all of these.
enum admission request_admit(struct request *r);
void request_pause(struct request *r);
