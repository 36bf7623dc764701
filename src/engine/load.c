// load.c - opens the model and the devices and makes the engine.
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "engine/stage/batch.h"
#include "engine/stage/link.h"
#include "engine/stage/plan.h"
#include "engine/embedded.h"
#include "engine/engine.h"
#include "engine/kv_persist.h"
#include "engine/kv/kv_store.h"
#include "engine/mmproj.h"
#include "engine/kv/prefix.h"
#include "engine/tiles.h"
#include "engine/wait.h"
#include "ops/ops.h"
#include "text/grammar/token_trie.h"
#include "text/template/chat.h"

enum { DEFAULT_CONTEXT = 8192, LARGEST_ROWS = 1 << 16, LEAST_OUTPUTS = 16, LOGITS_OF_A_STEP = 1 << 26 };

static bool within(const char *what, uint32_t value, uint32_t most, struct err *err)
{
    return value <= most || err_set(err, ERR_INPUT, "%s is %u; want at most %u", what, value, most);
}

static uint32_t choose_outputs(const struct engine_loaded *l)
{
    const struct ingot_engine_options *o = &l->options;
    uint32_t least = o->n_sequences > LEAST_OUTPUTS ? o->n_sequences : LEAST_OUTPUTS;
    uint32_t fit = LOGITS_OF_A_STEP / l->model.config.n_vocab;
    uint32_t asked = o->n_logit_rows < fit ? o->n_logit_rows : fit;
    uint32_t n = asked > least ? asked : least;

    return n < l->max_rows ? n : l->max_rows;
}

static bool choose_sizes(struct engine_loaded *l, struct err *err)
{
    const struct ingot_engine_options *o = &l->options;
    uint32_t most = l->model.config.n_context;

    if (!within("n_context", o->n_context, 1 << 24, err) ||
        !within("n_batch", o->n_batch, LARGEST_ROWS, err) ||
        !within("n_sequences", o->n_sequences, 4096, err) ||
        !within("n_kv_tokens", o->n_kv_tokens, 1u << 30, err))
        return false;
    if (o->n_context > most)
        log_line(LOG_WARN, "load", "a context of %u tokens is asked for; the model was made for %u",
                 o->n_context, most);
    l->n_context = o->n_context ? o->n_context : most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    l->max_rows = o->n_batch ? o->n_batch : 512;
    l->max_outputs = choose_outputs(l);
    return true;
}

static bool make_kv(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->loaded->options;
    uint32_t n_pages = kv_pages_of(o->n_kv_tokens), n_context = e->loaded->n_context;

    if (n_pages && n_pages < kv_pages_of(n_context))
        return err_set(err, ERR_INPUT, "n_kv_tokens is %u; want at least the context, %u", o->n_kv_tokens,
                       n_context);
    if (!kv_create(&e->kv, o->n_sequences ? o->n_sequences : 1, n_context, n_pages, err))
        return false;
    e->kv.prefix = o->no_prefix_cache ? NULL : prefix_create(e->kv.n_pages);
    return e->kv.prefix || o->no_prefix_cache || err_memory(err, "the index of prompts");
}

static bool make_batches(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;

    e->prefill_budget.stretch = l->options.step_stretch;
    return batch_create(&e->batch, l->max_rows, l->max_outputs, err) &&
           batch_create(&e->ahead, l->max_rows, l->max_outputs, err);
}

STATIC_ASSERT((int)INGOT_GEMM_OWN == (int)GEMM_OWN && (int)INGOT_GEMM_VENDOR == (int)GEMM_VENDOR);
STATIC_ASSERT(INGOT_KV_F32 == KV_F32 + 1 && INGOT_KV_Q8_0 == KV_Q8_0 + 1);

static bool on_cpu(const struct engine_loaded *l)
{
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!str_is(str_from(l->devices.at[i]->name), "cpu"))
            return false;
    return true;
}

static bool is_exact(const struct engine_loaded *l, uint32_t device)
{
    return l->options.exact || devices_is_plain(l->devices.at[device]);
}

static bool all_exact(const struct engine_loaded *l)
{
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!is_exact(l, i))
            return false;
    return true;
}

