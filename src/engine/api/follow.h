// follow.h - the ranks of a group other than the first: no requests, one stage, and steps that arrive.
#pragma once
#include "base/err.h"
#include "ingot.h"

enum follow_end {
    FOLLOW_CLOSED, // rank 0 closed its engine, or told of an error that it reports itself
    FOLLOW_LOST,   // the group was lost; *err says how
    FOLLOW_FAILED, // this rank could not join the group; *err says why
};
// Loads this rank's layers and computes them until rank 0 ends. remote_want was called before.
enum follow_end engine_follow(const struct ingot_engine_options *options, struct err *err);
