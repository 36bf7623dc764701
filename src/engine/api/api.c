// api.c - the functions of ingot.h. They translate, lock, and leave the work to the other files.
#include "base/log.h"
#include "base/mem.h"
#include "engine/api.h"
#include "engine/kv/kv_window.h"
#include "engine/kv_persist.h"
#include "engine/stage/place.h"
#include "engine/kv/prefix.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "engine/session.h"
#include "engine/session_file.h"
#include "engine/api/sizes.h"
#include "engine/wait.h"
#include "models/arch.h"
#include "models/trellis_tensor.h"

_Static_assert(sizeof(struct ingot_error) == sizeof(struct err),
               "the public and the inner error are the same");
_Static_assert((int)INGOT_TIMEOUT == (int)ERR_TIMEOUT && (int)INGOT_LIMIT == (int)ERR_LIMIT,
               "and so are their codes");
_Static_assert((int)INGOT_LOG_DEBUG == (int)LOG_DEBUG && (int)INGOT_LOG_ERROR == (int)LOG_ERROR,
               "so are the levels of the log");

struct ingot_request {
    struct request *inner;
};

const char *ingot_version(void)
{
    return INGOT_VERSION;
}

uint32_t ingot_abi(void)
{
    return INGOT_ABI;
}

void ingot_log_set(enum ingot_log_level highest, ingot_on_log *on_log, void *arg)
{
    log_level_set((enum log_level)highest);
    log_sink_set(on_log, arg);
}

void ingot_engine_options_init(struct ingot_engine_options *options, size_t size)
{
    const struct ingot_engine_options defaults = { .size = size, .n_sequences = 1, .step_stretch = 1.75f };

    sizes_give(options, size, &defaults, sizeof defaults);
}

void ingot_request_options_init(struct ingot_request_options *options, size_t size)
{
    const struct ingot_request_options defaults = { .size = size,
                                                    .sampling = { .temperature = 0.8f,
                                                                  .top_k = 40,
                                                                  .top_p = 0.95f,
                                                                  .min_p = 0.05f,
                                                                  .repeat_penalty = 1,
                                                                  .penalty_window = 64 } };

    sizes_give(options, size, &defaults, sizeof defaults);
}

struct ingot_engine *ingot_engine_open(const struct ingot_engine_options *options, struct ingot_error *error)
{
    struct ingot_engine_options own;

    if (!sizes_take_engine(&own, options, as_err(error)))
        return NULL;
    struct ingot_engine *engine = mem_alloc(sizeof *engine);
    if (!engine) {
        err_memory(as_err(error), "an engine");
        return NULL;
    }
    if (engine_load(&engine->inner, &own, as_err(error)))
        return engine;
    mem_free(engine);
    return NULL;
}

void api_unlock_or_free(struct engine *e)
{
    bool over = e->closed && e->n_live == 0;

    pthread_mutex_unlock(&e->state);
    if (!over)
        return;
    engine_unload(e);
    mem_free(e); // the first member of struct ingot_engine
}

bool ingot_engine_estimate_fill(const struct ingot_engine_options *options, struct ingot_memory *memory,
                                size_t size, struct ingot_error *error)
{
    struct ingot_engine_options own;
    struct place_memory need;
    struct device_info device;

    if (!sizes_take_engine(&own, options, as_err(error)) ||
        !engine_estimate(&own, &need, &device, as_err(error)))
        return false;
    const struct ingot_memory all = { .weight_bytes = need.weights,
                                      .page_bytes = need.pages,
                                      .scratch_bytes = need.scratch,
                                      .free_bytes = device.free_bytes,
                                      .device_bytes = device.memory_bytes,
                                      .tower_weight_bytes = need.tower_weights,
                                      .tower_scratch_bytes = need.tower_scratch,
                                      .host_weight_bytes = need.far };
    sizes_give(memory, size, &all, sizeof all);
    return true;
}

void ingot_time_stages(struct ingot_engine *engine, bool apart)
{
    struct engine *e = &engine->inner;

    pthread_mutex_lock(&e->stepping);
    if (e->tiles)
        e->tiles->vision.times_parts = apart;
    pthread_mutex_unlock(&e->stepping);
}

void ingot_engine_close(struct ingot_engine *engine)
{
    if (!engine)
        return;
    struct engine *e = &engine->inner;
    pthread_mutex_lock(&e->state); // a thread that steps without a pause may delay the stepping lock for long
    e->closed = true;
    e->n_live++; // until this is done: the last request may be freed meanwhile
    pthread_mutex_unlock(&e->state);
    pthread_mutex_lock(&e->stepping);
    pthread_mutex_lock(&e->state);
    e->n_live--;
    for (struct request *r = e->first; r; r = r->next)
        request_finish(r, INGOT_FINISH_CANCELLED, NULL);
    kv_persist_all(e);
    wait_wake(e);
    pthread_mutex_unlock(&e->stepping);
    api_unlock_or_free(e);
}

