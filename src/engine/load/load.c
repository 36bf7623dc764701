// load.c - opens the model and the devices and makes the engine.
#include <stddef.h>
#include <string.h>
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "engine/ranks/agree.h"
#include "engine/stage/batch.h"
#include "engine/stage/link.h"
#include "engine/stage/remote.h"
#include "engine/embedded.h"
#include "engine/engine.h"
#include "engine/flight/flight_run.h"
#include "engine/group/group.h"
#include "engine/kv_persist.h"
#include "engine/limits/load_watch.h"
#include "engine/kv/kv_store.h"
#include "engine/pool.h"
#include "engine/load/load_check.h"
#include "engine/load/load_eyes.h"
#include "engine/load/load_memory.h"
#include "engine/load/load_place.h"
#include "engine/load/load_shape.h"
#include "engine/load/load_split.h"
#include "engine/load/rank_facts.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/draft_stage.h"
#include "engine/tiles.h"
#include "engine/wait.h"
#include "models/arch.h"
#include "text/grammar/token_trie.h"
#include "text/template/chat.h"

static bool make_batches(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;

    e->prefill_budget.stretch = l->options.step_stretch;
    e->flight.most = 1;
    return batch_create(&e->batch, l->max_rows, l->max_outputs, err) &&
           batch_create(&e->ahead, l->max_rows, l->max_outputs, err);
}

STATIC_ASSERT((int)INGOT_GEMM_OWN == (int)GEMM_OWN && (int)INGOT_GEMM_VENDOR == (int)GEMM_VENDOR);
STATIC_ASSERT(INGOT_KV_F32 == KV_F32 + 1 && INGOT_KV_Q8_0 == KV_Q8_0 + 1);

// Records every tape now: nothing is left to the first request.
static bool record_tapes(struct stage *stages, uint32_t n_stages, struct err *err)
{
    for (uint32_t i = 0; i < n_stages; i++)
        for (uint32_t b = 0; b < N_BUCKETS; b++) {
            const struct bucket *bucket = &stages[i].buckets[b];
            if (!stage_bucket(&stages[i], bucket->max_rows, bucket->max_outputs, err))
                return false;
        }
    return true;
}

// Where steps follow each other before they are over, nothing is drafted.
static bool open_draft_stage(struct engine *e, const struct stage_shape *shape, struct err *err)
{
    return !shape->drafts || e->flight.most > 1 || draft_stage_open(&e->draft_stage, e, shape, err);
}

static bool make_stage(struct engine_loaded *l, const struct stage_shape *shape, const struct buffer *pool,
                       struct stage_progress *progress, struct err *err)
{
    uint32_t i = l->n_stages, device = l->placement.device[i];
    struct stage *before = i ? &l->stages[i - 1] : NULL;
    struct stage_shape own = *shape;

    own.exact = load_is_exact(l, device);
    struct stage_plan plan = { .model = l->n_parts ? &l->parts[0] : &l->model,
                               .device = l->devices.at[device],
                               .layers = l->placement.layers[i],
                               .shape = &own,
                               .pool = pool,
                               .before = before,
                               .adapters = &l->adapters,
                               .experts = l->devices.experts,
                               .experts_exact = l->options.exact || (l->devices.experts &&
                                                                     devices_is_plain(l->devices.experts)) };
    if (!stage_create(&l->stages[i], &plan, progress, err))
        return false;
    l->n_stages++;
    return !before || link_create(&l->links[i - 1], before, &l->stages[i], err);
}

static bool make_stages(struct engine_loaded *l, const struct stage_shape *shape, const struct buffer *pool,
                        struct err *err)
{
    const struct ingot_engine_options *o = &l->options;
    struct stage_progress progress = { o->progress, o->progress_arg, 0, l->model.weight_bytes };
    uint32_t n = l->placement.n;

    if (l->remote)
        progress.total = place_range_memory(&l->model, shape, l->placement.layers[0]).weights;
    if (l->n_parts)
        progress.total = load_split_weights(l, shape);
    l->stages = mem_alloc_array(n, sizeof *l->stages);
    l->links = mem_alloc_array(n, sizeof *l->links);
    if (!l->stages || !l->links)
        return err_memory(err, "stages");
    while (l->n_stages < n)
        if (!make_stage(l, shape, pool, &progress, err))
            return false;
    return load_split_stages(l, shape, pool, &progress, err) &&
           link_returns_tokens(l->links, l->remote ? 0 : n - 1, &l->returns_tokens, err) &&
           record_tapes(l->stages, n, err);
}

static bool make_logits(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;

    if (l->stages[l->n_stages - 1].logits.host || l->model.arch->is_encoder)
        return true;
    e->logits = mem_alloc_array(l->model.config.n_vocab, sizeof *e->logits);
    return e->logits || err_memory(err, "a row of logits");
}

