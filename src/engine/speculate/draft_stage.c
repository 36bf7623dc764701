// draft_stage.c - see draft_stage.h.
#include "engine/speculate/draft_stage.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/request.h"

enum { IDLE_MOST = 16, DOUBLINGS = 10 }; // steps without a draft; of the requests between two tries

struct draft_stage {
    struct stage stage;
    struct batch *batch;
    struct request **by_slot;           // [n_slots]
    uint32_t n_given_up, n_begun, next; // requests: in a row, in all; the next that is tried
};

bool draft_stage_open(struct draft_stage **d, const struct engine *e, const struct stage_shape *shape,
                      struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    struct draft_stage *own = mem_alloc(sizeof *own);
    struct stage *before = &l->stages[l->n_stages - 1];
    struct stage_progress progress = { 0 };
    uint32_t n_layers = l->model.config.n_layers;

    if (!own)
        return err_memory(err, "the layer that drafts");
    struct stage_plan plan = { .model = &l->model,
                               .device = before->device,
                               .layers = { n_layers, n_layers + 1 },
                               .shape = &before->shape,
                               .before = before,
                               .is_draft = true };
    bool ok = batch_create(&own->batch, shape->max_rows, shape->max_outputs, err) &&
              ((own->by_slot = mem_alloc_array(shape->n_slots, sizeof *own->by_slot)) ||
               err_memory(err, "the requests by slot")) &&
              stage_create(&own->stage, &plan, &progress, err);
    for (uint32_t b = 0; ok && b < N_BUCKETS; b++)
        ok =
            stage_bucket(&own->stage, own->stage.buckets[b].max_rows, own->stage.buckets[b].max_outputs, err);
    if (ok) {
        log_line(LOG_INFO, "load", "the model's own layer for drafts is used: %.1f MiB on %s",
                 (double)l->model.draft_bytes / (1 << 20), before->device->name);
        *d = own;
        return true;
    }
    draft_stage_close(own);
    return err_prefix(err, "the layer that drafts");
}

void draft_stage_close(struct draft_stage *d)
{
    if (!d)
        return;
    stage_release(&d->stage);
    batch_free(d->batch);
    mem_free(d->by_slot);
    mem_free(d);
}

const struct stage *draft_stage_of(const struct draft_stage *d)
{
    return &d->stage;
}

bool draft_stage_reads(const struct request *r)
{
    const struct speculated *s = &r->speculated;

    return r->engine->draft_stage && s->ngram.capacity && !s->unread && r->tiles.n == 0 &&
           (r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE);
}

// Where the last requests' drafts did not pay, fewer and fewer are tried.
static void begin_request(struct draft_stage *d, struct request *r)
{
    r->speculated.unread = d->n_begun < d->next && !r->engine->speculation.always;
    d->n_begun++;
}

static void give_up(struct draft_stage *d, struct request *r)
{
    r->speculated.unread = true;
    d->n_given_up += d->n_given_up < DOUBLINGS;
    d->next = d->n_begun + (1u << d->n_given_up);
}

// The token behind the row, if the request has it and wants the row to be read; else STEP_TOKEN_HISTORY: the
// row is played, since rows keep their places, but writes no history, and to places that are not read.
static uint32_t next_token(struct draft_stage *d, const struct batch_row *row)
{
    struct request *r = d->by_slot[row->slot];

    if (r && r->speculated.n_read == 0 && draft_stage_reads(r))
        begin_request(d, r);
    if (!r || !draft_stage_reads(r) || row->position >= r->n_fed || row->position + 1 >= r->n_tokens)
        return STEP_TOKEN_HISTORY;
    struct speculated *s = &r->speculated;
    s->unread = s->n_read > 0 && row->position > s->n_read;
    s->n_read = row->position + 1;
    return s->unread ? STEP_TOKEN_HISTORY : r->tokens[row->position + 1];
}

// Whether the row that was added last gets an output: its draft would pay.
static void ask(struct draft_stage *d, struct request *r, struct speculate_step *step)
{
    struct speculated *s = &r->speculated;
    struct batch_output output = { .params = r->params, .request = r };

    if (d->batch->n_outputs == d->batch->max_outputs || speculate_asks_model(r, step) == 0) {
        bool repeats = !step->none && s->draft.n > 0; // the text's own repeats draft
        s->n_idle += !repeats;
        if (s->n_idle > IDLE_MOST || step->n_rows > SPECULATE_ROWS)
            give_up(d, r);
        return;
    }
    s->n_idle = 0;
    if (r->result.n_drafted > IDLE_MOST && r->result.draft_gain > 1)
        d->n_given_up = d->next = 0;
    output.params.flags = output.params.n_biases = 0;
    batch_add_output(d->batch, output);
}

// The rows of the step that was played last, each with the token behind it. False: none is to be read.
static bool fill(struct engine *e, struct draft_stage *d)
{
    struct speculate_step step = speculate_begin(e);
    bool any = false;

    memset(d->by_slot, 0, e->kv.n_slots * sizeof *d->by_slot);
    batch_clear(d->batch);
    for (struct request *r = e->first; r; r = r->next)
        if (r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE)
            d->by_slot[r->session->slot] = r;
    for (uint32_t i = 0; i < e->batch->n_rows; i++) {
        struct batch_row row = e->batch->rows[i];
        struct request *r = d->by_slot[row.slot];
        row.token = next_token(d, &row);
        batch_add_row(d->batch, row);
        bool is_read = row.token != STEP_TOKEN_HISTORY;
        any |= is_read;
        if (is_read && r->state == REQUEST_DECODE && row.position + 2 == r->n_tokens)
            ask(d, r, &step);
    }
    return any;
}

static bool play(struct draft_stage *d, struct err *err)
{
    struct stage *s = &d->stage;
    struct batch *b = d->batch;
    const struct bucket *bucket = &s->buckets[stage_bucket_index(s, b->n_rows, b->n_outputs)];

    return stage_play(s, batch_layout(b, bucket->max_rows, bucket->max_outputs), err) &&
           (b->n_outputs == 0 ||
            (s->device->ops->wait(s->device, err) &&
             buffer_read(&s->results, 0, b->results, b->n_outputs * sizeof *b->results, err)));
}

static void take(struct engine *e, struct draft_stage *d)
{
    for (uint32_t i = 0; i < d->batch->n_outputs; i++) {
        struct draft draft = { .tokens = { d->batch->results[i] }, .n = 1 };
        draft.n = draft.tokens[0] < e->loaded->model.config.n_vocab;
        speculate_take(d->batch->outputs[i].request, &draft);
    }
}

bool draft_stage_run(struct engine *e, struct err *err)
{
    struct draft_stage *d = e->draft_stage;
    bool fresh = e->block_is_fresh;

    e->block_is_fresh = false;
    if (!fresh || e->batch->n_rows == 0)
        return true;
    pthread_mutex_lock(&e->state);
    bool any = fill(e, d);
    pthread_mutex_unlock(&e->state);
    if (!any)
        return true;
    uint64_t begun = clock_ns();
    if (!play(d, err))
        return err_prefix(err, "the layer that drafts");
    uint64_t ns = clock_ns() - begun;
    pthread_mutex_lock(&e->state);
    take(e, d);
    // a step with prompts, or one that drew for few of its rows, does not tell what a draft costs
    speculate_note_model(e, ns, d->batch->n_rows <= 2 * d->batch->n_outputs ? 1 : 0);
    pthread_mutex_unlock(&e->state);
    return true;
}
