// thread_count.c - see thread_count.h.
#include "device/cpu/thread_count.h"

enum { MS = 1000000, SEEN = 10 * MS, PAUSE = 80 * MS, HOLD = 640 * MS }; // ns
// LOSS_MOST: percent of one thread that may be lost, by waiting or without a CPU.
enum { LOSS_MOST = 75, TROUBLE_MOST = 8 };
// TAKEN_MOST: percent of one thread's time, and one more for each thread for the system's own work. Threads
// that were without a CPU for longer count as disturbed by other programs. Fewer threads than PATIENT_LEAST
// have few to wake, and lose more by trying beside another program.
enum { TAKEN_MOST = 10, PATIENT_LEAST = 4 };

struct thread_count thread_count_of(uint32_t n_threads)
{
    return (struct thread_count){ .n = n_threads, .most = n_threads };
}

static void judge_patience(struct thread_count *c, bool taken, uint64_t now)
{
    if (taken) {
        c->pause = !c->patient ? c->pause : c->pause ? 2 * c->pause : SEEN;
        c->pause = c->pause > HOLD ? HOLD : c->pause;
        c->patient_at = now + c->pause;
        c->patient = false;
    } else if (c->patient) {
        c->pause = 0;
    } else {
        c->patient = c->n == c->most && c->n >= PATIENT_LEAST && now >= c->patient_at;
    }
}

static void narrow(struct thread_count *c, uint64_t had, uint64_t now)
{
    c->before = had;
    c->widen_at = now + PAUSE;
    c->patient = false;
    c->n--;
}

void thread_count_note(struct thread_count *c, struct thread_pool_time run, uint64_t now)
{
    c->noted.wall += run.wall;
    c->noted.busy += run.busy;
    c->noted.lost += run.lost;
    if (c->noted.wall < SEEN)
        return;
    uint64_t had = c->noted.busy * 100 / c->noted.wall, before = c->before;
    bool taken = c->noted.lost * 100 / c->noted.wall > TAKEN_MOST + c->n;
    bool seen = taken || c->most < PATIENT_LEAST; // by those that wait, where a hypervisor takes it
    bool bad = seen && c->n > 1 && had + LOSS_MOST < c->n * UINT64_C(100);
    judge_patience(c, taken, now);
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
