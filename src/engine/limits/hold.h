// hold.h - the waiting that limits ask for, before a step.
#pragma once
#include <stdbool.h>

struct engine;

// Waits until a step may be played, as pace.h says, but never longer than 100 ms. False: not yet; the caller
// asks again. A request that is cancelled or late, and closing, end the wait at once. The state lock is held,
// and released while waiting.
bool hold_step(struct engine *e);
