// width.h - how many of its threads the CPU plays with: as many as really get processors.
//
// Threads that walk a tape together wait for each other some hundred times a step. A foreign program on one
// of their processors takes it for milliseconds at a time, in the middle of a tile, and all others wait: two
// threads then compute half as fast as one alone. The same holds where a container has the time of fewer
// processors than it sees. So the time that threads have had processors for is added up; when one thread less
// could have had as much, one less plays, and now and then one more is tried again. The bits are the same.
#pragma once
#include <stdint.h>
#include "base/thread_pool.h"

struct width {
    uint32_t n, most;              // threads to play with; all there are
    struct thread_pool_time noted; // since the last decision
    uint32_t trouble; // decisions for which a thread was lost, less those for which none was: a short
                      // disturbance changes nothing
    uint64_t before;  // what the last narrowing is judged by: percent of a processor had; 0: judged already
    uint64_t widen_at, narrow_at;
};

struct width width_of(uint32_t n_threads);
// After a run with n threads, at the time `now`: decides n anew when enough has been seen.
void width_note(struct width *w, struct thread_pool_time run, uint64_t now);
