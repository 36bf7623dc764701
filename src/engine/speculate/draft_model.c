// draft_model.c - see draft_model.h.
#include "engine/speculate/draft_model.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/request.h"

enum { DEVICE_NAME_BYTES = 64 };

struct draft_slot {
    uint32_t *tokens, n; // [n_context]: read, in the pages
    uint32_t n_state;    // of these, what the slot's own state is behind: none that was only drafted
    struct sha256 root;  // of their salt
};

struct draft_job {
    struct request *request;
    uint32_t n;     // tokens to draft
    bool has_drawn; // it has read all of the request, and drawn the first
};

struct draft_model {
    struct engine engine;
    struct draft_slot *slots; // [n_sequences]
    struct draft_job *jobs;   // [n_sequences]
    uint32_t n_jobs;
};

// ---- opening

static bool same_tokens(const struct engine_loaded *a, const struct engine_loaded *b, struct err *err)
{
    if (!a->tokenizer || !b->tokenizer)
        return a->model.config.n_vocab == b->model.config.n_vocab ||
               err_set(err, ERR_INPUT, "the draft model has %u tokens and the model %u; want the same",
                       b->model.config.n_vocab, a->model.config.n_vocab);
    uint32_t n_a = tokenizer_n_tokens(a->tokenizer), n_b = tokenizer_n_tokens(b->tokenizer);
    for (uint32_t i = 0; i < n_a && i < n_b; i++) {
        struct str own = tokenizer_token_bytes(a->tokenizer, i, true),
                   other = tokenizer_token_bytes(b->tokenizer, i, true);
        if (own.n != other.n || memcmp(own.at, other.at, own.n) != 0)
            return err_set(
                err, ERR_INPUT,
                "the draft model's token %u is \"%.*s\" and the model's \"%.*s\"; want a model of the "
                "same family",
                i, STR_ARG(other), STR_ARG(own));
    }
    return true;
}

static bool make_slots(struct draft_model *d, uint32_t n, struct err *err)
{
    d->slots = mem_alloc_array(n, sizeof *d->slots);
    d->jobs = mem_alloc_array(n, sizeof *d->jobs);
    for (uint32_t i = 0; d->slots && i < n; i++)
        if (!(d->slots[i].tokens = mem_alloc_array(d->engine.loaded->n_context, sizeof(uint32_t))))
            return err_memory(err, "the draft model's tokens");
    return (d->slots && d->jobs) || err_memory(err, "the draft model's sequences");
}

static struct ingot_engine_options options_for(const struct engine *e, char device[DEVICE_NAME_BYTES])
{
    struct ingot_engine_options o = e->loaded->options;

    snprintf(device, DEVICE_NAME_BYTES, "%.*s", (int)strcspn(o.device ? o.device : "auto", ","),
             o.device ? o.device : "auto");
    o.device = device;
    o.model = o.draft;
    o.draft = o.stages = o.cache_dir = o.experts = o.limits = NULL;
    o.mmproj = "";
    o.adapters = NULL;
    o.n_tensor_parallel = 0;
    o.n_adapters = 0;
    o.n_context = e->loaded->n_context;
    o.n_kv_tokens = 0;
    o.no_prefix_cache = true;
    o.speculate = INGOT_SPECULATE_OFF;
    o.progress = NULL;
    return o;
}

bool draft_model_open(struct draft_model **d, const struct engine *e, struct err *err)
{
    struct draft_model *own = mem_alloc(sizeof *own);
    char device[DEVICE_NAME_BYTES];

    *d = NULL;
    if (!own)
        return err_memory(err, "a draft model");
    own->engine.is_drafter = true;
    struct ingot_engine_options o = options_for(e, device);
    if (!engine_load(&own->engine, &o, err)) {
        mem_free(own);
        return err_prefix(err, "the draft model");
    }
    if (make_slots(own, e->kv.n_slots, err) && same_tokens(e->loaded, own->engine.loaded, err)) {
        *d = own;
        return true;
    }
    draft_model_close(own);
    return false;
}

