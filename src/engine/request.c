// request.c - see request.h.
#include "engine/request.h"
#include "base/err.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/kv/kv_window.h"
#include "engine/prompt.h"

enum { UNREAD_BYTES = 256 << 20 }; // of logits that the caller has not taken

static struct sample_params params_from(const struct ingot_sampling *s)
{
    return (struct sample_params){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .penalty_window = s->penalty_window,
        .seed = { (uint32_t)s->seed, (uint32_t)(s->seed >> 32) },
    };
}

struct range {
    const char *name;
    float value, min, max;
};

static bool sampling_check(const struct ingot_sampling *s, struct err *err)
{
    const struct range ranges[] = {
        { "temperature", s->temperature, 0, 1000 },
        { "top_p", s->top_p, 0, 1 },
        { "min_p", s->min_p, 0, 1 },
        { "repeat_penalty", s->repeat_penalty, 1e-3f, 1000 },
        { "presence_penalty", s->presence_penalty, -1000, 1000 },
        { "frequency_penalty", s->frequency_penalty, -1000, 1000 },
    };

    for (size_t i = 0; i < sizeof s->reserved / sizeof *s->reserved; i++)
        if (s->reserved[i])
            return err_set(err, ERR_INPUT, "reserved word %zu of the sampling is %u; want 0", i,
                           s->reserved[i]);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return err_set(err, ERR_INPUT, "%s is %g; want %g to %g", ranges[i].name, (double)ranges[i].value,
                           (double)ranges[i].min, (double)ranges[i].max);
    return true;
}

// Whether the prompt has pictures, whose places have no token.
static bool prompt_check(const struct request *r, const struct ingot_request_options *o, struct err *err)
{
    const struct engine *e = r->engine;
    bool sees = o->n_pictures > 0;

    if (r->n_prompt == 0)
        return err_set(err, ERR_INPUT, "the prompt is empty; give at least one token");
    if (o->embed && r->n_prompt > e->loaded->n_context)
        return err_set(err, ERR_LIMIT,
                       "the text has %u token%s and the context holds %u; shorten it or raise %s",
                       r->n_prompt, str_plural(r->n_prompt), e->loaded->n_context, err_option("n_context"));
    if (!o->embed && r->n_prompt >= e->loaded->n_context)
        return err_set(
            err, ERR_LIMIT,
            "the prompt has %u token%s and the context holds %u, the answer included; shorten it or raise %s",
            r->n_prompt, str_plural(r->n_prompt), e->loaded->n_context, err_option("n_context"));
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->tokens[i] >= e->loaded->model.config.n_vocab && !(sees && r->tokens[i] == INGOT_IMAGE_PLACE))
            return err_set(err, ERR_INPUT, "token %u of the prompt is %u; the model has %u", i, r->tokens[i],
                           e->loaded->model.config.n_vocab);
    return true;
}

static bool request_fill(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    struct token_ids ids = { 0 };

    if (!sampling_check(&o->sampling, err) || !prompt_tokens(r->engine, o, &ids, err)) {
        token_ids_free(&ids);
        return false;
    }
    r->tokens = ids.ids;
    r->n_tokens = r->n_prompt = ids.n > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)ids.n;
    if (!prompt_check(r, o, err) || !tiles_take(r, o, err))
        return false;
    uint32_t room = r->engine->loaded->n_context - r->n_prompt;
    r->max_tokens = o->max_tokens == 0 || o->max_tokens > room ? room : o->max_tokens;
    uint32_t n_rows = o->n_logits > o->n_logprobs ? o->n_logits : o->n_logprobs;
    r->n_logits = n_rows < r->n_prompt ? n_rows : r->n_prompt;
    r->gives_logits = o->n_logits > 0;
    r->n_unread = o->n_unread ? o->n_unread
                              : UNREAD_BYTES / sizeof(float) / r->engine->loaded->model.config.n_vocab + 1;
    r->max_tokens = o->embed ? 1 : r->max_tokens;
    r->next_logits = r->n_prompt - (r->n_logits > 1 ? r->n_logits : 1);
    uint32_t *tokens = mem_realloc(r->tokens, ((size_t)r->n_prompt + r->max_tokens) * sizeof *tokens);
    if (!tokens)
        return err_memory(err, "a request's tokens");
    r->tokens = tokens;
    r->n_events_max = r->max_tokens + r->n_logits + 2;
    r->events = mem_alloc_array(r->n_events_max, sizeof *r->events);
    if (!r->events)
        return err_memory(err, "a request's events");
    if (!adapters_take(&r->engine->loaded->adapters, o, &r->scales, err) ||
        !adapters_key(&r->engine->loaded->adapters, r->scales, &r->adapters_key, err))
        return false;
    if (!constraint_create(&r->constraint, r->engine, o, err) || !pool_create(&r->pool, r->engine, o, err) ||
        !token_logprobs_create(&r->logprobs, o, err) || !speculate_create(r, err))
        return false;
    struct detokenizer_options options = { r->max_tokens, r->engine->loaded->longest_token, o->stop,
                                           o->n_stop };
    return detokenizer_create(&r->detokenizer, &options, err);
}

