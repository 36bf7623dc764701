// speculate.c - see speculate.h.
#include "engine/speculate/speculate.h"
#include "engine/flight/flight_run.h"
#include "engine/request.h"
#include "engine/speculate/draft_stage.h"

enum { MEASURE_EVERY = 256 };             // steps
enum { SPARE_MOST = 16 };                 // sequences that may have a drafted token in a step
enum { CLASS_SURE = 3, CLASS_MODEL = 5 }; // many tokens agree; the draft model says so
static const double LEAST_GAIN = 1.02, FOLLOW = 0.3, KEEP = 0.995;
static const float RATE = 0.15f, FIRST_CHANCE[SPECULATE_CLASSES] = { 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.7f };

bool speculate_create(struct request *r, struct err *err)
{
    const struct speculation *s = &r->engine->speculation;
    struct speculated *own = &r->speculated;

    memcpy(own->chance, FIRST_CHANCE, sizeof FIRST_CHANCE);
    return !s->is_on || s->most == 0 || r->pool.kind || r->constraint.mask || r->max_tokens < 3 ||
           ngram_create(&own->ngram, r->n_prompt + r->max_tokens, err);
}

uint32_t speculate_spare_states(const struct speculation *s, uint32_t n_slots)
{
    uint32_t shared = n_slots < SPARE_MOST ? n_slots : SPARE_MOST;

    return !s->is_on ? 0 : s->most > shared ? s->most : shared;
}

// ---- what a step costs

// Of n rows, or of the nearest number below that was timed: a step that nobody tried is tried.
static double step_cost(const struct speculation *s, uint32_t n)
{
    while (n > 0 && s->step_ns[n] == 0)
        n--;
    return n > 0 ? s->step_ns[n] : 1;
}

static void note_cost(double *known, double ns)
{
    double most = 2 * *known; // a step that something else held up counts little

    *known = *known == 0 ? ns : *known + FOLLOW * ((ns < most ? ns : most) - *known);
}

struct speculate_step speculate_begin(struct engine *e)
{
    struct speculation *s = &e->speculation;
    struct speculate_step step = { 0 };
    uint32_t n_running = 0, n_free_rows, n_free_outputs;

    for (const struct request *r = e->first; r; r = r->next) {
        n_running += r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
        step.n_rows += r->state == REQUEST_DECODE;
    }
    n_free_rows = e->batch->max_rows > n_running ? e->batch->max_rows - n_running : 0;
    n_free_outputs = e->batch->max_outputs > n_running ? e->batch->max_outputs - n_running : 0;
    step.n_free = n_free_rows < n_free_outputs ? n_free_rows : n_free_outputs;
    if (e->kv.has_states && step.n_free > e->kv.n_spare)
        step.n_free = e->kv.n_spare;
    step.n_tokens = step.n_rows;
    // steps in flight are shared among requests, and a draft is taken back before the next
    step.none = !s->is_on || (e->flight.most > 1 && !flight_waits_for_one(e)) || step.n_rows == 0 ||
                step.n_rows > SPECULATE_ROWS || s->step_ns[step.n_rows] == 0 || s->n_since >= MEASURE_EVERY;
    return step;
}

// ---- the draft

static uint32_t class_of(uint32_t length)
{
    return length >= 16 ? 4 : length >= 8 ? 3 : length >= 5 ? 2 : length >= 4 ? 1 : 0;
}

static uint32_t most_tokens(const struct request *r)
{
    uint32_t left = r->max_tokens - r->result.n_generated - 1, most = r->engine->speculation.most;

    return left < most ? left : most;
}

// Of a draft model, or of the model's own draft layer.
static uint32_t most_by_model(const struct request *r)
{
    if (!r->engine->draft_model && !draft_stage_reads(r))
        return 0;
    uint32_t most = most_tokens(r);
    return r->engine->draft_model || most < DRAFT_STAGE_MOST ? most : DRAFT_STAGE_MOST;
}

