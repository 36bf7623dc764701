// hold.c - see hold.h.
#include "engine/limits/hold.h"
#include "base/clock.h"
#include "engine/request.h"
#include "engine/wait.h"

static const uint64_t MOST_NS = 100000000;

// Something has to end: that takes a step at once.
static bool ends_some(const struct engine *e, uint64_t now)
{
    for (const struct request *r = e->first; r; r = r->next)
        if (r->cancelled || r->state == REQUEST_DONE || (r->deadline_ns && now > r->deadline_ns))
            return true;
    return e->closed || e->failed;
}

// When the next step may be played: that of running requests, or the first of one that waits. 0: at once.
static uint64_t step_at(const struct engine *e)
{
    const struct pace *p = &e->pace;
    bool waits = false, runs = e->is_ahead || e->flight.n > 0;
    for (const struct request *r = e->first; r; r = r->next) {
        runs |= r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
        waits |= r->state == REQUEST_QUEUED && !r->deferred;
    }
    uint64_t start = waits && !runs ? pace_start_at(p) : 0;
    return !runs && !waits ? 0 : start > p->step_at ? start : p->step_at;
}

bool hold_step(struct engine *e)
{
    struct pace *p = &e->pace;
    uint64_t begun = pace_clock(p), now = begun, until = clock_ns() + MOST_NS, at;
    bool waited = false;

    while (!ends_some(e, now) && (at = step_at(e)) > now && clock_ns() < until) {
        uint64_t left = at - now < MOST_NS ? at - now : MOST_NS;
        waited = true;
        wait_sleep(e, left);
        now = pace_clock(p);
    }
    p->counters.waited_ns += waited ? now - begun : 0;
    return ends_some(e, now) || step_at(e) <= now;
}
