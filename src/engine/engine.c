// engine.c - one step: schedule, play through the stages, deliver the results to the requests.
#include "engine/engine.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/constraint.h"
#include "engine/flight/flight_run.h"
#include "engine/flight/pipeline.h"
#include "engine/group/group.h"
#include "engine/kv/kv_window.h"
#include "engine/limits/hold.h"
#include "engine/stage/away.h"
#include "engine/stage/link.h"
#include "engine/stage/remote.h"
#include "engine/pool.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/draft_stage.h"
#include "engine/tiles.h"
#include "engine/wait.h"

static void engine_fail(struct engine *e, const struct err *why)
{
    if (e->failed)
        return;
    e->failed = true;
    e->failure = *why;
    log_line(LOG_ERROR, "engine", "%s", why->message);
}

// What the stages' threads write before the next step, instead of this one now.
static bool tells_later(const struct engine *e)
{
    return e->pipeline && e->flight.n > 0;
}

static void tell_entries(struct engine *e, uint32_t kind, uint32_t slot, struct layer_range entries,
                         const uint32_t *table)
{
    if (entries.first < entries.last)
        pipeline_tell(e->pipeline, (uint32_t[4]){ kind, slot, entries.first, entries.last - entries.first },
                      table + (uint64_t)slot * e->kv.max_pages + entries.first);
}

static void tell_pages(struct engine *e, uint32_t slot, uint32_t from, uint32_t window_from)
{
    struct err err = { 0 };

    if (tells_later(e)) {
        tell_entries(e, STEP_NEWS_TABLE, slot, (struct layer_range){ from, e->kv.n_taken[slot] },
                     e->kv.table);
        if (e->kv.window)
            tell_entries(e, STEP_NEWS_WINDOWS, slot, stage_held_windows(&e->kv, slot, window_from),
                         e->kv.window_table);
        return;
    }
    for (uint32_t i = 0; i < e->loaded->n_stages; i++)
        if (!stage_table_write(&e->loaded->stages[i], &e->kv, slot, from, &err) ||
            !stage_window_table_write(&e->loaded->stages[i], &e->kv, slot, window_from, &err))
            engine_fail(e, &err);
    if (e->loaded->remote)
        remote_table_write(e->loaded->remote, &e->kv, slot, from, window_from);
}

// For the rank that has the head.
static struct step_constraint constraint_of(const struct batch *b, uint32_t i)
{
    const struct constraint *c = b->outputs[i].constraint;

    return c ? (struct step_constraint){ c->mask, (const uint32_t *)(const void *)c->biases, c->n_biases }
             : (struct step_constraint){ 0 };
}

static bool write_constraints(struct engine *e, const struct batch *b, struct err *err)
{
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        const struct constraint *c = b->outputs[i].constraint;
        struct stage_constraint constraint = { c ? c->mask : NULL, c ? c->biases : NULL,
                                               c ? c->n_biases : 0 };
        if (c && !stage_constraint_write(&e->loaded->stages[e->loaded->n_stages - 1], i, &constraint, err))
            return false;
    }
    return true;
}

bool engine_grow(struct engine *e, uint32_t slot, uint32_t n_tokens)
{
    uint32_t from = e->kv.n_taken[slot], window_from = e->kv.window ? e->kv.window_slots[slot].to : 0;

    if (!kv_grow(&e->kv, slot, n_tokens))
        return false;
    bool ok = kv_window_grow(&e->kv, slot, n_tokens);
    tell_pages(e, slot, from, window_from);
    return ok;
}

void engine_tell_slot(struct engine *e, uint32_t slot, const uint32_t *tokens, uint32_t n)
{
    struct err err = { 0 };

    tell_pages(e, slot, 0, 0);
    if (tells_later(e)) {
        if (n > 0)
            pipeline_tell(e->pipeline, (uint32_t[4]){ STEP_NEWS_HISTORY, slot, 0, n }, tokens);
        return;
    }
    for (uint32_t i = 0; i < e->loaded->n_stages; i++)
        if (!stage_history_write(&e->loaded->stages[i], slot, tokens, n, &err))
            engine_fail(e, &err);
    if (e->loaded->remote)
        remote_history_write(e->loaded->remote, slot, tokens, n);
}

