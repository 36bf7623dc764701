// thread_count.c - see thread_count.h.
#include "device/cpu/thread_count.h"

enum { MS = 1000000, SEEN = 10 * MS, PAUSE = 80 * MS, HOLD = 640 * MS }; // ns
// LOSS_MOST: percent of one thread that may be lost, by waiting or without a CPU.
enum { LOSS_MOST = 75, TROUBLE_MOST = 8 };

struct thread_count thread_count_of(uint32_t n_threads)
{
    return (struct thread_count){ .n = n_threads, .most = n_threads };
}

static void narrow(struct thread_count *c, uint64_t had, uint64_t now)
{
    c->before = had;
    c->widen_at = now + PAUSE;
    c->n--;
}

void thread_count_note(struct thread_count *c, struct thread_pool_time run, uint64_t now)
{
    c->noted.wall += run.wall;
    c->noted.busy += run.busy;
    if (c->noted.wall < SEEN)
        return;
    uint64_t had = c->noted.busy * 100 / c->noted.wall, before = c->before;
    bool bad = c->n > 1 && had + LOSS_MOST < c->n * UINT64_C(100);
    c->noted = (struct thread_pool_time){ 0 };
    c->before = 0;
    if (bad && c->trouble < TROUBLE_MOST)
        c->trouble++;
    if (had < before * 3 / 4) { // the remaining threads lose CPU time too
        c->narrow_at = now + HOLD;
        c->n++;
    } else if (bad && c->trouble == TROUBLE_MOST && now >= c->narrow_at) {
        narrow(c, had, now);
    } else if (c->n < c->most && now >= c->widen_at) {
        c->n++;
    } else if (c->n == c->most && !bad && c->trouble > 0) {
        c->trouble--;
    }
}