struct request *request_create(struct engine *e, const struct ingot_request_options *o, struct err *err)
{
    struct request *r = mem_alloc(sizeof *r);

    if (!r) {
        err_memory(err, "a request");
        return NULL;
    }
    *r = (struct request){ .engine = e,
                           .ignore_eos = o->ignore_eos,
                           .deferred = o->deferred,
                           .keep_special = o->keep_special || o->ignore_eos,
                           .params = params_from(&o->sampling),
                           .session = o->session,
                           .event_size = o->event_size,
                           .result_size = o->result_size,
                           .priority = o->priority,
                           .submitted_ns = clock_ns() };
    if (o->deadline_ms)
        r->deadline_ns = r->submitted_ns + o->deadline_ms * 1000000ull;
    if (request_fill(r, o, err)) {
        r->result.n_prompt = r->n_prompt;
        return r;
    }
    request_destroy(r);
    return NULL;
}

void request_destroy(struct request *r)
{
    for (uint32_t i = 0; r->events && i < r->n_events; i++)
        mem_free(r->events[i].logits);
    mem_free(r->events);
    mem_free(r->tokens);
    mem_free(r->scales);
    constraint_release(&r->constraint);
    pool_release(&r->pool);
    token_logprobs_release(&r->logprobs);
    ngram_release(&r->speculated.ngram);
    tiles_release(&r->tiles);
    detokenizer_release(&r->detokenizer);
    mem_free(r);
}

static bool add_row(struct request *r, struct batch *b, uint32_t token, bool is_draft)
{
    struct ingot_session *s = r->session;

    if (!engine_grow(r->engine, s->slot, r->n_fed + 1))
        return false;
    struct batch_row row = { .token = token,
                             .position = r->n_fed,
                             .slot = s->slot,
                             .pooled_by = pool_wants(&r->pool, r->n_fed, r->n_prompt) ? r : NULL };
    if (!is_draft)
        session_state_feed(s, b, &row);
    else if (!session_state_draft(s, &row))
        return false;
    batch_add_row(b, row);
    s->tokens[r->n_fed++] = token;
    s->n_tokens = r->n_fed;
    return true;
}

static void add_output(struct request *r, struct batch *b, uint32_t flags)
{
    struct batch_output output = { .params = r->params, .request = r, .wants_logits = r->n_logits > 0 };
    const struct constraint *c = &r->constraint;

    output.params.flags = flags;
    if (!(flags & SAMPLE_SKIP) && (c->mask || c->n_biases)) {
        output.constraint = c;
        output.params.flags |= c->mask ? SAMPLE_MASKED : 0;
        output.params.n_biases = c->n_biases;
    }
    batch_add_output(b, output);
}