// What followed the place where the last tokens stood before; if that is the end, the draft goes on with
// itself.
static void find_draft(struct request *r)
{
    struct speculated *own = &r->speculated;
    uint32_t most = most_tokens(r);
    struct ngram_match match = { 0 };

    if (own->draft.class == CLASS_MODEL && own->draft.n > 0 && own->n_known == r->n_tokens)
        return;
    own->draft.n = 0;
    if (own->ngram.capacity)
        match = ngram_find(&own->ngram, r->tokens, r->n_tokens);
    for (uint32_t i = 0; i < most && match.length > 0; i++) {
        uint32_t at = match.at + i;
        uint32_t token = at < r->n_tokens ? r->tokens[at] : own->draft.tokens[at - r->n_tokens];
        if (token >= r->engine->loaded->model.config.n_vocab) // the place of a picture
            break;
        own->draft.tokens[own->draft.n++] = token;
    }
    own->draft.class = class_of(match.length);
}

static double least_rate(const struct speculation *s, const struct speculate_step *step)
{
    return s->always ? 0 : LEAST_GAIN * step->n_tokens / step_cost(s, step->n_rows);
}

// A draft that did not pay may pay later: costs and chances are half forgotten after some hundred steps.
static void forget(struct request *r, const struct speculate_step *step)
{
    struct speculation *s = &r->engine->speculation;
    float *chance = &r->speculated.chance[r->speculated.draft.class];

    for (uint32_t n = step->n_rows + 1; n <= step->n_rows + s->most && n <= SPECULATE_ROWS; n++)
        s->step_ns[n] *= KEEP;
    *chance += (1 - (float)KEEP) * (FIRST_CHANCE[r->speculated.draft.class] - *chance);
}

// How many of the drafted tokens pay; *expected: of these the right ones.
static uint32_t choose_length(struct request *r, const struct speculate_step *step, double *expected)
{
    const struct speculation *s = &r->engine->speculation;
    double chance = 1, sum = 0, best = least_rate(s, step);
    uint32_t n = 0, most = r->speculated.draft.n;
    bool by_model = r->speculated.draft.class == CLASS_MODEL;

    most = most < step->n_free ? most : step->n_free;
    for (uint32_t k = 1; k <= most && step->n_rows + k <= SPECULATE_ROWS; k++) {
        chance *= (double)r->speculated.chance[r->speculated.draft.class];
        sum += chance;
        double ns = step_cost(s, step->n_rows + k) + (by_model ? k * s->model_ns : 0);
        double rate = (step->n_tokens + sum) / ns;
        if (rate <= best && !s->always)
            continue;
        best = rate;
        *expected = sum;
        n = k;
    }
    if (n == 0 && r->speculated.draft.n > 0)
        forget(r, step);
    return n;
}

uint32_t speculate_asks_model(struct request *r, struct speculate_step *step)
{
    struct draft *draft = &r->speculated.draft;
    double expected = 0;

    if (step->none || !r->speculated.ngram.capacity || r->tiles.n > 0 || most_by_model(r) == 0)
        return 0;
    draft->n = 0;
    find_draft(r);
    if (draft->n > 0 && draft->class >= CLASS_SURE)
        return 0;
    draft->n = most_by_model(r);
    draft->class = CLASS_MODEL;
    uint32_t n = choose_length(r, step, &expected);
    draft->n = 0;
    step->n_rows += n;
    step->n_free -= n;
    step->n_tokens += expected;
    return n;
}

void speculate_take(struct request *r, const struct draft *draft)
{
    r->speculated.draft = *draft;
    r->speculated.draft.class = CLASS_MODEL;
    r->speculated.n_known = r->n_tokens;
}

void speculate_note_model(struct engine *e, uint64_t ns, uint32_t n)
{
    e->speculation.drafting_ns = (double)ns;
    if (n > 0)
        note_cost(&e->speculation.model_ns, (double)ns / n);
}

