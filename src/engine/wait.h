// wait.h - waits for an event of a request. A waiting thread runs the steps when no other thread does.
#pragma once
#include "engine/request.h"

void wait_create(struct engine *e);
void wait_destroy(struct engine *e);
// Wakes all waiting threads. The state lock is held.
void wait_wake(struct engine *e);
// r NULL: waits for an event of any request. False: timeout_ms passed (UINT32_MAX: never), or r is finished.
// No lock is held.
bool wait_for_event(struct engine *e, const struct request *r, uint32_t timeout_ms);