// Whether it may be there, and this machine could not read it.
static bool is_unsure(const struct err *why)
{
    return why->code == ERR_MEMORY || why->code == ERR_IO;
}

static bool load_tokenizer(struct engine_loaded *l, struct err *err)
{
    if (!tokenizer_load(&l->tokenizer, l->file, &l->no_tokenizer)) {
        l->tokenizer = NULL;
        if (is_unsure(&l->no_tokenizer)) {
            *err = l->no_tokenizer;
            return false;
        }
        log_line(LOG_INFO, "load", "no tokenizer: %s", l->no_tokenizer.message);
        return true;
    }
    if (tokenizer_n_tokens(l->tokenizer) > l->model.config.n_vocab)
        return err_set(err, ERR_INPUT,
                       "%s: the tokenizer has %u tokens and the model %u; they do not belong together",
                       model_file_path(l->file), tokenizer_n_tokens(l->tokenizer), l->model.config.n_vocab);
    for (uint32_t i = 0; i < tokenizer_n_tokens(l->tokenizer); i++) {
        size_t n = tokenizer_token_bytes(l->tokenizer, i, true).n;
        l->longest_token = n > l->longest_token ? (uint32_t)n : l->longest_token;
    }
    return true;
}

static struct str token_text(const struct tokenizer *t, int64_t id)
{
    return id < 0 ? (struct str){ 0 } : tokenizer_raw(t, (uint32_t)id);
}

// A template that cannot be read is an error only for a request with messages.
static bool load_chat(struct engine_loaded *l, struct err *err)
{
    if (!l->tokenizer)
        return true;
    struct chat_source source = { tokenizer_chat_template(l->tokenizer),
                                  token_text(l->tokenizer, tokenizer_bos(l->tokenizer)),
                                  token_text(l->tokenizer, tokenizer_eos(l->tokenizer)) };
    if (chat_create(&l->chat, &source, &l->no_chat))
        return true;
    l->chat = NULL;
    err_prefix(&l->no_chat, "%s: the chat template", model_file_path(l->file));
    if (is_unsure(&l->no_chat)) {
        *err = l->no_chat;
        return false;
    }
    log_line(LOG_WARN, "load", "%s", l->no_chat.message);
    return true;
}

static struct speculation speculation_of(const struct ingot_engine_options *o)
{
    bool fewer = o->draft_most > 0 && o->draft_most < SPECULATE_MOST;

    return (struct speculation){ .is_on = o->speculate != INGOT_SPECULATE_OFF,
                                 .always = o->speculate == INGOT_SPECULATE_ALWAYS,
                                 .most = fewer ? (uint32_t)o->draft_most : SPECULATE_MOST };
}

// Initialises the locks first: engine_unload is called after every error. NULL: out of memory.
static struct engine_loaded *begin_load(struct engine *e, const struct ingot_engine_options *options,
                                        struct err *err)
{
    struct engine_loaded *l = mem_alloc(sizeof *l);

    pthread_mutex_init(&e->stepping, NULL);
    pthread_mutex_init(&e->state, NULL);
    pthread_mutex_init(&e->making, NULL);
    wait_create(e);
    if (!l) {
        err_memory(err, "the engine");
        return NULL;
    }
    *l = (struct engine_loaded){ .options = *options };
    e->loaded = l;
    e->speculation = speculation_of(options);
    return l;
}

// The largest batch is a number of sequences.
static bool take_limits(struct engine *e, struct engine_loaded *l, struct err *err)
{
    struct usage_limits limits;

    if (!usage_limits_read(&limits, l->options.limits, err))
        return false;
    pace_set(&e->pace, &limits);
    if (limits.batch && l->options.n_sequences > limits.batch) {
        log_line(LOG_INFO, "limits", "%u request%s at the same time, not %u", limits.batch,
                 str_plural(limits.batch), l->options.n_sequences);
        l->options.n_sequences = limits.batch;
    }
    return true;
}

static bool open_model(struct engine_loaded *l, struct err *err)
{
    return embedded_or_file(&l->file, l->options.model, err) && model_file_guard(l->file, err) &&
           model_bind(&l->model, l->file, err) && load_split_make(l, err) &&
           adapters_open(&l->adapters, &l->model, &l->options, err);
}

static bool refuse_ranks(const struct ingot_engine_options *options, struct err *err)
{
    return !load_split_is_asked(options) ||
           err_set(err, ERR_UNSUPPORTED, "plan knows no ranks of a layer yet; leave out %s",
                   err_option("n_tensor_parallel"));
}

// What its stages take; the placement is the plan's.
static bool fill_needs(const struct engine_loaded *l, const struct stage_shape *shape, struct plan *plan,
                       struct err *err)
{
    struct load_needs needs;
    bool ok = load_memory_needs(l, shape, &needs, err);

