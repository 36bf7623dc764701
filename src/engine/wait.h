// wait.h - waits for an event of a request. A waiting thread runs the steps when no other thread does.
#pragma once
#include "engine/request.h"

void wait_create(struct engine *e);
void wait_destroy(struct engine *e);
// Wakes all waiting threads. The state lock is held.
void wait_wake(struct engine *e);
// Sleeps until there is news, at most so long. The state lock is held, and released meanwhile.
void wait_sleep(struct engine *e, uint64_t ns);
// Takes both locks between two steps. A thread that steps without a pause would keep `stepping` to itself:
// the next step waits until this caller has had it. The work in between should take no longer than a step.
void wait_turn_begin(struct engine *e);
void wait_turn_end(struct engine *e);
// For the thread that steps: waits until nobody wants a turn. No lock is held.
void wait_for_turns(struct engine *e);
// r NULL: waits for an event of any request. False: timeout_ms passed (UINT32_MAX: never), or r is finished.
// No lock is held.
bool wait_for_event(struct engine *e, const struct request *r, uint32_t timeout_ms);
