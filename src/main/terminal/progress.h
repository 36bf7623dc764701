// progress.h - a progress bar on stderr, drawn at most 10 times a second, and only on a terminal.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    uint64_t last_ns;
    bool drawn;
};
// A callback of the engine: arg is the bar. False after Ctrl-C.
bool progress_callback(void *arg, uint64_t done, uint64_t total);
void progress_end(struct progress *p); // erases the bar