void engine_tell_adapters(struct engine *e, uint32_t slot, const float *scales)
{
    static const float none[MOST_ADAPTERS];
    struct err err = { 0 };
    uint32_t n = e->loaded->adapters.n;

    if (tells_later(e)) {
        if (n > 0)
            pipeline_tell(e->pipeline, (uint32_t[4]){ PIPELINE_SCALES, slot, 0, n },
                          (const uint32_t *)(const void *)(scales ? scales : none));
        return;
    }
    for (uint32_t i = 0; i < e->loaded->n_stages; i++) {
        struct stage *s = &e->loaded->stages[i];
        if (!adapters_write(s, slot, scales, &err) ||
            (s->away && !adapters_write(&s->away->stage, slot, scales, &err)))
            engine_fail(e, &err);
    }
}

static uint32_t results_at(const struct engine *e, const struct batch *b)
{
    return stage_results_at(&e->loaded->stages[e->loaded->n_stages - 1], b->fetch);
}

const struct step *engine_lay_out(const struct engine *e, struct batch *b)
{
    const struct stage *first = &e->loaded->stages[0];
    const struct bucket *bucket = &first->buckets[stage_bucket_index(first, b->n_rows, b->n_outputs)];

    batch_layout(b, bucket->max_rows, bucket->max_outputs);
    b->step->results_at = results_at(e, b);
    return b->step;
}

bool engine_play_from(struct engine *e, const struct batch *b, uint32_t first, struct err *err)
{
    if (!e->loaded->remote && !write_constraints(e, b, err))
        return false;
    for (uint32_t i = first; i < e->loaded->n_stages; i++) {
        if (i > first && !link_pass(&e->loaded->links[i - 1], b->n_rows, err))
            return false;
        if (!(e->loaded->group ? group_play(e->loaded->group, b->step, err)
                               : stage_play(&e->loaded->stages[i], b->step, err)))
            return false;
    }
    return true;
}

bool engine_play(struct engine *e, struct batch *b, struct err *err)
{
    engine_lay_out(e, b);
    return engine_play_from(e, b, 0, err);
}

bool engine_fetch(struct engine *e, struct batch *b, struct err *err)
{
    struct stage *last = &e->loaded->stages[e->loaded->n_stages - 1];
    struct device_span span = { results_at(e, b) * sizeof *b->results, b->n_outputs * sizeof *b->results };

    if (e->loaded->remote)
        return remote_send(e->loaded->remote, b, last, constraint_of, err);
    if (last->device->queue)
        return device_fetch(last->device, &last->results, span, b->fetch, err);
    return last->device->ops->wait(last->device, err) &&
           (span.bytes == 0 || buffer_read(&last->results, span.offset, b->results, span.bytes, err));
}

bool engine_collect(struct engine *e, struct batch *b, struct err *err)
{
    struct stage *last = &e->loaded->stages[e->loaded->n_stages - 1];

    if (e->loaded->remote)
        return remote_collect(e->loaded->remote, b, err);
    return (!last->device->queue ||
            device_collect(last->device, b->fetch, b->results, b->n_outputs * sizeof *b->results, err)) &&
           (!e->loaded->group || group_check(e->loaded->group, err));
}

// The last stage writes tokens to the history from which the first one reads them.
static bool one_history(const struct engine_loaded *l)
{
    if (l->remote)
        return false;
    for (uint32_t i = 1; i < l->n_stages; i++)
        if (!l->stages[i].borrows_tables)
            return false;
    return true;
}

// Where experts are elsewhere, or ranks exchange through it.
static bool host_takes_part(const struct engine_loaded *l)
{
    if (l->group)
        return !group_goes_ahead(l->group);
    for (uint32_t i = 0; i < l->n_stages; i++)
        if (l->stages[i].away)
            return true;
    return false;
}

// Fills the next step, to be submitted before the current step's tokens are known. Only on devices with a
// queue. Not where the host computes a part of a step: the current results would wait for the next step. Not
// where limits pace the steps, nor on a device in doubt, which is checked first. The state lock is held.
static bool fill_ahead(struct engine *e)
{
    batch_clear(e->ahead);
    return e->loaded->stages[0].device->queue && (one_history(e->loaded) || e->loaded->returns_tokens) &&
           !host_takes_part(e->loaded) && pace_share(&e->pace) >= 1 && !e->health.in_doubt &&
           schedule_ahead(e);
}

