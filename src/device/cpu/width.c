// width.c - see width.h.
//
// Measured on two Zen 5 cores beside one busy loop, SmolLM Q4_0, ms a token: 3.9 with two threads, 1.9 with
// one (1.3 on a quiet machine).
#include "device/cpu/width.h"

enum { MS = 1000000, SEEN = 10 * MS, PAUSE = 80 * MS, HOLD = 640 * MS };
enum {
    LOSS_MOST = 75,
    TROUBLE_MOST = 8
}; // percent of a thread that may be lost: waiting, or without a processor

struct width width_of(uint32_t n_threads)
{
    return (struct width){ .n = n_threads, .most = n_threads };
}

static void narrow(struct width *w, uint64_t had, uint64_t now)
{
    w->before = had;
    w->widen_at = now + PAUSE;
    w->n--;
}

void width_note(struct width *w, struct thread_pool_time run, uint64_t now)
{
    w->noted.wall += run.wall;
    w->noted.busy += run.busy;
    if (w->noted.wall < SEEN)
        return;
    uint64_t had = w->noted.busy * 100 / w->noted.wall, before = w->before;
    bool bad = w->n > 1 && had + LOSS_MOST < w->n * UINT64_C(100);
    w->noted = (struct thread_pool_time){ 0 };
    w->before = 0;
    if (bad && w->trouble < TROUBLE_MOST)
        w->trouble++;
    if (had < before * 3 / 4) { // the others lose their processors just as well
        w->narrow_at = now + HOLD;
        w->n++;
    } else if (bad && w->trouble == TROUBLE_MOST && now >= w->narrow_at) {
        narrow(w, had, now);
    } else if (w->n < w->most && now >= w->widen_at) {
        w->n++;
    } else if (w->n == w->most && !bad && w->trouble > 0) {
        w->trouble--;
    }
}
