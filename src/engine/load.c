// load.c - from a path to an engine that is ready to run.
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/metal/metal.h"
#include "engine/batch.h"
#include "engine/embedded.h"
#include "engine/engine.h"
#include "engine/kv_persist.h"
#include "engine/place.h"
#include "engine/prefix.h"
#include "engine/kv_store.h"
#include "engine/wait.h"
#include "ops/cpu_table.h"
#include "ops/cuda_table.h"
#include "ops/metal_table.h"
#include "text/template/chat.h"
#include "text/grammar/token_trie.h"

enum { DEFAULT_CONTEXT = 8192, LARGEST_ROWS = 1 << 16, LEAST_OUTPUTS = 16 };

static bool open_cpu(struct engine *e, bool plain, struct err *err)
{
    struct cpu_options options = { .n_threads = e->options.n_threads,
                                   .features = e->options.cpu_features,
                                   .plain = plain,
                                   .no_repack = e->options.no_repack,
                                   .table = &cpu_table };

    e->device = cpu_open(&options, err);
    return e->device != NULL;
}

// The number in "cuda:1": 0 when there is none.
static bool device_ordinal(struct str name, size_t kind_bytes, uint32_t *ordinal, struct err *err)
{
    uint64_t n = 0;

    if (name.n > kind_bytes &&
        (name.at[kind_bytes] != ':' || !str_to_u64(str_from_to(name, kind_bytes + 1, name.n), &n) || n > 255))
        return err_set(err, ERR_INPUT, "device \"%.*s\"; want %.*s, or %.*s:N with a device's number", STR_ARG(name),
                       (int)kind_bytes, name.at, (int)kind_bytes, name.at);
    *ordinal = (uint32_t)n;
    return true;
}

static bool open_cuda(struct engine *e, struct str name, struct err *err)
{
    uint32_t ordinal = 0;

    if (!device_ordinal(name, 4, &ordinal, err))
        return false;
    e->device = cuda_open(ordinal, &cuda_table, err);
    return e->device || err_prefix(err, "device %.*s", STR_ARG(name));
}

static bool open_metal(struct engine *e, struct str name, struct err *err)
{
    char archive[1024];
    struct metal_options options = { .commit_every = e->options.commit_every, .table = &metal_table };

    if (!device_ordinal(name, 5, &options.ordinal, err))
        return false;
    if (options_state_path("metal.archive", archive, sizeof archive))
        options.archive = archive;
    e->device = metal_open(&options, err);
    return e->device || err_prefix(err, "device %.*s", STR_ARG(name));
}

// auto: the first GPU where there is one that works, else the processor.
static bool open_device(struct engine *e, struct err *err)
{
    struct str name = str_from(e->options.device ? e->options.device : "auto");
    bool plain = str_is(name, "cpu:plain");
    struct err no_cuda = { 0 }, no_metal = { 0 };

    if (str_starts(name, STR("cuda")))
        return open_cuda(e, name, err);
    if (str_starts(name, STR("metal")))
        return open_metal(e, name, err);
    if (plain || str_is(name, "cpu"))
        return open_cpu(e, plain, err);
    if (!str_is(name, "auto"))
        return err_set(err, ERR_UNSUPPORTED, "device \"%.*s\"; want auto, cpu, cpu:plain, cuda, cuda:N, metal or metal:N",
                       STR_ARG(name));
    if ((cuda_n_devices(&no_cuda) > 0 && open_cuda(e, STR("cuda"), &no_cuda)) ||
        (metal_n_devices(&no_metal) > 0 && open_metal(e, STR("metal"), &no_metal)))
        return true;
    log_line(LOG_DEBUG, "load", "on the processor: %s; %s", no_cuda.message, no_metal.message);
    return open_cpu(e, false, err);
}

static bool within(const char *what, uint32_t value, uint32_t most, struct err *err)
{
    return value <= most || err_set(err, ERR_INPUT, "%s is %u; want at most %u", what, value, most);
}

static bool make_kv(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->options;
    uint32_t n_pages = kv_pages_of(o->n_kv_tokens);

    if (n_pages && n_pages < kv_pages_of(e->n_context))
        return err_set(err, ERR_INPUT, "n_kv_tokens is %u; want at least the context, %u", o->n_kv_tokens, e->n_context);
    if (!kv_create(&e->kv, o->n_sequences ? o->n_sequences : 1, e->n_context, n_pages, err))
        return false;
    e->kv.prefix = o->no_prefix_cache ? NULL : prefix_create(e->kv.n_pages);
    return e->kv.prefix || o->no_prefix_cache || err_memory(err, "the index of prompts");
}

