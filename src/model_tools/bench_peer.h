// bench_peer.h - runs a llama-bench compatible program for one test and reads the speed from its JSON.
#pragma once
#include "model_tools/bench_measure.h"
#include "base/str.h"

struct bench_peer_call {
    const char *command; // given to the shell; the flags are appended as words of their own
    const char *model;
    struct bench_test test;
    uint32_t n_threads;
};

// Runs the program once and stores its tokens per second.
bool bench_peer_run(const struct bench_peer_call *call, double *tokens_per_second, struct err *err);
