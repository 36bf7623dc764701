// load_shape.c - see load_shape.h.
#include "engine/load/load_shape.h"
#include "base/err.h"
#include "base/log.h"
#include "device/cpu/cpu.h"
#include "engine/flight/flight_run.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"
#include "models/arch.h"
#include "models/binding/layer_config.h"

enum {
    DEFAULT_CONTEXT = 8192,
    LARGEST_ROWS = 1 << 16,
    MOST_DEFAULT_ROWS = 2048,
    LEAST_OUTPUTS = 16,
    LOGITS_OF_A_STEP = 1 << 26
};
static const double LARGE = 8e9; // weights

static bool within(const char *what, uint32_t value, uint32_t most, struct err *err)
{
    return value <= most ||
           err_set(err, ERR_INPUT, "%s is %u; want at most %u", err_option(what), value, most);
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

// An encoder reads a text in one step.
static bool fit_texts(struct engine_loaded *l, struct err *err)
{
    const struct file_tensor *positions = MODEL_TENSOR(&l->model, position_embed);

    if (!within("the context of an encoder", l->n_context, LARGEST_ROWS, err))
        return false;
    l->max_rows = l->max_rows > l->n_context ? l->max_rows : l->n_context;
    return !positions || l->n_context <= positions->dims[0] ||
           err_set(err, ERR_INPUT, "%s: a context of %u tokens; the model has positions for %llu",
                   model_file_path(l->file), l->n_context, (unsigned long long)positions->dims[0]);
}

uint32_t load_rows_of(uint64_t n_weights, uint64_t n_active)
{
    double size = (double)n_weights > LARGE ? (double)n_weights : LARGE;
    uint32_t rows = LOAD_LEAST_ROWS;

    while (rows < MOST_DEFAULT_ROWS && 2.0 * rows * (double)n_active <= LOAD_LEAST_ROWS * size)
        rows *= 2;
    return rows;
}

static uint32_t choose_rows(const struct engine_loaded *l)
{
    const struct model *m = &l->model;

    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!l->devices.at[i]->queue)
            return LOAD_LEAST_ROWS;
    return load_rows_of(m->n_parameters, m->n_parameters - m->n_idle);
}

bool load_sizes_choose(struct engine_loaded *l, struct err *err)
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
    l->max_rows = o->n_batch ? o->n_batch : choose_rows(l);
    if (l->model.arch->is_encoder && !fit_texts(l, err))
        return false;
    l->max_outputs = choose_outputs(l);
    return model_context_set(&l->model, l->n_context, err);
}

bool load_kv_make(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->loaded->options;
    uint32_t n_pages = kv_pages_of(o->n_kv_tokens), n_context = e->loaded->n_context;

    if (n_pages && n_pages < kv_pages_of(n_context))
        return err_set(err, ERR_INPUT, "%s is %u; want at least the context, %u", err_option("n_kv_tokens"),
                       o->n_kv_tokens, n_context);
    if (!kv_create(&e->kv, o->n_sequences ? o->n_sequences : 1, n_context, n_pages, err))
        return false;
    uint32_t n_spare = e->is_drafter ? e->kv.n_slots : speculate_spare_states(&e->speculation, e->kv.n_slots),
             n_states = place_states(&e->loaded->model, e->kv.n_slots, n_spare, e->kv.n_pages),
             n_kept = e->is_drafter ? 0 : n_states - e->kv.n_slots - n_spare;
    if (n_states && !kv_state_create(&e->kv, n_kept, n_spare, err))
        return false;
    bool kept = !o->no_prefix_cache && !e->loaded->model.arch->is_encoder;
    struct stage_shape shape = { .max_rows = e->loaded->max_rows,
                                 .n_slots = e->kv.n_slots,
                                 .n_pages = e->kv.n_pages };
    uint32_t n_windows = place_windows(&e->loaded->model, &shape, kept);
    if (n_windows && !kv_window_create(&e->kv, layer_config_window(&e->loaded->model), n_windows, err))
        return false;
    e->kv.prefix = kept ? prefix_create(e->kv.n_pages) : NULL;
    return e->kv.prefix || !kept || err_memory(err, "the index of prompts");
}

static bool on_cpu(const struct engine_loaded *l)
{
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!str_is(str_from(l->devices.at[i]->name), "cpu"))
            return false;
    return true;
}

bool load_is_exact(const struct engine_loaded *l, uint32_t device)
{
    return l->options.exact || devices_is_plain(l->devices.at[device]);
}

static bool all_exact(const struct engine_loaded *l)
{
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!load_is_exact(l, i))
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
    return on_cpu(l) && (features & CPU_AVX512_BF16) ? KV_BF16 : KV_F16;
}

// Values that are part of the keys have their format.
static bool choose_pages(const struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    uint32_t k = page_format(l, l->options.cache_type_k),
             v = page_format(l,
                             l->model.config.latent_dims ? l->options.cache_type_k : l->options.cache_type_v);

    shape->k_format = (enum kv_format)k;
    shape->v_format = (enum kv_format)v;
    for (uint32_t i = 0; i < l->model.config.n_layers && !l->model.arch->is_encoder; i++) {
        struct page_shape pages = { 1, l->model.layer_configs[i].head_dim, 1, (u16)k, (u16)v };
        if (!page_fits(&pages))
            return err_set(err, ERR_UNSUPPORTED,
                           "KV pages of K %s, V %s: the model's heads have %u numbers; want a multiple of %u",
                           kv_format_name(k), kv_format_name(v), pages.head_dim,
                           page_dims(page_dims(k) > page_dims(v) ? k : v));
    }
    return true;
}

// Beside the last stage, where all of it is in this process and none waits for another.
static bool uses_draft_layer(const struct engine_loaded *l)
{
    const struct ingot_engine_options *o = &l->options;

    return l->model.drafts && o->speculate != INGOT_SPECULATE_OFF && !o->draft && !l->remote && !l->n_parts &&
           !l->devices.experts && l->adapters.n == 0;
}

// It would need the head's rows of all ranks.
static void say_what_ranks_leave_out(const struct engine_loaded *l)
{
    if (l->n_parts && l->model.drafts && l->options.speculate != INGOT_SPECULATE_OFF && !l->options.draft)
        log_line(LOG_INFO, "load",
                 "the model's layer that drafts tokens is left out with %s; drafts come from the text",
                 err_option("n_tensor_parallel"));
}

bool load_shape_choose(const struct engine *e, struct stage_shape *shape, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    const struct ingot_engine_options *o = &l->options;

    *shape = (struct stage_shape){ .max_rows = l->max_rows,
                                   .max_outputs = l->max_outputs,
                                   .n_slots = e->kv.n_slots,
                                   .max_pages = e->kv.max_pages,
                                   .n_pages = e->kv.n_pages,
                                   .n_windows = e->kv.n_windows,
                                   .n_states = kv_state_rows(&e->kv),
                                   .history_stride = l->n_context,
                                   .exact = load_is_exact(l, 0),
                                   .invariant = o->invariant,
                                   .gemm = (enum gemm)o->gemm,
                                   .drafts = uses_draft_layer(l),
                                   .adapter_bytes = adapters_bytes(&l->adapters, &l->model),
                                   .adapter_ranks = adapters_most_ranks(&l->adapters, &l->model),
                                   .memory_share = e->pace.set.memory,
                                   .n_away = l->devices.n_away < l->model.config.n_layers
                                                 ? l->devices.n_away
                                                 : l->model.config.n_layers };
    say_what_ranks_leave_out(l);
    shape->overlaps = l->devices.n > 1 && !flight_in_turn(e, shape);
    return choose_pages(l, shape, err);
}
