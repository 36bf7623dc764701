// admit.h - what a request needs to run: a session, pages for all its tokens, and what is already known of them.
//
// A request that is paused gives all of that back and waits in the queue as it did before it ran, only with more tokens: its prompt
// and what it has generated. Going on is the same as beginning, and its pages are often still in the index.
#pragma once
#include "engine/request.h"

enum admission {
    ADMIT_DONE,
    ADMIT_LATER,   // its session is busy, or another request is just computing the same beginning
    ADMIT_NO_ROOM, // no slot, or not enough pages
};

// The state lock is held for all of these.
enum admission request_admit(struct request *r);
void request_pause(struct request *r);