// The same on all devices. auto: f32 where all of them compute with fp32 activations, bf16 on CPUs with bf16
// dot products (twice as fast), else f16.
static enum kv_format page_format(const struct engine_loaded *l, enum ingot_kv asked)
{
    uint32_t features =
        cpu_features() & (l->options.cpu_features ? l->options.cpu_features : (uint32_t)CPU_ALL);

    if (asked != INGOT_KV_AUTO)
        return (enum kv_format)(asked - 1);
    if (all_exact(l))
        return KV_F32;
    if (l->model.config.latent_dims && !on_cpu(l)) // absorbed queries overflow fp16
        return KV_BF16;
    return on_cpu(l) && (features & CPU_AVX512_BF16) && l->model.config.head_dim % 2 == 0 ? KV_BF16 : KV_F16;
}

// What the model is made of must have kernels there: this is known before a weight is read.
static bool check_device(const struct engine_loaded *l, struct device *d, struct err *err)
{
    if (l->model.config.latent_dims && !d->ops->supports(d, OP_latent_attend))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: latent attention has no kernels on %s yet; use --device cpu",
                       model_file_path(l->file), d->name);
    return l->model.n_experts == 0 || d->ops->supports(d, OP_route) ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: this model's experts have no kernels on %s yet; use --device cpu",
                   model_file_path(l->file), d->name);
}

static bool check_devices(const struct engine_loaded *l, struct err *err)
{
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!check_device(l, l->devices.at[i], err))
            return false;
    return true;
}

// Values that are part of the keys have their format.
static bool choose_pages(const struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    static const char *const names[N_KV_FORMATS] = { "f32", "f16", "bf16", "q8_0" };
    uint32_t k = page_format(l, l->options.cache_type_k),
             v = page_format(l,
                             l->model.config.latent_dims ? l->options.cache_type_k : l->options.cache_type_v);
    struct page_shape pages = { 1, l->model.config.head_dim, 1, (u16)k, (u16)v };

    shape->k_format = (enum kv_format)k;
    shape->v_format = (enum kv_format)v;
    if (!page_fits(&pages))
        return err_set(err, ERR_UNSUPPORTED,
                       "KV pages of K %s, V %s: the model's heads have %u numbers; want a multiple of %u",
                       names[k], names[v], pages.head_dim, page_dims(page_dims(k) > page_dims(v) ? k : v));
    return true;
}

// As the first device computes; the others may differ in what is exact.
static bool choose_shape(const struct engine *e, struct stage_shape *shape, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    const struct ingot_engine_options *o = &l->options;

    *shape = (struct stage_shape){ .max_rows = l->max_rows,
                                   .max_outputs = l->max_outputs,
                                   .n_slots = e->kv.n_slots,
                                   .max_pages = e->kv.max_pages,
                                   .n_pages = e->kv.n_pages,
                                   .history_stride = l->n_context,
                                   .exact = is_exact(l, 0),
                                   .invariant = o->invariant,
                                   .gemm = (enum gemm)o->gemm };
    return choose_pages(l, shape, err);
}

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

// The memory that the stages on a device, and on devices that share its memory, need together.
static struct place_memory memory_on(const struct engine_loaded *l, const struct stage_shape *shape,
                                     uint32_t device)
{
    const struct placement *p = &l->placement;
    struct place_memory sum = { 0 };

    if (l->devices.n == 1)
        return place_memory(&l->model, shape);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!devices_share_memory(l->devices.at[device], l->devices.at[p->device[i]]))
            continue;
        struct place_memory need = place_range_memory(&l->model, shape, p->layers[i]);
        sum.weights += need.weights;
        sum.pages += need.pages;
        sum.scratch += need.scratch;
    }
    return sum;
}

static bool check_memory(const struct engine_loaded *l, const struct stage_shape *shape, struct err *err)
{
    for (uint32_t i = 0; i < l->devices.n; i++) {
        struct place_memory need = memory_on(l, shape, i);
        if (!place_check(&need, l->devices.at[i], err))
            return false;
    }
    return true;
}

static bool make_stage(struct engine_loaded *l, const struct stage_shape *shape, const struct buffer *pool,
                       struct stage_progress *progress, struct err *err)
{
    uint32_t i = l->n_stages, device = l->placement.device[i];
    struct stage *before = i ? &l->stages[i - 1] : NULL;
    struct stage_shape own = *shape;

