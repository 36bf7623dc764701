// peer.h - runs a llama-bench compatible program for one test and reads the speed from its JSON.
#pragma once
#include "engine/measure.h"
#include "base/str.h"

struct peer_call {
    const char *command; // given to the shell; the flags are appended as words of their own
    const char *model;
    struct measure_test test;
    uint32_t n_threads;
};

// Runs the program once and stores its tokens per second.
bool peer_run(const struct peer_call *call, double *tokens_per_second, struct err *err);