    for (uint32_t i = 0; ok && i < needs.n; i++)
        plan->need[i] = needs.stages[i];
    return ok;
}

bool engine_plan(const struct ingot_engine_options *options, uint32_t depth, struct plan *plan,
                 struct err *err)
{
    struct engine e = { 0 };
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(&e, options, err);
    bool ok = l && refuse_ranks(options, err) && take_limits(&e, l, err) && open_model(l, err) &&
              devices_open(&l->devices, options, err) && load_check_devices(l, err) &&
              load_sizes_choose(l, err) && load_kv_make(&e, err) && load_shape_choose(&e, &shape, err) &&
              load_tokenizer(l, err) &&
              load_places_choose(&e, &shape, &(struct place_ask){ plan, depth }, err) &&
              fill_needs(l, &shape, plan, err);

    if (ok && !plan->overlaps && l->devices.n > 1)
        plan->in_turn = flight_in_turn(&e, &shape);
    plan->draft_bytes = ok && shape.drafts ? l->model.draft_bytes : 0;
    engine_unload(&e);
    return ok;
}

// Devices that share memory count once.
static struct device_info sum_memory(const struct devices *d)
{
    struct device_info sum = { 0 };

    for (uint32_t i = 0; i < d->n + (d->experts != NULL); i++) {
        struct device *one = i < d->n ? d->at[i] : d->experts;
        struct device_info info = { 0 };
        bool counted = false;
        for (uint32_t k = 0; k < i; k++)
            counted |= devices_share_memory(one, d->at[k]);
        one->ops->info(one, &info);
        sum.memory_bytes += counted ? 0 : info.memory_bytes;
        sum.free_bytes += counted ? 0 : info.free_bytes;
    }
    return sum;
}

// As an engine that is opened would, but layers are on the first device unless they are divided by hand.
static bool choose_known_places(struct engine_loaded *l, struct err *err)
{
    bool divided = l->options.stages && *l->options.stages && !l->n_parts;

    return place_stages(&l->placement, divided ? l->options.stages : NULL, l->model.config.n_layers,
                        divided ? l->devices.n : 1, err) &&
           place_borders_fit(&l->placement, &l->model, err);
}

bool engine_estimate(const struct ingot_engine_options *options, struct place_memory *need,
                     struct device_info *device, struct err *err)
{
    struct engine e = { 0 };
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(&e, options, err);
    struct load_needs needs;
    bool fits;
    bool ok = l && take_limits(&e, l, err) && open_model(l, err) && devices_open(&l->devices, options, err) &&
              load_sizes_choose(l, err) && load_kv_make(&e, err) && load_shape_choose(&e, &shape, err) &&
              load_tokenizer(l, err);

    if (ok)
        load_eyes_count(l, &shape);
    ok = ok && load_rows_choose(&e, &shape, &fits, err) && choose_known_places(l, err) &&
         load_memory_needs(l, &shape, &needs, err);
    if (ok) {
        *need = load_memory_sum(l, &needs, NULL);
        *device = sum_memory(&l->devices);
    }
    engine_unload(&e);
    return ok;
}

// Threads that the devices make have the priority of this one.
static bool open_devices(struct engine *e, struct engine_loaded *l, struct err *err)
{
    load_watch_lower_priority(&e->pace.set);
    return devices_open(&l->devices, &l->options, err);
}

// Which devices are used is known then.
static bool choose_places(struct engine *e, struct stage_shape *shape, struct err *err)
{
    if (!load_places_choose(e, shape, &(struct place_ask){ 0 }, err))
        return false;
    load_watch_begin(&e->watch, &e->loaded->devices);
    return true;
}

// All that does not take the memory of weights.
static bool choose_all(struct engine *e, struct stage_shape *shape, struct buf *facts, struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;

    return take_limits(e, l, err) && open_model(l, err) && load_tokenizer(l, err) &&
           open_devices(e, l, err) && load_check_devices(l, err) && load_sizes_choose(l, err) &&
           load_kv_make(e, err) && load_shape_choose(e, shape, err) && choose_places(e, shape, err) &&
           make_batches(e, err) && rank_facts_fit(l, err) &&
           (!l->remote || rank_facts_add(e, shape, facts, err));
}

static bool fill_all(struct engine *e, struct stage_shape *shape, struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;

    load_split_connect(l);
    bool ok = ((l->remote && !remote_is_first(l->remote)) || load_eyes_open(e, l, shape, err)) &&
              load_memory_fits(l, shape, err) && health_begin(e, err) &&
              make_stages(l, shape, tiles_pool(e), err) && make_logits(e, err) && flight_open(e, err) &&
              open_draft_stage(e, shape, err) && kv_persist_open(e, err) && load_chat(l, err) &&
              !model_file_lost(l->file, err) && !model_file_lost(l->eyes, err) && load_watch_start(e, err);

    if (ok && l->remote)
        remote_limits(l->remote, &(struct step_limits){ l->max_rows, l->max_outputs, e->kv.n_slots,
                                                        e->kv.max_pages, e->kv.n_pages, shape->n_states,
                                                        l->n_context, l->model.config.n_vocab,
                                                        l->model.config.n_cols, e->kv.n_windows, false });
    return ok;
}