static bool choose_sizes(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->options;
    uint32_t most = e->model.config.n_context;

    if (!within("n_context", o->n_context, 1 << 24, err) || !within("n_batch", o->n_batch, LARGEST_ROWS, err) ||
        !within("n_sequences", o->n_sequences, 4096, err) || !within("n_kv_tokens", o->n_kv_tokens, 1u << 30, err))
        return false;
    if (o->n_context > most)
        log_line(LOG_WARN, "load", "a context of %u tokens is asked for; the model was made for %u", o->n_context, most);
    e->n_context = o->n_context ? o->n_context : most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    e->max_rows = o->n_batch ? o->n_batch : 512;
    e->max_outputs = o->n_sequences > LEAST_OUTPUTS ? o->n_sequences : LEAST_OUTPUTS;
    e->max_outputs = e->max_outputs < e->max_rows ? e->max_outputs : e->max_rows;
    e->prefill_budget.stretch = o->step_stretch;
    return make_kv(e, err) && batch_create(&e->batch, e->max_rows, e->max_outputs, err) &&
           batch_create(&e->ahead, e->max_rows, e->max_outputs, err);
}

STATIC_ASSERT((int)INGOT_GEMM_OWN == (int)GEMM_OWN && (int)INGOT_GEMM_VENDOR == (int)GEMM_VENDOR);
STATIC_ASSERT(INGOT_KV_F32 == KV_F32 + 1 && INGOT_KV_Q8_0 == KV_Q8_0 + 1);

static bool on_cpu(const struct engine *e)
{
    return str_is(str_from(e->device->name), "cpu");
}

// auto: a processor that multiplies bf16 pairs is twice as fast with them.
static enum kv_format page_format(const struct engine *e, enum ingot_kv asked, bool exact)
{
    uint32_t features = cpu_features() & (e->options.cpu_features ? e->options.cpu_features : (uint32_t)CPU_ALL);

    if (asked != INGOT_KV_AUTO)
        return (enum kv_format)(asked - 1);
    if (exact)
        return KV_F32;
    return on_cpu(e) && (features & CPU_AVX512_BF16) && e->model.config.head_dim % 2 == 0 ? KV_BF16 : KV_F16;
}

static bool choose_pages(const struct engine *e, struct stage_shape *shape, struct err *err)
{
    static const char *const names[N_KV_FORMATS] = { "f32", "f16", "bf16", "q8_0" };
    uint32_t k = page_format(e, e->options.cache_type_k, shape->exact), v = page_format(e, e->options.cache_type_v, shape->exact);
    struct page_shape pages = { 1, e->model.config.head_dim, 1, (u16)k, (u16)v };

    shape->k_format = (enum kv_format)k;
    shape->v_format = (enum kv_format)v;
    if (!page_fits(&pages))
        return err_set(err, ERR_UNSUPPORTED, "KV pages of K %s, V %s: the model's heads have %u numbers; want a multiple of %u",
                       names[k], names[v], pages.head_dim, page_dims(page_dims(k) > page_dims(v) ? k : v));
    return true;
}

static bool choose_shape(const struct engine *e, struct stage_shape *shape, struct err *err)
{
    const struct ingot_engine_options *o = &e->options;
    bool plain = o->device && strcmp(o->device, "cpu:plain") == 0;

    *shape = (struct stage_shape){ .max_rows = e->max_rows,
                                   .max_outputs = e->max_outputs,
                                   .n_slots = e->kv.n_slots,
                                   .max_pages = e->kv.max_pages,
                                   .n_pages = e->kv.n_pages,
                                   .log_stride = e->n_context,
                                   .exact = o->exact || plain,
                                   .invariant = o->invariant,
                                   .gemm = (enum gemm)o->gemm };
    return choose_pages(e, shape, err);
}

static bool make_stages(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->options;
    struct stage_shape shape;
    struct stage_progress progress = { o->progress, o->progress_arg, 0, e->model.weight_bytes };
    struct layer_range ranges[MAX_STAGES];
    uint32_t n = place_stages(o->stages, e->model.config.n_layers, ranges, err);

    if (n == 0 || !choose_shape(e, &shape, err))
        return false;
    struct place_memory need = place_memory(&e->model, &shape);
    if (!place_check(&need, e->device, err))
        return false;
    e->stages = mem_alloc_array(n, sizeof *e->stages);
    if (!e->stages)
        return err_memory(err, "stages");
    for (; e->n_stages < n; e->n_stages++) {
        struct stage_plan plan = { &e->model, e->device, ranges[e->n_stages], &shape };
        if (!stage_create(&e->stages[e->n_stages], &plan, &progress, err))
            return false;
    }
    if (!e->stages[n - 1].logits.host && !(e->logits = mem_alloc_array(e->model.config.n_vocab, sizeof *e->logits)))
        return err_memory(err, "a row of logits");
    for (uint32_t i = 0; i < n; i++) // record every tape now: nothing is left to the first request
        for (uint32_t b = 0; b < N_BUCKETS; b++) {
            const struct bucket *bucket = &e->stages[i].buckets[b];
            if (!stage_bucket(&e->stages[i], bucket->max_rows, bucket->max_outputs, err))
                return false;
        }
    return true;
}

