// following.h - several ranks that mpirun started: this process is rank 0, which answers, or follows it.
#pragma once
#include "ingot.h"

// Before the engine is opened with these options. On rank 0, and without mpirun, it returns -1 at once. On
// the others it computes until rank 0 ends, and returns the exit status.
int following(const struct ingot_engine_options *options);
// Whether there are several ranks.
bool following_any(void);
// The exit status in place of this one: STATUS_RANK_LOST once a rank was lost.
int following_status(int status);
// Writes a byte to the pipe once a rank is lost, from a thread of its own: a server stops by it.
void following_watch(int pipe);
