// kv_persist.c - see kv_persist.h.
#include "engine/kv_persist.h"
#include "base/err.h"
#include "base/log.h"
#include "device/cpu/cpu.h"
#include "engine/flight/flight_run.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/kv_window.h"
#include "format/model_file.h"
#include "models/arch.h"
#include "models/binding/layer_config.h"

enum { SAMPLES = 16, SAMPLE_BYTES = 256 };
static const uint64_t DEFAULT_LIMIT = (uint64_t)10 << 30;

static void add_text(struct sha256_stream *s, const char *text)
{
    sha256_add(s, text, strlen(text) + 1);
}

static void add_number(struct sha256_stream *s, uint64_t n)
{
    sha256_add(s, &n, sizeof n);
}

// Hashes a sample of a tensor's bytes: hashing all of them would take longer than most prompts.
static void add_tensor(struct sha256_stream *s, const struct file_tensor *t)
{
    uint64_t step = t->bytes > SAMPLE_BYTES ? (t->bytes - SAMPLE_BYTES) / (SAMPLES - 1) : 0;

    sha256_add(s, t->name.at, t->name.n);
    add_number(s, (uint64_t)t->format);
    sha256_add(s, t->dims, sizeof t->dims);
    for (uint64_t i = 0; i < (step ? SAMPLES : 1); i++)
        sha256_add(s, t->data + i * step, t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES);
}

// Which device computes from which layer on, and the experts of how many. A border between stages of one
// device, or of two alike, changes nothing.
static void add_devices(struct sha256_stream *s, const struct engine_loaded *l)
{
    char kind[DEVICE_KIND_BYTES];

    for (uint32_t i = 0; i < l->n_stages; i++) {
        if (i > 0 && devices_are_alike(l->stages[i].device, l->stages[i - 1].device))
            continue;
        devices_kind(l->stages[i].device, kind);
        add_text(s, kind);
        add_number(s, l->stages[i].parts.first);
        add_number(s, l->stages[i].shape.exact);
    }
    if (l->n_parts) // whose heads are behind each other in a page
        add_number(s, l->n_parts);
    if (l->devices.experts) {
        add_text(s, l->devices.experts->name);
        add_number(s, l->stages[0].shape.n_away);
    }
}

static void add_file(struct sha256_stream *s, const struct model_file *file)
{
    for (size_t i = 0; i < model_file_n_tensors(file); i++)
        add_tensor(s, model_file_tensor_at(file, i));
    for (size_t i = 0; i < model_file_n_metas(file); i++) { // numbers such as rope's base
        const struct meta *m = model_file_meta_at(file, i);
        sha256_add(s, m->key.at, m->key.n);
        if (m->type != META_STRING && m->type != META_ARRAY)
            add_number(s, m->u);
    }
}

uint32_t kv_persist_cpu_features(const struct engine *e)
{
    uint32_t asked = e->loaded->options.cpu_features;

    return cpu_features() & (asked ? asked : (uint32_t)CPU_ALL);
}

static struct sha256 digest(const struct engine *e, struct sha256_stream *s)
{
    const struct stage_shape *shape = &e->loaded->stages[0].shape;

    add_text(s, "ingot pages 2 " INGOT_VERSION);
    add_devices(s, e->loaded);
    add_number(s, kv_persist_cpu_features(e));
    add_number(s, shape->k_format);
    add_number(s, shape->v_format);
    if (e->kv.window) // their pages are files of their own
        add_text(s, "windows");
    add_file(s, e->loaded->file);
    return sha256_take(s);
}

bool kv_persist_model(const struct engine *e, struct sha256 *sum, struct err *err)
{
    struct sha256_stream *s = sha256_open();

    if (!s)
        return err_memory(err, "the model's digest");
    add_file(s, e->loaded->file);
    *sum = sha256_take(s);
    sha256_close(s);
    return true;
}

bool kv_persist_identity(const struct engine *e, struct sha256 *identity, struct err *err)
{
    struct sha256_stream *s = sha256_open();

    if (!s)
        return err_memory(err, "the model's digest");
    *identity = digest(e, s);
    sha256_close(s);
    return true;
}

bool kv_persist_identity_of_file(const struct model_file *file, struct sha256 *identity, struct err *err)
{
    struct sha256_stream *s = sha256_open();

    if (!s)
        return err_memory(err, "a file's digest");
    add_file(s, file);
    *identity = sha256_take(s);
    sha256_close(s);
    return true;
}

uint64_t kv_persist_page_bytes(const struct engine *e)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < e->loaded->n_stages; i++)
        bytes += stage_page_bytes(&e->loaded->stages[i]);
    return (bytes - kv_persist_window_bytes(e) * e->kv.n_windows) / e->kv.n_pages;
}