static bool load_tokenizer(struct engine *e, struct err *err)
{
    if (!tokenizer_load(&e->tokenizer, e->file, &e->no_tokenizer)) {
        e->tokenizer = NULL;
        log_line(LOG_INFO, "load", "no tokenizer: %s", e->no_tokenizer.message);
        return true;
    }
    if (tokenizer_n_tokens(e->tokenizer) > e->model.config.n_vocab)
        return err_set(err, ERR_INPUT, "%s: the tokenizer has %u tokens and the model %u; they do not belong together",
                       model_file_path(e->file), tokenizer_n_tokens(e->tokenizer), e->model.config.n_vocab);
    for (uint32_t i = 0; i < tokenizer_n_tokens(e->tokenizer); i++) {
        size_t n = tokenizer_token_bytes(e->tokenizer, i, true).n;
        e->longest_token = n > e->longest_token ? (uint32_t)n : e->longest_token;
    }
    return true;
}

static struct str token_text(const struct tokenizer *t, int64_t id)
{
    return id < 0 ? (struct str){ 0 } : tokenizer_raw(t, (uint32_t)id);
}

// A template that cannot be read is an error only for those who send messages.
static void load_chat(struct engine *e)
{
    if (!e->tokenizer)
        return;
    struct chat_source source = { tokenizer_chat_template(e->tokenizer), token_text(e->tokenizer, tokenizer_bos(e->tokenizer)),
                                  token_text(e->tokenizer, tokenizer_eos(e->tokenizer)) };
    if (chat_create(&e->chat, &source, &e->no_chat))
        return;
    e->chat = NULL;
    err_prefix(&e->no_chat, "%s: the chat template", model_file_path(e->file));
    log_line(LOG_WARN, "load", "%s", e->no_chat.message);
}

static void begin_load(struct engine *e, const struct ingot_engine_options *options)
{
    e->options = *options;
    pthread_mutex_init(&e->stepping, NULL);
    pthread_mutex_init(&e->state, NULL);
    pthread_mutex_init(&e->making, NULL);
    wait_create(e);
}

bool engine_estimate(const struct ingot_engine_options *options, struct place_memory *need, struct device_info *device,
                     struct err *err)
{
    struct engine e = { 0 };
    struct stage_shape shape;

    begin_load(&e, options);
    bool ok = embedded_or_file(&e.file, options->model, err) && model_bind(&e.model, e.file, err) && open_device(&e, err) &&
              choose_sizes(&e, err) && choose_shape(&e, &shape, err);
    if (ok) {
        *need = place_memory(&e.model, &shape);
        e.device->ops->info(e.device, device);
    }
    engine_unload(&e);
    return ok;
}

bool engine_load(struct engine *e, const struct ingot_engine_options *options, struct err *err)
{
    begin_load(e, options);
    bool ok = embedded_or_file(&e->file, e->options.model, err) && model_bind(&e->model, e->file, err) &&
              load_tokenizer(e, err) && open_device(e, err) && choose_sizes(e, err) && make_stages(e, err) &&
              kv_persist_open(e, err);
    if (ok)
        load_chat(e);
    e->options.model = e->options.device = e->options.stages = e->options.cache_dir = NULL;
    if (!ok)
        engine_unload(e);
    return ok;
}

void engine_unload(struct engine *e)
{
    kv_store_close(e->kv_store);
    for (uint32_t i = 0; e->stages && i < e->n_stages; i++)
        stage_release(&e->stages[i]);
    mem_free(e->stages);
    mem_free(e->logits);
    batch_free(e->batch);
    batch_free(e->ahead);
    kv_release(&e->kv);
    device_close(e->device);
    chat_destroy(e->chat);
    token_trie_free(e->trie);
    mem_free(e->pool_room);
    tokenizer_free(e->tokenizer);
    model_release(&e->model);
    model_file_close(e->file);
    pthread_mutex_destroy(&e->stepping);
    pthread_mutex_destroy(&e->state);
    pthread_mutex_destroy(&e->making);
    wait_destroy(e);
}