static bool agree(const struct engine_loaded *l, bool ok, const char *facts, struct err *err)
{
    return l->remote ? ranks_agree(l->remote->ranks, ok, facts, err) : ok;
}

bool engine_load(struct engine *e, const struct ingot_engine_options *options, struct err *err)
{
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(e, options, err);
    struct buf facts = { 0 };
    bool ok = l && (!remote_is_wanted() || (l->remote = remote_open(err)));

    if (ok) {
        ok = choose_all(e, &shape, &facts, err);
        ok = agree(l, ok, buf_as_str(&facts).at, err) && agree(l, fill_all(e, &shape, err), "", err) &&
             (!l->remote || remote_join(l->remote, &l->stages[0], err));
    }
    buf_free(&facts);
    if (!ok) {
        engine_unload(e);
        return false;
    }
    if (options->draft && e->speculation.is_on && !draft_model_open(&e->draft_model, e, err)) {
        engine_unload(e);
        return false;
    }
    if (l->remote)
        l->remote->is_running = remote_is_first(l->remote);
    shown_update(e);
    l->options.n_batch = l->max_rows; // also where stages are made again
    l->options.model = l->options.device = l->options.stages = l->options.cache_dir = l->options.mmproj =
        l->options.experts = l->options.draft = l->options.limits = NULL;
    l->options.adapters = NULL;
    return true;
}

static void release_stages(struct engine_loaded *l)
{
    for (uint32_t i = 0; l->links && i < l->n_stages; i++)
        link_release(&l->links[i]);
    mem_free(l->links);
    group_free(l->group);
    l->group = NULL;
    for (uint32_t i = 0; l->stages && i < l->n_stages; i++)
        stage_release(&l->stages[i]);
    mem_free(l->stages);
    l->links = NULL;
    l->stages = NULL;
    l->n_stages = 0;
}

void engine_release_stages(struct engine *e)
{
    draft_model_close(e->draft_model); // on the first device, which may be the lost one
    e->draft_model = NULL;
    draft_stage_close(e->draft_stage);
    e->draft_stage = NULL;
    e->block_is_fresh = false;
    flight_close(e);
    release_stages((struct engine_loaded *)(uintptr_t)e->loaded);
    mem_free(e->logits);
    e->logits = NULL;
}

// What was kept on disk belongs to the devices as they were; cache_dir is not opened again.
bool engine_renew_pages(struct engine *e, struct err *err)
{
    kv_store_close(e->kv_store);
    kv_store_close(e->state_store);
    kv_store_close(e->window_store);
    e->kv_store = e->state_store = e->window_store = NULL;
    kv_release(&e->kv);
    e->n_renewed++;
    return load_kv_make(e, err);
}

bool engine_reload(struct engine *e, struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;
    struct stage_shape shape;

    l->options.progress = NULL; // its caller has long returned
    return load_shape_choose(e, &shape, err) &&
           load_places_choose(e, &shape, &(struct place_ask){ 0 }, err) && load_memory_fits(l, &shape, err) &&
           make_stages(l, &shape, NULL, err) && make_logits(e, err) && flight_open(e, err) &&
           open_draft_stage(e, &shape, err);
}

static void unload(struct engine_loaded *l)
{
    remote_close(l->remote);
    release_stages(l);
    devices_close(&l->devices);
    chat_destroy(l->chat);
    tokenizer_free(l->tokenizer);
    adapters_close(&l->adapters);
    load_split_release(l);
    model_release(&l->model);
    model_file_close(l->file);
    model_file_close(l->eyes);
    mem_free(l);
}

void engine_unload(struct engine *e)
{
    load_watch_stop(e);
    flight_close(e);
    draft_model_close(e->draft_model);
    draft_stage_close(e->draft_stage);
    kv_store_close(e->kv_store);
    kv_store_close(e->state_store);
    kv_store_close(e->window_store);
    mem_free(e->logits);
    batch_free(e->batch);
    batch_free(e->ahead);
    kv_release(&e->kv);
    tiles_close(e);
    token_trie_free(e->trie);
    pool_room_free(e->pool_room);
    health_end(e);
    if (e->loaded)
        unload((struct engine_loaded *)(uintptr_t)e->loaded);
    pthread_mutex_destroy(&e->stepping);
    pthread_mutex_destroy(&e->state);
    pthread_mutex_destroy(&e->making);
    wait_destroy(e);
}