bool ingot_engine_save(struct ingot_engine *engine, struct ingot_error *error)
{
    struct engine *e = &engine->inner;

    if (!e->kv_store)
        return err_set(as_err(error), ERR_INPUT,
                       "prompts are not kept on disk; open the engine with cache_dir");
    pthread_mutex_lock(&e->stepping);
    pthread_mutex_lock(&e->state);
    uint32_t n_failed = kv_persist_all(e);
    pthread_mutex_unlock(&e->state);
    pthread_mutex_unlock(&e->stepping);
    return n_failed == 0 || err_set(as_err(error), ERR_IO,
                                    "%u page%s could not be written to the cache directory; the log says why",
                                    n_failed, str_plural(n_failed));
}

// The format that holds most of the matrices' bytes.
static const char *main_format(const struct model *m)
{
    uint64_t bytes[N_QUANTS] = { 0 };
    enum quant best = QUANT_F32;

    for (size_t i = 0; i < (size_t)m->config.n_layers * m->n_places; i++)
        if (m->layers[i] && m->layers[i]->n_dims >= 2)
            bytes[trellis_kept_format(m->layers[i])] += trellis_kept_bytes(m->layers[i]);
    for (enum quant q = 0; q < N_QUANTS; q++)
        best = bytes[q] > bytes[best] ? q : best;
    return quant_info(best)->name;
}

static void copy_name(const struct engine *e, char *to, size_t n)
{
    struct str name = { 0 };
    const char *path = model_file_path(e->loaded->file), *slash = strrchr(path, '/');

    if (!model_file_string(e->loaded->file, "general.name", &name, NULL) || name.n == 0)
        name = str_from(slash && slash[1] ? slash + 1 : path);
    snprintf(to, n, "%.*s", STR_ARG(name));
}

static enum ingot_embed embed_of(enum model_pooling pooling)
{
    static const enum ingot_embed kinds[] = { [POOLING_NONE] = INGOT_EMBED_NONE,
                                              [POOLING_MEAN] = INGOT_EMBED_MEAN,
                                              [POOLING_CLS] = INGOT_EMBED_CLS,
                                              [POOLING_LAST] = INGOT_EMBED_LAST,
                                              [POOLING_RANK] = INGOT_EMBED_RANK };
    return kinds[pooling];
}

void ingot_engine_info_fill(const struct ingot_engine *engine, struct ingot_engine_info *info, size_t size)
{
    struct engine *e = (struct engine *)(uintptr_t)&engine->inner; // the lock is no part of what it says

    pthread_mutex_lock(&e->state);
    const struct shown shown = e->shown;
    uint32_t n_sequences = e->kv.n_slots;
    pthread_mutex_unlock(&e->state);
    struct ingot_engine_info all = {
        .n_parameters = e->loaded->model.n_parameters,
        .weight_bytes = e->loaded->model.weight_bytes + shown.draft_bytes,
        .n_layers = e->loaded->model.config.n_layers,
        .n_vocab = e->loaded->model.config.n_vocab,
        .n_embedding = e->loaded->model.config.n_cols,
        .n_context = e->loaded->n_context,
        .n_sequences = n_sequences,
        .n_batch = e->loaded->max_rows,
        .page_bytes = shown.page_bytes,
        .scratch_bytes = shown.scratch_bytes,
        .n_stages = shown.n_stages,
        .cache_type_k = (enum ingot_kv)(shown.k_format + 1),
        .cache_type_v = (enum ingot_kv)(shown.v_format + 1),
        .has_tokenizer = e->loaded->tokenizer != NULL,
        .longest_token = e->loaded->longest_token,
        .page_tokens = PAGE_TOKENS,
        .takes_pictures = e->tiles != NULL,
        .n_adapters = e->loaded->adapters.n,
        .n_vector = e->loaded->model.embedder.n_vector,
        .embed = embed_of(e->loaded->model.embedder.pooling),
        .is_encoder = e->loaded->model.arch->is_encoder,
        .ranks = pool_ranks(e),
    };
    if (e->tiles) {
        all.n_parameters += e->tiles->vision.tower.n_parameters;
        all.weight_bytes += e->tiles->vision.tower.weight_bytes;
        all.scratch_bytes += vision_scratch_bytes(&e->tiles->vision);
    }
    copy_name(e, all.model_name, sizeof all.model_name);
    snprintf(all.architecture, sizeof all.architecture, "%s", e->loaded->model.arch->name);
    snprintf(all.format, sizeof all.format, "%s", main_format(&e->loaded->model));
    memcpy(all.device, shown.device, sizeof all.device);
    sizes_give(info, size, &all, sizeof all);
}

