// schedule.c - see schedule.h.
#include "engine/schedule.h"
#include "base/clock.h"
#include "engine/flight/pipeline.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/request_admit.h"
#include "engine/speculate/draft_stage.h"
#include "engine/tiles.h"
#include "models/arch.h"

void schedule_add(struct engine *e, struct request *r)
{
    struct request **at = &e->first;

    if (e->last && e->last->priority <= r->priority)
        at = &e->last->next;
    while (*at && (*at)->priority <= r->priority)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (!r->next)
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

static void end_late(struct request *r)
{
    struct err err = { 0 };

    err_set(&err, ERR_TIMEOUT, "the deadline of %.0f ms passed after %u of %u prompt tokens and %u new ones",
            (double)(r->deadline_ns - r->submitted_ns) / 1e6, r->n_fed < r->n_prompt ? r->n_fed : r->n_prompt,
            r->n_prompt, r->result.n_generated);
    request_finish(r, INGOT_FINISH_ERROR, &err);
}

static void end_some(struct engine *e)
{
    uint64_t now = clock_ns();

    for (struct request *r = e->first, *next; r; r = next) {
        next = r->next;
        if (r->cancelled || e->closed)
            request_finish(r, INGOT_FINISH_CANCELLED, NULL);
        else if (r->deadline_ns && now > r->deadline_ns && r->state != REQUEST_DONE)
            end_late(r);
        if (r->state == REQUEST_DONE)
            schedule_remove(e, r);
    }
}

// ---- room

// Takes pages from idle sessions. Pages in the prefix index may be found again later.
static bool reclaim_sessions(struct engine *e)
{
    uint32_t before = kv_n_available(&e->kv);

    for (struct ingot_session *s = e->sessions; s; s = s->next)
        if (!s->busy)
            session_rewind(s, 0);
    return kv_n_available(&e->kv) > before;
}

static bool is_running(const struct request *r)
{
    return r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
}

static struct request *last_running(struct engine *e)
{
    struct request *last = NULL;

    for (struct request *r = e->first; r; r = r->next)
        last = is_running(r) ? r : last;
    return last;
}

// The request of lower priority that is paused to make room for this one, or NULL.
static struct request *below(struct engine *e, const struct request *r)
{
    struct request *last = last_running(e);

    return last && last->priority > r->priority ? last : NULL;
}

static bool make_way(struct engine *e, const struct request *r, bool may_pause)
{
    struct request *last = may_pause ? below(e, r) : NULL;

    if (r->n_lacked > 0 && reclaim_sessions(e)) // pages are missing, not a slot
        return true;
    if (last)
        request_pause(last);
    return last != NULL;
}

static void let_go(struct engine *e)
{
    if (!e->kv.window)
        return;
    for (struct request *r = e->first; r; r = r->next)
        if (is_running(r))
            request_advance(r);
    for (const struct ingot_session *s = e->sessions; s; s = s->next)
        if (!s->busy)
            kv_window_advance(&e->kv, s->slot, s->n_tokens);
}

static void note_held(struct request *r)
{
    r->engine->pace.counters.n_held += !r->was_held;
    r->was_held = true;
}

// Returns false where a request would have to be paused and may_pause is false.
static bool admit_some(struct engine *e, bool may_pause)
{
    for (struct request *r = e->first; r; r = r->next) {
        enum admission a = ADMIT_LATER;
        if (r->deferred)
            continue;
        if (r->state == REQUEST_QUEUED && !pace_may_start(&e->pace)) {
            note_held(r);
            continue;
        }
        while (r->state == REQUEST_QUEUED && (a = request_admit(r)) == ADMIT_NO_ROOM &&
               make_way(e, r, may_pause))
            ;
        if (a == ADMIT_DONE)
            pace_note_start(&e->pace);
        if (a == ADMIT_NO_ROOM) // no overtaking: else a large request may starve
            return may_pause || !below(e, r);
    }
    return true;
}

// ---- rows

bool schedule_reads_back(const struct engine *e)
{
    for (const struct request *r = e->first; r; r = r->next)
        if (!request_is_idle(r) && (r->n_logits || r->pool.kind || r->tiles.n))
            return true;
    return false;
}

// Each step reads all weights: where one stage takes nearly all of the time, as a CPU behind a GPU does, two
// steps take longer than the stages do in turn. Both ways are tried.
static bool is_slower_divided(struct pipeline *p, uint32_t n, uint32_t n_steps)
{
    uint64_t divided = pipeline_round_ns(p, n, n_steps), together = pipeline_round_ns(p, n, 1);

    return divided > 0 && together < divided; // together may not be known yet
}

// How many steps share n answers. Threads of stages take them by whole buckets.
static uint32_t n_shares(const struct engine *e, uint32_t n)
{
    uint32_t most = e->pipeline ? n / SHARE_ROWS : n;

    if (e->flight.most == 1 || most < 2 || schedule_reads_back(e))
        return 1;
    most = most < e->flight.n_shares ? most : e->flight.n_shares;
    return e->pipeline && is_slower_divided(e->pipeline, n, most) ? 1 : most;
}

// Steps that are in flight at once share the answers evenly. With threads, answers that are done apart come
// together again: none is taken while all shares are in flight.
static uint32_t most_answers(const struct engine *e)
{
    uint32_t n = 0;

    for (const struct request *r = e->first; r; r = r->next)
        n += r->state == REQUEST_DECODE;
    uint32_t shares = n_shares(e, n);
    if (e->pipeline && flight_n_with_answers(&e->flight) >= shares)
        return 0;
    n = (n + shares - 1) / shares;
    return n < e->batch->max_rows ? n : e->batch->max_rows;
}

// Requests after r in the list have no row yet. One whose step is in flight gets none.
static void add_answers(struct engine *e)
{
    struct speculate_step step = speculate_begin(e);
    uint32_t left = most_answers(e); // without drafted rows, which take nobody's place

    for (struct request *r = e->first; r; r = r->next) {
        uint32_t n_rows = e->batch->n_rows;
        while (r->state == REQUEST_DECODE && left > 0 && !request_add_rows(r, e->batch, 1)) {
            if (!reclaim_sessions(e))
                request_pause(last_running(e)); // maybe r
        }
        left -= e->batch->n_rows > n_rows;
        speculate_add(r, e->batch, &step);
    }
}

static uint32_t n_unread(const struct request *r)
{
    return r->n_tokens - r->n_fed;
}

// The request after r with the same priority and the least left to read; among equals the oldest.
static struct request *shortest_behind(struct request *r)
{
    struct request *shortest = NULL;

    for (struct request *at = r->next; at && at->priority == r->priority; at = at->next)
        if (at->state == REQUEST_PREFILL && (!shortest || n_unread(at) < n_unread(shortest)))
            shortest = at;
    return shortest;
}

enum { MANY_ANSWERS = 16, STEPS_OF_ANSWERS = 3 };

bool schedule_prompts_wait(const struct engine *e, uint64_t step)
{
    uint32_t n_answers = 0;
    uint64_t n_rows = 0;

    if (!e->loaded->stages[0].device->queue || e->prefill_budget.stretch <= 0 ||
        step - e->prompts_at > STEPS_OF_ANSWERS)
        return false;
    for (const struct request *r = e->first; r; r = r->next) {
        n_answers += r->state == REQUEST_DECODE;
        n_rows += request_is_unread(r) ? n_unread(r) : 0;
    }
    return n_answers >= MANY_ANSWERS && n_rows < n_answers;
}

// Adds prefill rows of one priority until the batch has n_rows: a chunk of the oldest prompt, then of the
// shortest.
static void read_prompts(struct batch *b, struct request *oldest, uint32_t n_rows, bool odd_step)
{
    uint32_t n = n_rows - b->n_rows, half = (n + odd_step) / 2, n_shorter = 0;

    for (const struct request *r = oldest->next; r && r->priority == oldest->priority && n_shorter < half;
         r = r->next)
        if (r->state == REQUEST_PREFILL && n_unread(r) < n_unread(oldest))
            n_shorter += n_unread(r);
    request_add_rows(oldest, b, n - (n_shorter < half ? n_shorter : half));
    while (b->n_rows < n_rows) {
        struct request *r = shortest_behind(oldest);
        if (!r)
            return;
        request_add_rows(r, b, n_rows - b->n_rows);
        if (r->state == REQUEST_PREFILL) // the step is full, or has no output left for the logits of r
            return;
    }
}

// Whole texts alone, as many as fit, in their order.
static void add_texts(struct batch *b, struct request *first)
{
    for (struct request *r = first; r; r = r->next) {
        if (r->state != REQUEST_PREFILL)
            continue;
        if (n_unread(r) > b->max_rows - b->n_rows || b->n_outputs == b->max_outputs)
            return;
        request_add_rows(r, b, n_unread(r));
    }
}

static void add_prompts(struct engine *e, struct batch *b, uint64_t step)
{
    if (e->loaded->model.arch->is_encoder) {
        add_texts(b, e->first);
        return;
    }
    if (schedule_prompts_wait(e, step))
        return;
    uint32_t n_rows = b->n_rows + prefill_budget_rows(&e->prefill_budget, b->n_rows, b->max_rows - b->n_rows);
    const struct request *before = NULL;

    for (struct request *r = e->first; r && b->n_rows < n_rows; r = r->next) {
        if (r->state != REQUEST_PREFILL || (before && before->priority == r->priority))
            continue;
        before = r;
        read_prompts(b, r, n_rows, step % 2);
        e->prompts_at = step;
    }
}

void schedule_next(struct engine *e)
{
    batch_clear(e->batch);
    kv_state_tick(&e->kv);
    end_some(e);
    let_go(e);
    admit_some(e, true);
    add_answers(e);
    e->batch->n_decode = e->batch->n_rows;
    if (tiles_plan(e, e->batch->n_decode))
        add_prompts(e, e->batch, e->n_steps);
}

// ---- the step after the one that runs

// Whether no request needs the running step's results: decoding and prompts as request_goes_ahead says, and
// prompts only where nothing drafts.
static bool all_go_ahead(struct engine *e)
{
    struct speculate_step step = speculate_begin(e);
    bool any_drafter = e->draft_model || e->draft_stage;
    bool prompts_wait = schedule_prompts_wait(e, e->n_steps + 1);

    for (struct request *r = e->first; r; r = r->next) {
        if (request_is_unread(r) && prompts_wait && !r->cancelled)
            continue;
        if (!request_goes_ahead(r) || (request_is_unread(r) && any_drafter) || draft_stage_reads(r) ||
            speculate_wants(r, &step))
            return false;
    }
    return true;
}

bool schedule_ahead(struct engine *e)
{
    struct batch *b = e->ahead;

    if (!all_go_ahead(e) || !admit_some(e, false))
        return false;
    kv_state_tick(&e->kv);
    for (struct request *r = e->first; r; r = r->next)
        if (!request_is_unread(r))
            request_add_ahead(r, b);
    b->n_decode = b->n_rows;
    add_prompts(e, b, e->n_steps + 1);
    return b->n_rows > 0;
}
