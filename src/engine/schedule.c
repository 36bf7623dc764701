// schedule.c - see schedule.h.
#include "engine/schedule.h"
#include "engine/request.h"

void schedule_add(struct engine *e, struct request *r)
{
    r->next = NULL;
    if (e->last)
        e->last->next = r;
    else
        e->first = r;
    e->last = r;
}

void schedule_remove(struct engine *e, struct request *r)
{
    struct request *before = NULL;

    for (struct request *at = e->first; at; before = at, at = at->next) {
        if (at != r)
            continue;
        if (before)
            before->next = r->next;
        else
            e->first = r->next;
        if (e->last == r)
            e->last = before;
        r->next = NULL;
        return;
    }
}

static void end_cancelled(struct engine *e)
{
    for (struct request *r = e->first; r; r = r->next)
        if (r->cancelled && r->state != REQUEST_DONE)
            request_finish(r, INGOT_FINISH_CANCELLED, NULL);
}

static void drop_done(struct engine *e)
{
    for (struct request *r = e->first, *next; r; r = next) {
        next = r->next;
        if (r->state == REQUEST_DONE)
            schedule_remove(e, r);
    }
}

void schedule_next(struct engine *e)
{
    batch_clear(e->batch);
    end_cancelled(e);
    drop_done(e);
    for (struct request *r = e->first; r; r = r->next)
        if (r->state == REQUEST_DECODE)
            request_add_rows(r, e->batch);
    for (struct request *r = e->first; r && e->batch->n_rows < e->batch->max_rows; r = r->next) {
        if (r->state == REQUEST_QUEUED)
            request_admit(r);
        if (r->state == REQUEST_PREFILL)
            request_add_rows(r, e->batch);
    }
}