bool ingot_adapter_info_fill(const struct ingot_engine *engine, uint32_t adapter,
                             struct ingot_adapter_info *info, size_t size)
{
    const struct adapters *all = &engine->inner.loaded->adapters;
    struct ingot_adapter_info filled = { 0 };

    if (adapter < all->n) {
        const struct named_adapter *a = &all->at[adapter];
        filled =
            (struct ingot_adapter_info){ .name = a->name, .scale = a->scale, .n_matrices = a->inner.n_parts };
        for (uint32_t i = 0; i < a->inner.n_parts; i++)
            filled.rank = a->inner.parts[i].rank > filled.rank ? a->inner.parts[i].rank : filled.rank;
    }
    sizes_give(info, size, &filled, sizeof filled);
    return adapter < all->n;
}

void ingot_engine_stats_fill(struct ingot_engine *engine, struct ingot_engine_stats *stats, size_t size)
{
    struct engine *e = &engine->inner;

    pthread_mutex_lock(&e->state);
    struct kv_window_count windows = kv_window_count(&e->kv);
    struct ingot_engine_stats all = {
        .n_pages = e->kv.n_pages,
        .n_pages_held = e->kv.n_pages - e->kv.n_free - e->kv.n_idle,
        .n_pages_idle = e->kv.n_idle,
        .n_pauses = e->n_pauses,
        .n_steps = e->n_steps,
        .n_rows = e->n_rows,
        .n_drafted = e->speculation.n_drafted,
        .n_accepted = e->speculation.n_accepted,
        .n_limited = e->pace.counters.n_started,
        .n_slowed_steps = e->pace.counters.n_slowed,
        .n_held = e->pace.counters.n_held,
        .n_load_pauses = e->pace.counters.n_pauses,
        .limits_wait_s = (double)e->pace.counters.waited_ns / 1e9,
        .is_paused = e->pace.is_paused,
        .n_window_pages = e->kv.n_windows,
        .n_window_pages_held = windows.n_held,
        .n_window_pages_idle = windows.n_idle,
    };
    for (const struct request *r = e->first; r; r = r->next) {
        all.n_running += r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
        all.n_waiting += r->state == REQUEST_QUEUED;
    }
    pthread_mutex_unlock(&e->state);
    sizes_give(stats, size, &all, sizeof all);
}

static struct ingot_request *submit(struct engine *e, const struct ingot_request_options *options,
                                    struct ingot_error *error)
{
    struct ingot_request *request = mem_alloc(sizeof *request);

    if (!request) {
        err_memory(as_err(error), "a request");
        return NULL;
    }
    request->inner = request_create(e, options, as_err(error));
    if (!request->inner) {
        mem_free(request);
        return NULL;
    }
    pthread_mutex_lock(&e->state);
    if (e->closed) {
        pthread_mutex_unlock(&e->state);
        err_set(as_err(error), ERR_INPUT, "the engine is closed; open it again");
        request_destroy(request->inner);
        mem_free(request);
        return NULL;
    }
    if (e->kv.prefix)
        request->inner->root = prefix_root(e->kv.prefix, options->cache_salt);
    request->inner->root = adapters_root(request->inner->root, &request->inner->adapters_key);
    schedule_add(e, request->inner);
    e->n_live++;
    wait_wake(e);
    pthread_mutex_unlock(&e->state);
    return request;
}

struct ingot_request *ingot_submit(struct ingot_engine *engine, const struct ingot_request_options *options,
                                   struct ingot_error *error)
{
    struct ingot_request_options own;

    return sizes_take_request(&own, options, as_err(error)) ? submit(&engine->inner, &own, error) : NULL;
}

bool ingot_step(struct ingot_engine *engine, bool *busy, struct ingot_error *error)
{
    return engine_step(&engine->inner, busy, as_err(error));
}

// The state lock is held.
static struct ingot_event take_event(struct request *r, const float **row)
{
    if (r->n_taken > 0) // the pointers of the event before end here
        request_drop_logits(r, r->n_taken - 1);
    const struct event_record *record = &r->events[r->n_taken++];
    r->engine->n_untaken--;
    *row = record->logits;
    return (struct ingot_event){
        .text = record->text.at,
        .n_bytes = record->text.n,
        .token = record->token,
        .logits = r->gives_logits ? record->logits : NULL,
        .position = record->position,
        .embedding = r->n_taken == r->n_events ? r->pool.vector : NULL,
        .done = r->state == REQUEST_DONE && r->n_taken == r->n_events,
        .result = &r->result,
        .n_numbers = r->pool.n_numbers,
    };
}