// Tokens that the last stage draws in the step before.
static bool return_tokens(const struct engine_loaded *l, const struct batch *b, struct err *err)
{
    for (uint32_t i = 0; i < b->n_decode && l->returns_tokens; i++)
        if (!link_return_token(&l->stages[l->n_stages - 1], &l->stages[0], b->rows[i].slot,
                               b->rows[i].position, err))
            return false;
    return true;
}

static bool play_stages(struct engine *e, struct batch *b, struct err *err)
{
    return engine_play(e, b, err) && engine_fetch(e, b, err);
}

// Plays the batch unless it was played ahead, then plays the next one ahead, and waits for the results of the
// first.
static bool run_batch(struct engine *e, struct err *err)
{
    if (e->is_ahead) {
        struct batch *b = e->batch;
        e->batch = e->ahead;
        e->ahead = b;
        e->is_ahead = false;
    } else if (!tiles_encode(e, err)) {
        return false;
    } else if (e->batch->n_rows == 0 || !play_stages(e, e->batch, err)) {
        return e->batch->n_rows == 0;
    }
    pthread_mutex_lock(&e->state);
    e->is_ahead = fill_ahead(e);
    e->block_is_fresh = !e->is_ahead;
    pthread_mutex_unlock(&e->state);
    return (!e->is_ahead || (return_tokens(e->loaded, e->ahead, err) && play_stages(e, e->ahead, err))) &&
           engine_collect(e, e->batch, err);
}

// The output's row of logits, on the host; valid until the next call. NULL after a failure.
static const float *logits_of(const struct engine *e, uint32_t output, struct err *err)
{
    const struct buffer *logits = &e->loaded->stages[e->loaded->n_stages - 1].logits;
    uint64_t bytes = e->loaded->model.config.n_vocab * sizeof(float);

    if (e->loaded->remote)
        return remote_logits(e->loaded->remote, e->batch, output);
    if (logits->host)
        return (const float *)logits->host + (uint64_t)output * e->loaded->model.config.n_vocab;
    return buffer_read(logits, output * bytes, e->logits, bytes, err) ? e->logits : NULL;
}

static void deliver(struct engine *e, uint64_t ns)
{
    struct err failure = { 0 };

    if (!pool_collect(e, &failure)) {
        engine_fail(e, &failure);
        return;
    }
    for (uint32_t i = 0; i < e->batch->n_outputs; i++) {
        const struct batch_output *o = &e->batch->outputs[i];
        struct request *r = o->request;
        struct err err = { 0 };
        uint32_t position = e->batch->rows[o->row].position;
        if (!r || r->state == REQUEST_DONE || !request_is_right(r, position))
            continue;
        struct request_output output = { .position = position,
                                         .token = o->params.flags & SAMPLE_SKIP ? UINT32_MAX
                                                                                : e->batch->results[i],
                                         .logits = r->n_logits ? logits_of(e, i, &err) : NULL };
        if (err.code != ERR_NONE || !request_accept(r, &output, &err)) {
            e->health.in_doubt |= err.code == ERR_NUMERIC;
            request_finish(r, INGOT_FINISH_ERROR, &err);
        }
    }
    speculate_note(e, ns);
}

// A step in flight has its share of the time since the one before it was over.
static uint64_t step_ns(struct engine *e, uint64_t begun)
{
    uint64_t now = clock_ns(), played = e->batch->played_ns;

    if (e->flight.most > 1)
        begun = played > e->flight.ended_ns ? played : e->flight.ended_ns;
    e->flight.ended_ns = now;
    return now - begun;
}

static void note_step(struct engine *e, bool encoded, uint64_t ns)
{
    const struct batch *b = e->batch;

    if (encoded)
        prefill_budget_note_encoding(&e->prefill_budget, b->n_decode);
    else
        prefill_budget_note(&e->prefill_budget, b->n_decode, b->n_rows - b->n_decode, ns);
    e->n_steps++;
    e->n_rows += b->n_rows;
    pace_note_step(&e->pace, ns);
}