bool speculate_wants(struct request *r, struct speculate_step *step)
{
    struct speculate_step own = *step;
    double expected;

    if (step->none || r->state != REQUEST_DECODE)
        return false;
    find_draft(r);
    return choose_length(r, step, &expected) > 0 || speculate_asks_model(r, &own) > 0;
}

// Guesses never take the pages that another request needs for this step.
static bool has_pages(const struct request *r, uint32_t n)
{
    const struct kv *kv = &r->engine->kv;
    uint32_t n_pages = kv_pages_of(r->n_fed + n), taken = kv->n_taken[r->session->slot], n_running = 0;

    for (const struct request *other = r->engine->first; other; other = other->next)
        n_running += other->state == REQUEST_PREFILL || other->state == REQUEST_DECODE;
    return n_pages <= taken || n_pages - taken + n_running <= kv_n_available(kv);
}

void speculate_add(struct request *r, struct batch *b, struct speculate_step *step)
{
    struct speculated *own = &r->speculated;
    double expected = 0;

    if (step->none || r->state != REQUEST_DECODE || r->n_fed != r->n_tokens)
        return;
    find_draft(r);
    uint32_t n = choose_length(r, step, &expected);
    if (n == 0 || !has_pages(r, n))
        return;
    while (own->n_rows < n && request_add_draft(r, b, own->draft.tokens[own->n_rows]))
        own->n_rows++;
    step->n_rows += own->n_rows;
    step->n_free -= own->n_rows;
    step->n_tokens += expected;
}

// ---- what a step has shown

static void note_chance(struct request *r, uint32_t n_accepted)
{
    float *chance = &r->speculated.chance[r->speculated.draft.class];

    for (uint32_t i = 0; i < n_accepted; i++)
        *chance += RATE * (1 - *chance);
    if (n_accepted < r->speculated.n_rows && r->state != REQUEST_DONE)
        *chance -= RATE * *chance;
}

static void note_request(struct request *r, uint32_t position, double plain_ns, double ns)
{
    struct speculated *own = &r->speculated;
    uint32_t n_accepted = r->next_logits > position ? r->next_logits - position - 1 : 0;

    note_chance(r, n_accepted);
    r->result.n_drafted += own->n_rows;
    r->result.n_accepted += n_accepted;
    r->engine->speculation.n_drafted += own->n_rows;
    r->engine->speculation.n_accepted += n_accepted;
    if (plain_ns > 0) {
        own->plain_ns += plain_ns * (1 + n_accepted);
        own->ns += ns;
        r->result.draft_gain = own->plain_ns / own->ns;
    }
    request_roll_back(r);
    own->n_rows = 0;
}

// Prompts have no outputs in a step that is timed but for their last.
static bool is_draft(const struct batch *b, uint32_t output)
{
    return output > 0 && b->outputs[output].request &&
           b->outputs[output].request == b->outputs[output - 1].request;
}

void speculate_note(struct engine *e, uint64_t ns)
{
    struct speculation *s = &e->speculation;
    const struct batch *b = e->batch;
    uint32_t n_drafted = 0;
    bool timed = b->n_rows == b->n_decode && b->n_rows <= SPECULATE_ROWS;

    if (!s->is_on)
        return;
    for (uint32_t i = 0; i < b->n_outputs; i++)
        n_drafted += is_draft(b, i);
    double plain_ns = timed ? s->step_ns[b->n_rows - n_drafted] : 0;
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        const struct batch_output *o = &b->outputs[i];
        if (o->request && o->request->speculated.n_rows > 0)
            note_request(o->request, b->rows[o->row].position, plain_ns, (double)ns + s->drafting_ns);
    }
    s->drafting_ns = 0;
    if (timed) {
        note_cost(&s->step_ns[b->n_rows], (double)ns);
        s->n_since = n_drafted > 0 ? s->n_since + 1 : 0;
    }
}