// No lock is held: the sum over a vocabulary takes as long as some small steps. Does nothing at an answer's
// end and before a picture, where no token of the vocabulary follows.
static void add_logprobs(struct request *r, const float *row, struct ingot_event *event)
{
    uint32_t token = event->token, n_vocab = r->engine->loaded->model.config.n_vocab;

    if (token == UINT32_MAX && event->position + 1 < r->n_prompt)
        token = r->tokens[event->position + 1];
    if (!row || !r->logprobs.wanted || token >= n_vocab)
        return;
    token_logprobs_fill(&r->logprobs, row, n_vocab, token);
    event->logprobs = r->logprobs.at;
    event->n_logprobs = 1 + r->logprobs.n_top;
}

bool ingot_poll(struct ingot_request *request, struct ingot_event *event)
{
    struct request *r = request->inner;
    struct ingot_event all;
    const float *row = NULL;

    pthread_mutex_lock(&r->engine->state);
    bool any = r->n_taken < r->n_events;
    if (any)
        all = take_event(r, &row);
    pthread_mutex_unlock(&r->engine->state);
    if (any) {
        add_logprobs(r, row, &all);
        sizes_give(event, r->event_size, &all, sizeof all);
    }
    return any;
}

bool ingot_wait(struct ingot_engine *engine, struct ingot_request *request, uint32_t timeout_ms)
{
    return wait_for_event(&engine->inner, request ? request->inner : NULL, timeout_ms);
}

size_t ingot_request_n_events(const struct ingot_request *request, bool *done)
{
    const struct request *r = request->inner;
    struct engine *e = r->engine;

    pthread_mutex_lock(&e->state);
    size_t n = r->n_events;
    *done = r->state == REQUEST_DONE;
    pthread_mutex_unlock(&e->state);
    return n;
}

void ingot_cancel(struct ingot_request *request)
{
    struct engine *e = request->inner->engine;

    pthread_mutex_lock(&e->state);
    request->inner->cancelled = true;
    wait_wake(e);
    pthread_mutex_unlock(&e->state);
}

void ingot_start(struct ingot_request *request)
{
    struct engine *e = request->inner->engine;

    pthread_mutex_lock(&e->state);
    request->inner->deferred = false;
    wait_wake(e);
    pthread_mutex_unlock(&e->state);
}

void ingot_request_free(struct ingot_request *request)
{
    if (!request)
        return;
    struct engine *e = request->inner->engine;
    pthread_mutex_lock(&e->stepping); // a step in flight may hold the request in its batch
    pthread_mutex_lock(&e->state);
    request_finish(request->inner, INGOT_FINISH_CANCELLED, NULL);
    schedule_remove(e, request->inner);
    batch_forget(e->ahead, request->inner);
    flight_forget(&e->flight, request->inner);
    e->n_untaken -= request->inner->n_events - request->inner->n_taken;
    request_destroy(request->inner);
    e->n_live--;
    mem_free(request);
    pthread_mutex_unlock(&e->stepping);
    api_unlock_or_free(e);
}

// Hands all waiting events to the callback. *done: the last one was among them.
static void drain(struct ingot_request *request, ingot_on_event *on_event, void *arg, bool *done)
{
    struct ingot_event event;

    while (!*done && ingot_poll(request, &event)) {
        *done = event.done;
        if (on_event && !on_event(arg, &event))
            ingot_cancel(request);
    }
}

bool ingot_generate(struct ingot_engine *engine, const struct ingot_request_options *options,
                    ingot_on_event *on_event, void *arg, struct ingot_result *result,
                    struct ingot_error *error)
{
    struct ingot_request_options own;
    bool done = false, busy, ok;

    if (!sizes_take_request(&own, options, as_err(error)))
        return false;
    struct ingot_request *request = submit(&engine->inner, &own, error);
    if (!request)
        return false;
    ingot_start(request);
    while (!done) {
        ingot_step(engine, &busy, NULL); // a failure ends the request, which says why
        drain(request, on_event, arg, &done);
        if (own.on_step && !done && !own.on_step(arg))
            ingot_cancel(request);
    }
    const struct request *r = request->inner;
    ok = r->result.finish != INGOT_FINISH_ERROR;
    if (!ok && error)
        *error = r->result.error;
    if (result)
        sizes_give(result, r->result_size, &r->result, sizeof r->result);
    ingot_request_free(request);
    return ok;
}