// Rows whose logits have not come may be taken back.
void request_advance(struct request *r)
{
    kv_window_advance(&r->engine->kv, r->session->slot,
                      r->n_fed < r->next_logits ? r->n_fed : r->next_logits);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool add_rows(struct request *r, struct batch *b, uint32_t most)
{
    for (uint32_t n = 0; n < most && r->n_fed < r->n_tokens && b->n_rows < b->max_rows; n++) {
        uint32_t token;
        bool last = r->n_fed + 1 == r->n_tokens, wanted = r->n_fed >= r->next_logits;
        if (wanted && b->n_outputs == b->max_outputs)
            return true;
        if (!tiles_token(r, &token)) // its tile has to be encoded first
            return true;
        if (!add_row(r, b, token, false))
            return n > 0;
        r->session->tokens[r->n_fed - 1] = r->tokens[r->n_fed - 1];
        if (wanted)
            add_output(r, b, last && !r->pool.kind ? 0 : SAMPLE_SKIP);
    }
    if (r->n_fed == r->n_tokens)
        r->state = REQUEST_DECODE;
    return true;
}

// The page tables of all rows are written at once.
bool request_add_rows(struct request *r, struct batch *b, uint32_t most)
{
    uint32_t n = least(least(most, r->n_tokens - r->n_fed), b->max_rows - b->n_rows);
    struct kv *kv = &r->engine->kv;

    request_advance(r);
    if (kv->window && n > 1)
        (void)engine_grow(r->engine, r->session->slot, r->n_fed + n);
    bool ok = add_rows(r, b, most);
    kv_window_cut(kv, r->session->slot, kv_pages_of(r->n_fed));
    return ok;
}

bool request_add_draft(struct request *r, struct batch *b, uint32_t token)
{
    if (!add_row(r, b, token, true))
        return false;
    add_output(r, b, 0);
    return true;
}

void request_roll_back(struct request *r)
{
    if (r->speculated.n_rows == 0 || !r->session)
        return;
    bool refused = r->n_fed > r->next_logits;
    r->n_fed = refused ? r->next_logits : r->n_fed;
    session_state_settle(r->session, r->n_fed);
    if (!refused)
        return;
    r->session->n_tokens = r->n_fed;
    kv_shrink(&r->engine->kv, r->session->slot, kv_pages_of(r->n_fed));
}

bool request_is_right(const struct request *r, uint32_t position)
{
    return position < r->n_tokens && r->session->tokens[position] == r->tokens[position];
}

bool request_is_idle(const struct request *r)
{
    return r->state == REQUEST_DONE || (r->deferred && !r->cancelled && r->state == REQUEST_QUEUED);
}

bool request_is_unread(const struct request *r)
{
    return (r->state == REQUEST_QUEUED && !r->deferred) || r->state == REQUEST_PREFILL;
}

bool request_goes_ahead(const struct request *r)
{
    bool plain = !r->n_logits && !r->pool.kind && !r->constraint.mask && r->constraint.n_biases == 0;
    bool runs = r->state == REQUEST_DECODE && r->n_fed == r->n_tokens; // the request has a row in this step
    bool reads = request_is_unread(r) && r->tiles.n == 0;
    bool in_time = r->deadline_ns == 0 || clock_ns() <= r->deadline_ns;

    return r->state == REQUEST_DONE ||
           (in_time && (request_is_idle(r) || (plain && (runs || reads) && !r->cancelled)));
}

void request_add_ahead(struct request *r, struct batch *b)
{
    bool last = r->result.n_generated + 1 == r->max_tokens;

    if (request_is_idle(r) || last || b->n_rows == b->max_rows)
        return;
    request_advance(r);
    if (!add_row(r, b, STEP_TOKEN_HISTORY, false))
        return;
    add_output(r, b, 0);
    r->is_ahead = true;
}

static struct event_record *add_event(struct request *r, uint32_t token, struct str text)
{
    CHECK(r->n_events < r->n_events_max);
    struct event_record *event = &r->events[r->n_events++];
    *event = (struct event_record){ .token = token, .text = text };
    r->engine->n_untaken++;
    return event;
}

void request_finish(struct request *r, enum ingot_finish finish, const struct err *why)
{
    // Else its session may belong to another request.
    bool runs = r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
    uint64_t now = clock_ns();

    if (r->state == REQUEST_DONE)
        return;
    r->result.finish = finish;
    if (why) {
        r->result.error.code = (enum ingot_code)why->code;
        snprintf(r->result.error.message, sizeof r->result.error.message, "%s", why->message);
    }
    if (r->first_ns)
        r->result.decode_ms = (double)(now - r->first_ns) / 1e6;
    add_event(r, UINT32_MAX, detokenizer_finish(&r->detokenizer));
    r->state = REQUEST_DONE;
    tiles_drop(r);
    request_roll_back(r);
    if (r->is_ahead) // the token of that row is discarded
        r->session->n_tokens--;
    if (runs)
        r->session->busy = false;
    if (runs && finish == INGOT_FINISH_ERROR) // its pages may hold NaN
        session_rewind(r->session, 0);
    if (r->own_session) {
        session_close(r->session);
        r->session = NULL;
    }
}

static void count_token(struct request *r)
{
    if (r->result.n_generated++ > 0)
        return;
    r->first_ns = clock_ns();
    r->result.first_token_ms = (double)(r->first_ns - r->submitted_ns) / 1e6;
    r->result.prefill_ms = (double)(r->first_ns - r->started_ns) / 1e6;
}

static bool keep_logits(struct request *r, struct event_record *event, const float *logits, struct err *err)
{
    uint32_t n = r->engine->loaded->model.config.n_vocab;

    if (r->n_kept == r->n_unread)
        return err_set(err, ERR_LIMIT,
                       "%u rows of logits wait to be taken; take events between steps, or raise n_unread",
                       r->n_kept);
    event->logits = mem_alloc_array(n, sizeof *logits);
    if (!event->logits)
        return err_memory(err, "logits for the caller");
    memcpy(event->logits, logits, n * sizeof *logits);
    r->n_kept++;
    return true;
}

void request_drop_logits(struct request *r, uint32_t event)
{
    r->n_kept -= r->events[event].logits != NULL;
    mem_free(r->events[event].logits);
    r->events[event].logits = NULL;
}

bool request_accept(struct request *r, const struct request_output *o, struct err *err)
{
    struct engine *e = r->engine;
    bool prompt_only = o->token == UINT32_MAX;
    bool end = !prompt_only && !r->ignore_eos && e->loaded->tokenizer &&
               tokenizer_is_end(e->loaded->tokenizer, o->token);
    struct str text = { "", 0 };

    if (r->is_ahead && o->position + 2 == r->n_fed) // the next row was played already
        r->session->tokens[o->position + 1] = o->token;
    else
        r->is_ahead = false;
    if (o->token == STEP_TOKEN_INVALID)
        return err_set(err, ERR_NUMERIC,
                       "the logits at position %u hold NaN or infinity; the model file may be damaged",
                       o->position);
    r->next_logits = o->position + 1;
    if (!prompt_only)
        session_index(r->session, o->position + 1);
    if (!prompt_only && !end) {
        count_token(r);
        r->tokens[r->n_tokens++] = o->token;
        if (e->loaded->tokenizer)
            text = detokenizer_push(&r->detokenizer,
                                    tokenizer_token_bytes(e->loaded->tokenizer, o->token, r->keep_special));
    }
    if (!end || o->logits) {
        struct event_record *event = add_event(r, end ? UINT32_MAX : o->token, text);
        event->position = o->position;
        if (o->logits && !keep_logits(r, event, o->logits, err))
            return false;
    }
    if (!prompt_only && !end && !r->detokenizer.stopped &&
        !constraint_accept(&r->constraint, e->loaded->tokenizer, o->token, err))
        return false;
    if (r->pool.kind && o->position + 1 == r->n_prompt) {
        if (!pool_finish(&r->pool, r->engine, err))
            return false;
        end = true;
    }
    r->result.stop = (uint32_t)r->detokenizer.stopped_by;
    if (end)
        request_finish(r, INGOT_FINISH_EOS, NULL);
    else if (r->detokenizer.stopped)
        request_finish(r, INGOT_FINISH_STOP, NULL);
    else if (!prompt_only && r->result.n_generated == r->max_tokens)
        request_finish(r, INGOT_FINISH_LENGTH, NULL);
    return true;
}