uint64_t kv_persist_window_bytes(const struct engine *e)
{
    const struct engine_loaded *l = e->loaded;
    const struct stage_shape *shape = &l->stages[0].shape;

    return e->kv.window ? layer_config_window_bytes(&l->model, 0, l->model.config.n_layers, shape->k_format,
                                                    shape->v_format)
                        : 0;
}

uint64_t kv_persist_state_bytes(const struct engine *e)
{
    const struct model *m = &e->loaded->model;
    return model_state_words(m, 0, m->config.n_layers) * sizeof(float);
}

static bool move(struct engine *e, stage_mover *mover, uint32_t index, unsigned char *at, bool to_device)
{
    struct err err = { 0 };
    bool ok = flight_move(e, mover, index, at, to_device, &err);

    if (!ok)
        log_line(LOG_WARN, "store", "%s", err.message);
    return ok;
}

bool kv_persist_page_move(struct engine *e, uint32_t page, unsigned char *at, bool to_device)
{
    return move(e, stage_page_move, page, at, to_device);
}

bool kv_persist_state_move(struct engine *e, uint32_t row, unsigned char *at, bool to_device)
{
    return move(e, stage_state_move, row, at, to_device);
}

bool kv_persist_window_move(struct engine *e, uint32_t window, unsigned char *at, bool to_device)
{
    return move(e, stage_window_move, window, at, to_device);
}

static bool move_page(struct engine *e, uint32_t page, bool to_device)
{
    return kv_persist_page_move(e, page, kv_store_room(e->kv_store), to_device);
}

static bool move_state(struct engine *e, uint32_t row, bool to_device)
{
    return kv_persist_state_move(e, row, kv_store_room(e->state_store), to_device);
}

static bool keep_state(struct engine *e, uint32_t row, const struct kv_store_page *s)
{
    struct kv_state *state = kv_state_kept(&e->kv, row);

    if (!state || state->saved)
        return true;
    state->saved = move_state(e, row, false) && kv_store_save(e->state_store, s);
    return state->saved;
}

static struct kv_store_page words_of(const struct engine *e, uint32_t page)
{
    const struct kv_page *p = &e->kv.pages[page];
    struct kv_store_page s = { .key = p->key, .parent_key = p->parent_key, .media = p->media };
    struct prefix_content content = prefix_content(&e->kv, p->tokens);

    memcpy(s.tokens, content.tokens, sizeof s.tokens);
    return s;
}

static bool keep_window(struct engine *e, uint32_t w, const struct kv_store_page *s)
{
    struct kv_window *window = w == KV_NONE ? NULL : &e->kv.windows[w];

    if (!window || window->saved)
        return true;
    window->saved = kv_persist_window_move(e, w, kv_store_room(e->window_store), false) &&
                    kv_store_save(e->window_store, s);
    return window->saved;
}

static bool keep_page(struct engine *e, uint32_t page)
{
    struct kv_page *p = &e->kv.pages[page];
    struct kv_store_page s = words_of(e, page);

    p->saved = p->saved || (move_page(e, page, false) && kv_store_save(e->kv_store, &s));
    return p->saved && keep_state(e, p->state, &s) && keep_window(e, kv_window_of(&e->kv, page), &s);
}

static void keep_before_loss(void *engine, uint32_t page)
{
    (void)keep_page(engine, page);
}

static bool identity_beside(const struct sha256 *pages, const char *what, struct sha256 *identity,
                            struct err *err)
{
    struct sha256_stream *s = sha256_open();

    if (!s)
        return err_memory(err, "the digest of what belongs to pages");
    add_text(s, what);
    sha256_add(s, pages, sizeof *pages);
    *identity = sha256_take(s);
    sha256_close(s);
    return true;
}

bool kv_persist_state_identity(const struct sha256 *pages, struct sha256 *states, struct err *err)
{
    return identity_beside(pages, "ingot states 1", states, err);
}

bool kv_persist_window_identity(const struct sha256 *pages, struct sha256 *windows, struct err *err)
{
    return identity_beside(pages, "ingot windows 1", windows, err);
}

// States and window pages are files of their own, by other digests in the same directory.
static bool open_beside(struct engine *e, const struct kv_store_options *pages, struct err *err)
{
    struct kv_store_options states = *pages, windows = *pages;

    states.page_bytes = kv_persist_state_bytes(e);
    windows.page_bytes = kv_persist_window_bytes(e);
    return kv_persist_state_identity(&pages->model, &states.model, err) &&
           kv_persist_window_identity(&pages->model, &windows.model, err) &&
           (!e->kv.has_states || kv_store_open(&e->state_store, &states, err)) &&
           (!e->kv.window || kv_store_open(&e->window_store, &windows, err));
}