    own.exact = is_exact(l, device);
    struct stage_plan plan = { .model = &l->model,
                               .device = l->devices.at[device],
                               .layers = l->placement.layers[i],
                               .shape = &own,
                               .pool = pool,
                               .before = before };
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

    if (!check_memory(l, shape, err))
        return false;
    l->stages = mem_alloc_array(n, sizeof *l->stages);
    l->links = mem_alloc_array(n, sizeof *l->links);
    if (!l->stages || !l->links)
        return err_memory(err, "stages");
    while (l->n_stages < n)
        if (!make_stage(l, shape, pool, &progress, err))
            return false;
    return record_tapes(l->stages, n, err);
}

static bool make_logits(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;

    if (l->stages[l->n_stages - 1].logits.host)
        return true;
    e->logits = mem_alloc_array(l->model.config.n_vocab, sizeof *e->logits);
    return e->logits || err_memory(err, "a row of logits");
}

static bool load_tokenizer(struct engine_loaded *l, struct err *err)
{
    if (!tokenizer_load(&l->tokenizer, l->file, &l->no_tokenizer)) {
        l->tokenizer = NULL;
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
static void load_chat(struct engine_loaded *l)
{
    if (!l->tokenizer)
        return;
    struct chat_source source = { tokenizer_chat_template(l->tokenizer),
                                  token_text(l->tokenizer, tokenizer_bos(l->tokenizer)),
                                  token_text(l->tokenizer, tokenizer_eos(l->tokenizer)) };
    if (chat_create(&l->chat, &source, &l->no_chat))
        return;
    l->chat = NULL;
    err_prefix(&l->no_chat, "%s: the chat template", model_file_path(l->file));
    log_line(LOG_WARN, "load", "%s", l->no_chat.message);
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
    return l;
}

static bool open_model(struct engine_loaded *l, struct err *err)
{
    return embedded_or_file(&l->file, l->options.model, err) && model_bind(&l->model, l->file, err);
}

static bool open_mmproj(struct engine *e, struct engine_loaded *l, const char *path,
                        const struct stage_shape *shape, struct err *err)
{
    return model_file_open(&l->eyes, path, err) && tiles_open(e, l->eyes, shape, err);
}

// A file that was found and not asked for must not keep the model from reading text.
static void try_mmproj(struct engine *e, struct engine_loaded *l, const struct stage_shape *shape)
{
    char path[MMPROJ_PATH_BYTES];
    struct err err;

    if (!mmproj_find(l->options.model, l->file, l->tokenizer, path))
        return;
    if (open_mmproj(e, l, path, shape, &err)) {
        log_line(LOG_INFO, "load", "%s: the eyes of this model, found beside it", path);
        return;
    }
    log_line(LOG_WARN, "load", "%s; this model takes no pictures now", err.message);
    tiles_close(e);
    model_file_close(l->eyes);
    l->eyes = NULL;
}

// In a file of its own, or in that of the model, or inside the library, or beside it.
static bool open_eyes(struct engine *e, struct engine_loaded *l, const struct stage_shape *shape,
                      struct err *err)
{
    const struct embedded *inside = embedded_of(l->options.model);

    if (l->options.mmproj)
        return !*l->options.mmproj || open_mmproj(e, l, l->options.mmproj, shape, err);
    if (inside && inside->eyes)
        return embedded_open_eyes(&l->eyes, inside, err) && tiles_open(e, l->eyes, shape, err);
    if (tower_is_in(l->file))
        return tiles_open(e, l->file, shape, err);
    try_mmproj(e, l, shape);
    return true;
}

// Of several devices without pinned borders, the plan chooses.
static bool choose_places(struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    bool pinned = l->devices.n == 1 || (l->options.stages && *l->options.stages);
    struct stage_shape own = *shape;
    bool ok = false;

    own.exact = l->options.exact;
    if (pinned)
        ok = place_stages(&l->placement, l->options.stages, l->model.config.n_layers, l->devices.n, err);
    struct plan *plan = pinned ? NULL : mem_alloc(sizeof *plan);
    if (!pinned && !plan)
        return err_memory(err, "a plan");
    if (plan && (ok = plan_layers(&(struct plan_request){ &l->model, &l->devices, &own, NULL }, plan, err)))
        l->placement = plan->placement;
    mem_free(plan);
    shape->exact = is_exact(l, l->placement.device[0]);
    return ok;
}

bool engine_plan(const struct ingot_engine_options *options, struct plan *plan, struct err *err)
{
    struct engine e = { 0 };
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(&e, options, err);
    bool ok = l && open_model(l, err) && devices_open(&l->devices, options, err) && check_devices(l, err) &&
              choose_sizes(l, err) && make_kv(&e, err) && choose_shape(&e, &shape, err);

    if (ok) {
        bool pinned = options->stages && *options->stages;
        shape.exact = options->exact;
        ok = !pinned ||
             place_stages(&l->placement, options->stages, l->model.config.n_layers, l->devices.n, err);
        ok = ok && plan_layers(&(struct plan_request){ &l->model, &l->devices, &shape,
                                                       pinned ? &l->placement : NULL },
                               plan, err);
    }
    engine_unload(&e);
    return ok;
}

// Devices that share memory count once.
static struct device_info sum_memory(const struct devices *d)
{
    struct device_info sum = { 0 };

    for (uint32_t i = 0; i < d->n; i++) {
        struct device_info info = { 0 };
        bool counted = false;
        for (uint32_t k = 0; k < i; k++)
            counted |= devices_share_memory(d->at[i], d->at[k]);
        d->at[i]->ops->info(d->at[i], &info);
        sum.memory_bytes += counted ? 0 : info.memory_bytes;
        sum.free_bytes += counted ? 0 : info.free_bytes;
    }
    return sum;
}

bool engine_estimate(const struct ingot_engine_options *options, struct place_memory *need,
                     struct device_info *device, struct err *err)
{
    struct engine e = { 0 };
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(&e, options, err);
    bool ok = l && open_model(l, err) && devices_open(&l->devices, options, err) && choose_sizes(l, err) &&
              make_kv(&e, err) && choose_shape(&e, &shape, err);

    if (ok) {
        *need = place_memory(&l->model, &shape);
        *device = sum_memory(&l->devices);
    }
    engine_unload(&e);
    return ok;
}

bool engine_load(struct engine *e, const struct ingot_engine_options *options, struct err *err)
{
    struct stage_shape shape;
    struct engine_loaded *l = begin_load(e, options, err);
    bool ok = l && open_model(l, err) && load_tokenizer(l, err) && devices_open(&l->devices, options, err) &&
              check_devices(l, err) && choose_sizes(l, err) && make_kv(e, err) && make_batches(e, err) &&
              choose_shape(e, &shape, err) && choose_places(l, &shape, err) && open_eyes(e, l, &shape, err) &&
              make_stages(l, &shape, tiles_pool(e), err) && make_logits(e, err) && kv_persist_open(e, err);

    if (!ok) {
        engine_unload(e);
        return false;
    }
    load_chat(l);
    l->options.model = l->options.device = l->options.stages = l->options.cache_dir = l->options.mmproj =
        NULL;
    return true;
}

static void unload(struct engine_loaded *l)
{
    for (uint32_t i = 0; l->links && i < l->n_stages; i++)
        link_release(&l->links[i]);
    mem_free(l->links);
    for (uint32_t i = 0; l->stages && i < l->n_stages; i++)
        stage_release(&l->stages[i]);
    mem_free(l->stages);
    devices_close(&l->devices);
    chat_destroy(l->chat);
    tokenizer_free(l->tokenizer);
    model_release(&l->model);
    model_file_close(l->file);
    model_file_close(l->eyes);
    mem_free(l);
}

void engine_unload(struct engine *e)
{
    kv_store_close(e->kv_store);
    mem_free(e->logits);
    batch_free(e->batch);
    batch_free(e->ahead);
    kv_release(&e->kv);
    tiles_close(e);
    token_trie_free(e->trie);
    mem_free(e->pool_room);
    if (e->loaded)
        unload((struct engine_loaded *)(uintptr_t)e->loaded);
    pthread_mutex_destroy(&e->stepping);
    pthread_mutex_destroy(&e->state);
    pthread_mutex_destroy(&e->making);
    wait_destroy(e);
}
