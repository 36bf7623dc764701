// width.c - see width.h.
//
// Measured on two Zen 5 cores beside one busy loop, SmolLM Q4_0, ms a token: 3.9 with two threads, 1.9 with one (1.3 on a quiet machine).
#include "device/cpu/width.h"

enum { MS = 1000000, SEEN = 10 * MS, PAUSE_LEAST = 20 * MS, PAUSE_MOST = 80 * MS };
enum { LOSS_MOST = 75 }; // percent of a thread that may be lost: waiting, or without a processor

struct width width_of(uint32_t n_threads)
{
    return (struct width){ .n = n_threads, .most = n_threads, .pause = PAUSE_LEAST };
}

static void narrow(struct width *w, uint64_t had, uint64_t now)
{
    w->before = had;
    w->n--;
    w->widen_at = now + w->pause;
    w->pause = w->pause * 2 < PAUSE_MOST ? w->pause * 2 : PAUSE_MOST;
}

static void widen(struct width *w)
{
    w->before = 0;
    w->n++;
}

void width_note(struct width *w, struct team_time run, uint64_t now)
{
    w->noted.wall += run.wall;
    w->noted.busy += run.busy;
    if (w->noted.wall < SEEN)
        return;
    uint64_t had = w->noted.busy * 100 / w->noted.wall;
    w->noted = (struct team_time){ 0 };
    if (had < w->before * 3 / 4) { // the others lose their processors just as well
        w->narrow_at = now + PAUSE_MOST;
        widen(w);
    } else if (w->n > 1 && had + LOSS_MOST < w->n * UINT64_C(100) && now >= w->narrow_at) {
        narrow(w, had, now);
    } else if (w->n < w->most && now >= w->widen_at) {
        widen(w);
    } else {
        w->before = 0;
        if (w->n == w->most && w->pause > PAUSE_LEAST)
            w->pause /= 2;
    }
}
