// wait.h - sleeping until a request has an event. Who waits makes the steps when no other thread does, so that waiting alone is enough.
#pragma once
#include "engine/request.h"

void wait_create(struct engine *e);
void wait_destroy(struct engine *e);
// The state lock is held. All that wait look again.
void wait_wake(struct engine *e);
// No lock is held. r NULL: for an event of any request. False: timeout_ms passed (UINT32_MAX: never), or r is at its end.
bool wait_for_event(struct engine *e, const struct request *r, uint32_t timeout_ms);