// All pieces of a finished request's text in one string of its own.
static char *whole_text(const struct request *r)
{
    size_t n = 0;

    for (uint32_t i = 0; i < r->n_events; i++)
        n += r->events[i].text.n;
    char *text = mem_alloc(n + 1);
    for (uint32_t i = 0, at = 0; text && i < r->n_events; at += (uint32_t)r->events[i++].text.n)
        memcpy(text + at, r->events[i].text.at, r->events[i].text.n);
    return text;
}

// The i-th of options that have the size of the first.
static struct ingot_request *submit_of(struct engine *e, const struct ingot_request_options *options,
                                       size_t i, struct ingot_error *error)
{
    const void *at = (const char *)options + i * options->size;
    struct ingot_request_options own;

    if (!sizes_take_request(&own, at, as_err(error)))
        return NULL;
    own.n_logits = own.n_logprobs = 0; // the caller has no way to read them
    own.deferred = false;
    return submit(e, &own, error);
}

bool ingot_generate_batch(struct ingot_engine *engine, const struct ingot_request_options *options, size_t n,
                          struct ingot_result *results, char **texts, struct ingot_error *error)
{
    struct ingot_request_options first;
    struct ingot_request **requests = mem_alloc_array(n, sizeof *requests);
    bool busy = true;

    if (!requests)
        return n == 0 || err_memory(as_err(error), "a batch of requests");
    if (!sizes_take_request(&first, options, as_err(error))) {
        mem_free(requests);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct ingot_result refused = { .finish = INGOT_FINISH_ERROR };
        requests[i] = submit_of(&engine->inner, options, i, &refused.error);
        sizes_give((char *)results + i * first.result_size, first.result_size, &refused, sizeof refused);
    }
    while (busy)
        ingot_step(engine, &busy, NULL);
    for (size_t i = 0; i < n; i++) {
        const struct request *r = requests[i] ? requests[i]->inner : NULL;
        if (texts)
            texts[i] = r ? whole_text(r) : NULL;
        if (r)
            sizes_give((char *)results + i * first.result_size, first.result_size, &r->result,
                       sizeof r->result);
        ingot_request_free(requests[i]);
    }
    mem_free(requests);
    return true;
}

struct ingot_session *ingot_session_create(struct ingot_engine *engine, struct ingot_error *error)
{
    pthread_mutex_lock(&engine->inner.state);
    struct ingot_session *s = session_open(&engine->inner, as_err(error));
    pthread_mutex_unlock(&engine->inner.state);
    return s;
}

uint32_t ingot_session_n_tokens(const struct ingot_session *session)
{
    return session->n_tokens;
}

uint32_t ingot_session_tokens(const struct ingot_session *session, uint32_t *tokens, uint32_t capacity)
{
    for (uint32_t i = 0; i < session->n_tokens && i < capacity; i++)
        tokens[i] = session->tokens[i] < STEP_TOKEN_POOLED ? session->tokens[i] : INGOT_IMAGE_PLACE;
    return session->n_tokens;
}

bool ingot_session_save(struct ingot_session *session, const char *path, struct ingot_error *error)
{
    struct engine *e = session->engine;

    pthread_mutex_lock(&e->stepping); // a step in flight may take pages from the same memory
    pthread_mutex_lock(&e->state);
    bool ok = session->busy ? err_set(as_err(error), ERR_INPUT,
                                      "a request runs on the session; save it when that has ended")
                            : session_file_save(session, path, as_err(error));
    pthread_mutex_unlock(&e->state);
    pthread_mutex_unlock(&e->stepping);
    return ok;
}

struct ingot_session *ingot_session_load(struct ingot_engine *engine, const char *path,
                                         struct ingot_error *error)
{
    struct engine *e = &engine->inner;

    pthread_mutex_lock(&e->stepping);
    pthread_mutex_lock(&e->state);
    struct ingot_session *s = session_file_load(e, path, as_err(error));
    pthread_mutex_unlock(&e->state);
    pthread_mutex_unlock(&e->stepping);
    return s;
}

void ingot_session_free(struct ingot_session *session)
{
    if (!session)
        return;
    struct engine *e = session->engine;
    pthread_mutex_lock(&e->stepping); // a step in flight may write into its pages
    pthread_mutex_lock(&e->state);
    for (struct request *r = e->first; r; r = r->next)
        if (r->session == session)
            request_finish(r, INGOT_FINISH_CANCELLED, NULL);
    session_close(session);
    wait_wake(e);
    pthread_mutex_unlock(&e->stepping);
    api_unlock_or_free(e);
}

void ingot_free(void *memory)
{
    mem_free(memory);
}