void draft_model_close(struct draft_model *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; d->slots && i < d->engine.kv.n_slots; i++)
        mem_free(d->slots[i].tokens);
    mem_free(d->slots);
    mem_free(d->jobs);
    engine_unload(&d->engine);
    mem_free(d);
}

// ---- drafting

static struct draft_slot *slot_of(struct draft_model *d, const struct draft_job *job)
{
    return &d->slots[job->request->session->slot];
}

// Both locks are held.
static void choose_jobs(struct engine *e, struct draft_model *d)
{
    struct speculate_step step = speculate_begin(e);
    uint32_t n_context = d->engine.loaded->n_context;

    d->n_jobs = 0;
    for (struct request *r = e->first; r; r = r->next) {
        uint32_t n = r->state == REQUEST_DECODE && r->n_fed + 1 == r->n_tokens && r->n_tokens < n_context
                         ? speculate_asks_model(r, &step)
                         : 0;
        n = n < n_context - r->n_tokens ? n : n_context - r->n_tokens;
        if (n > 0)
            d->jobs[d->n_jobs++] = (struct draft_job){ .request = r, .n = n };
    }
}

static bool add_row(struct draft_model *d, const struct draft_job *job, struct batch_row row)
{
    const struct request *r = job->request;

    if (!engine_grow(&d->engine, row.slot, row.position + 1))
        return false;
    batch_add_row(d->engine.batch, row);
    if (row.position + 1 < r->n_tokens)
        return true;
    struct batch_output output = { .params = r->params };
    output.params.flags = output.params.n_biases = 0;
    batch_add_output(d->engine.batch, output);
    return true;
}

// The tokens that were drafted may be refused.
static void let_go(struct draft_model *d)
{
    for (uint32_t i = 0; i < d->engine.kv.n_slots; i++)
        kv_window_advance(&d->engine.kv, i,
                          d->slots[i].n > SPECULATE_MOST ? d->slots[i].n - SPECULATE_MOST : 0);
}

// Where the slot's own state is, or the beginning: at most n tokens.
static uint32_t state_below(const struct draft_model *d, const struct draft_slot *s, uint32_t n)
{
    return !d->engine.kv.has_states || n == 0 ? n : s->n_state <= n ? s->n_state : 0;
}

// The rows of a slot, from `first` on, were added: they go on from its own state, which is then behind them.
static void move_state(struct draft_model *d, uint32_t slot, uint32_t first)
{
    struct batch *b = d->engine.batch;
    uint32_t own = kv_state_own(&d->engine.kv, slot);

    for (uint32_t i = first; i < b->n_rows; i++) {
        b->rows[i].state_from = i > first ? STATE_NEXT : b->rows[i].position ? own : STATE_ZERO;
        b->rows[i].state_to = i + 1 < b->n_rows ? STATE_NONE : own;
    }
}

// Adds what the request has and the model has not read.
static void add_unread(struct draft_model *d, struct draft_job *job)
{
    const struct request *r = job->request;
    struct draft_slot *s = slot_of(d, job);
    struct batch *b = d->engine.batch;
    uint32_t n = 0, first = b->n_rows;

    while (n < s->n && n + 1 < r->n_tokens && s->tokens[n] == r->tokens[n] && sha256_eq(&s->root, &r->root))
        n++;
    n = state_below(d, s, n);
    s->root = r->root;
    uint32_t seen = kv_window_below(&d->engine.kv, r->session->slot, n);
    n = seen < n && d->engine.kv.has_states ? 0 : seen;
    kv_shrink(&d->engine.kv, r->session->slot, kv_pages_of(n));
    kv_window_resume(&d->engine.kv, r->session->slot, n);
    for (; n < r->n_tokens && b->n_rows < b->max_rows && b->n_outputs < b->max_outputs; n++) {
        if (!add_row(d, job,
                     (struct batch_row){ .token = r->tokens[n], .position = n, .slot = r->session->slot }))
            break;
        s->tokens[n] = r->tokens[n];
    }
    move_state(d, r->session->slot, first);
    s->n = s->n_state = n;
    job->has_drawn = n == r->n_tokens;
}