bool kv_persist_open(struct engine *e, struct err *err)
{
    const struct ingot_engine_options *o = &e->loaded->options;

    if (!o->cache_dir || e->loaded->model.arch->is_encoder) // of which nothing is kept
        return true;
    if (!e->kv.prefix)
        return err_set(err, ERR_INPUT, "%s needs the prefix cache, which is off", err_option("cache_dir"));
    struct kv_store_options options = { .directory = o->cache_dir,
                                        .page_bytes = kv_persist_page_bytes(e),
                                        .limit_bytes = o->cache_bytes ? o->cache_bytes : DEFAULT_LIMIT };
    if (!kv_persist_identity(e, &options.model, err))
        return false;
    if (!kv_store_open(&e->kv_store, &options, err))
        return false;
    if (!open_beside(e, &options, err))
        return false;
    e->kv.before_loss = keep_before_loss;
    e->kv.before_loss_arg = e;
    return true;
}

uint32_t kv_persist_all(struct engine *e)
{
    uint32_t n_failed = 0;

    for (uint32_t page = 0; e->kv_store && page < e->kv.n_pages; page++)
        n_failed += e->kv.pages[page].known && !keep_page(e, page);
    return n_failed;
}

// The state behind a page that has come from disk. The row first: taking it may save another state, through
// the same buffer.
static void find_state(struct engine *e, uint32_t page, const struct kv_store_page *s)
{
    if (!e->state_store || !kv_store_has(e->state_store, s))
        return;
    uint32_t row = kv_state_keep(&e->kv, page);
    if (row == 0)
        return;
    if (kv_store_load(e->state_store, s) && move_state(e, row, true))
        kv_state_kept(&e->kv, row)->saved = true;
    else
        kv_state_drop(&e->kv, page);
}

uint32_t kv_persist_find(struct engine *e, const struct prefix_walk *walk, const uint32_t *tokens)
{
    struct prefix_walk after = *walk;
    struct kv_store_page s = { .parent_key = walk->key };

    if (!e->kv_store || kv_n_available(&e->kv) == 0)
        return KV_NONE;
    if (prefix_next(&e->kv, &after, tokens) != KV_NONE)
        return KV_NONE;
    struct prefix_content content = prefix_content(&e->kv, tokens);
    s.key = after.key;
    s.media = content.media;
    memcpy(s.tokens, content.tokens, sizeof s.tokens);
    if (!kv_store_has(e->kv_store, &s))
        return KV_NONE;
    // first: taking a page may save another one, through the same buffer
    uint32_t page = kv_page_take(&e->kv);
    if (kv_store_load(e->kv_store, &s) && move_page(e, page, true)) {
        prefix_put(&e->kv, walk, page, tokens);
        e->kv.pages[page].saved = true;
        find_state(e, page, &s);
    }
    bool found = e->kv.pages[page].known;
    kv_page_drop(&e->kv, page);
    return found ? page : KV_NONE;
}

// The window page first: taking it may save another one, through the same buffer.
static void find_window(struct engine *e, uint32_t page)
{
    struct kv_store_page s = words_of(e, page);
    uint32_t w = kv_window_keep(&e->kv, page);

    if (w == KV_NONE)
        return;
    if (kv_store_load(e->window_store, &s) &&
        kv_persist_window_move(e, w, kv_store_room(e->window_store), true))
        e->kv.windows[w].saved = true;
    else
        kv_window_drop(&e->kv, page);
}

void kv_persist_find_windows(struct engine *e, uint32_t slot, uint32_t n)
{
    const struct kv *kv = &e->kv;

    if (!e->window_store || n % PAGE_TOKENS || kv_window_below(kv, slot, n) == n)
        return;
    for (uint32_t i = kv_window_first(kv, n); i < n / PAGE_TOKENS; i++) {
        uint32_t page = kv_at(kv, slot, i);
        struct kv_store_page s = words_of(e, page);
        if (!kv->pages[page].known ||
            (kv_window_of(kv, page) == KV_NONE && !kv_store_has(e->window_store, &s)))
            return;
    }
    for (uint32_t i = kv_window_first(kv, n); i < n / PAGE_TOKENS; i++)
        kv_window_touch(&e->kv, kv_at(kv, slot, i));
    for (uint32_t i = kv_window_first(kv, n); i < n / PAGE_TOKENS; i++)
        if (kv_window_of(kv, kv_at(kv, slot, i)) == KV_NONE)
            find_window(e, kv_at(kv, slot, i));
}