// Drops a decode-only step that was submitted ahead if all its requests have ended since; what it wrote is
// never read.
static void drop_ahead(struct engine *e)
{
    if (e->ahead->n_rows > e->ahead->n_decode)
        return;
    for (uint32_t i = 0; i < e->ahead->n_outputs && e->is_ahead; i++)
        if (e->ahead->outputs[i].request && e->ahead->outputs[i].request->state != REQUEST_DONE)
            return;
    e->is_ahead = false;
}

static void schedule(struct engine *e)
{
    if (e->flight.n > 0 && schedule_reads_back(e))
        batch_clear(e->batch);
    else
        schedule_next(e);
}

static void fail_all(struct engine *e)
{
    for (struct request *r = e->first; r; r = r->next)
        request_finish(r, INGOT_FINISH_ERROR, &e->failure);
}

// Without drafts the engine only becomes slower.
static void run_draft_model(struct engine *e)
{
    struct err err = { 0 };

    if (e->draft_model && !draft_model_run(e, &err)) {
        log_line(LOG_WARN, "engine", "%s; it drafts no more", err.message);
        draft_model_close(e->draft_model);
        e->draft_model = NULL;
    }
    if (e->draft_stage && !draft_stage_run(e, &err)) {
        log_line(LOG_WARN, "engine", "%s; it drafts no more", err.message);
        draft_stage_close(e->draft_stage);
        e->draft_stage = NULL;
    }
}

// Waits as the limits say, without `stepping`: other calls need not wait for that. False: no step yet.
static bool may_step(struct engine *e, bool *busy)
{
    if (!usage_limits_any(&e->pace.set)) // constant
        return true;
    pthread_mutex_lock(&e->state);
    e->is_stepping = true;
    bool may = hold_step(e);
    if (!may) {
        *busy = true;
        e->is_stepping = false;
        wait_wake(e);
    }
    pthread_mutex_unlock(&e->state);
    return may;
}

bool engine_step(struct engine *e, bool *busy, struct err *err)
{
    struct err failure = { 0 };

    if (!may_step(e, busy))
        return true;
    wait_for_turns(e);
    pthread_mutex_lock(&e->stepping);
    pthread_mutex_lock(&e->state);
    e->is_stepping = true;
    drop_ahead(e);
    pthread_mutex_unlock(&e->state);
    if (!e->failed && !e->is_ahead)
        run_draft_model(e);
    pthread_mutex_lock(&e->state);
    if (!e->failed && !e->is_ahead)
        schedule(e);
    bool encodes = !e->is_ahead && tiles_in_step(e), asks = health_is_due(e);
    bool in_flight = e->flight.most > 1 && !e->is_ahead && !flight_waits_for_one(e);
    pthread_mutex_unlock(&e->state);
    uint64_t begun = clock_ns();
    bool ok = e->failed || ((!asks || health_check(e, &failure)) &&
                            (in_flight ? flight_run(e, &failure) : run_batch(e, &failure)));
    if (!ok && e->loaded->remote) // why it was stopped
        ranks_is_lost(e->loaded->remote->ranks, &failure);
    uint64_t ns = e->batch->n_rows > 0 ? step_ns(e, begun) : 0;
    ok = ok && !model_file_lost(e->loaded->file, &failure) && !model_file_lost(e->loaded->eyes, &failure);
    pthread_mutex_lock(&e->state);
    if (ok && e->batch->n_rows > 0)
        note_step(e, encodes, ns);
    if (!ok)
        engine_fail(e, &failure);
    e->health.seen_ns = pace_clock(&e->pace);
    if (e->failed)
        fail_all(e);
    else if (e->batch->n_rows > 0)
        deliver(e, ns);
    if (e->failed)
        health_recover(e);
    *busy = false;
    for (const struct request *r = e->first; r; r = r->next)
        *busy |= !request_is_idle(r);
    ok = !e->failed;
    if (!ok && err)
        *err = e->failure;
    e->is_stepping = false;
    wait_wake(e);
    pthread_mutex_unlock(&e->state);
    pthread_mutex_unlock(&e->stepping);
    return ok;
}