// The i-th token behind the first; it reads the one before from the history.
static bool draw_next(struct draft_model *d, uint32_t i, struct err *err)
{
    batch_clear(d->engine.batch);
    for (uint32_t j = 0; j < d->n_jobs; j++) {
        struct draft_job *job = &d->jobs[j];
        uint32_t slot = job->request->session->slot, spare = kv_state_spare_of(&d->engine.kv, slot);
        struct batch_row row = { .token = STEP_TOKEN_HISTORY,
                                 .position = job->request->n_tokens + i - 1,
                                 .slot = slot,
                                 .state_from = i > 1 ? spare : kv_state_own(&d->engine.kv, slot),
                                 .state_to = spare };
        if (job->has_drawn && i < job->n && !add_row(d, job, row))
            job->n = i;
    }
    return d->engine.batch->n_rows == 0 || engine_play(&d->engine, d->engine.batch, err);
}

// Of the tokens that were drawn, all but the last have been read.
static bool take_drafts(struct engine *e, struct draft_model *d, struct draft_job *job, struct err *err)
{
    const struct engine_loaded *l = d->engine.loaded;
    const struct request *r = job->request;
    struct draft_slot *s = slot_of(d, job);
    uint64_t at = (uint64_t)r->session->slot * l->n_context + r->n_tokens;
    struct draft draft = { .n = job->n };

    if (!buffer_read(&l->stages[l->n_stages - 1].history, at * 4, draft.tokens, job->n * 4, err))
        return false;
    for (uint32_t i = 0; i + 1 < job->n; i++)
        s->tokens[s->n++] = draft.tokens[i];
    for (uint32_t i = draft.n; i-- > 0;)
        if (draft.tokens[i] >= e->loaded->model.config.n_vocab)
            draft.n = i;
    speculate_take(job->request, &draft);
    return true;
}

static bool draw(struct engine *e, struct draft_model *d, struct err *err)
{
    struct device *device = d->engine.loaded->stages[d->engine.loaded->n_stages - 1].device;
    uint32_t most = 0;

    batch_clear(d->engine.batch);
    let_go(d);
    for (uint32_t j = 0; j < d->n_jobs; j++)
        add_unread(d, &d->jobs[j]);
    if (d->engine.batch->n_rows == 0)
        return true;
    uint32_t usual = d->engine.kv.has_states ? SPECULATE_MOST + 1 : 2; // rows of the step before
    bool reads = d->engine.batch->n_rows > usual * d->n_jobs;
    uint64_t begun = clock_ns();
    if (!engine_play(&d->engine, d->engine.batch, err))
        return false;
    for (uint32_t j = 0; j < d->n_jobs; j++)
        most = d->jobs[j].has_drawn && d->jobs[j].n > most ? d->jobs[j].n : most;
    for (uint32_t i = 1; i < most; i++)
        if (!draw_next(d, i, err))
            return false;
    if (!device->ops->wait(device, err))
        return false;
    for (uint32_t j = 0; j < d->n_jobs; j++)
        if (d->jobs[j].has_drawn && !take_drafts(e, d, &d->jobs[j], err))
            return false;
    speculate_note_model(e, clock_ns() - begun, reads ? 0 : most);
    return true;
}

bool draft_model_run(struct engine *e, struct err *err)
{
    struct draft_model *d = e->draft_model;

    pthread_mutex_lock(&e->state);
    choose_jobs(e, d);
    pthread_mutex_unlock(&e->state);
    if (d->n_jobs == 0)
        return true;
    bool ok = draw(e, d, err) && !d->engine.failed;
    return ok || err_prefix(err, "the draft model");
}
