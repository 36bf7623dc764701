// api_pages.c - the part of ingot.h about pages of prompts that move from one engine to another.
//
// What moves is files as kv_store.h has them, one behind the other: of each page, and behind it of the state
// that belongs to it, if there is one, and of its window page, if the row behind all pages sees it. The keys
// of all pages are known before the first file comes, so nothing is taken that is not the very page of that
// prompt, of that model and of these settings. Sums are made and checked without a lock, those of several
// files at once; the copies between two steps move a few MiB at a time, so that answers go on meanwhile.
// Taken pages are held until the end: a page whose beginning is lost could not be found.
//
// Where each stage's device takes copies beside what is played (device_bring), pages come without waiting for
// steps: nothing reads or writes a page between its taking and its entry in the prefix index. States and
// window pages, and engines that keep pages on disk or have threads for stages, take the turns between steps.
#include <stdatomic.h>
#include <stdio.h>
#include "base/mem.h"
#include "base/thread_pool.h"
#include "engine/api.h"
#include "engine/api/sizes.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"
#include "engine/kv_persist.h"
#include "engine/session.h"
#include "engine/wait.h"

enum { TURN_BYTES = 16 << 20 };           // moved between two steps, and at least a page with its state
enum { MOST_FILES = 128, MOST_SUMS = 4 }; // moved at once, up to three a page; threads for their sums

struct ingot_pages {
    struct engine *engine;
    uint64_t n_renewed;      // the engine's, when this was opened: else its pages are others
    uint32_t *tokens;        // [n_pages * PAGE_TOKENS]
    struct sha256 *keys;     // [n_pages + 1] of the tokens before each page, and of all
    uint32_t n_pages, at;    // at: the next page
    uint32_t state_of;       // the page whose state has come last, plus 1
    uint32_t window_of;      // the same of its window page
    struct prefix_walk walk; // behind the pages before it
    uint32_t *held;          // [n_held] the pages of `walk`, when they are taken
    uint32_t n_held;
    struct kv_file_kinds kinds;
    struct thread_pool *sums; // NULL: by the caller alone
    unsigned char *room;      // [room_bytes] files to give, or that have come
    size_t room_bytes, n_bytes;
};

// ---- what pages belong to

// Reading samples of all weights takes long where the file is no longer in memory: it is done once. The state
// lock is held.
static bool identity_of(struct engine *e, struct sha256 *identity, struct err *err)
{
    if (e->identity_at != e->n_renewed + 1) {
        if (!kv_persist_identity(e, &e->identity, err))
            return false;
        e->identity_at = e->n_renewed + 1;
    }
    *identity = e->identity;
    return true;
}

static bool can_move(const struct engine *e, struct err *err)
{
    if (e->loaded->remote)
        return err_set(
            err, ERR_UNSUPPORTED,
            "pages do not move where a model is on several ranks: each has those of its own layers");
    return e->kv.prefix || err_set(err, ERR_UNSUPPORTED, "this engine keeps no pages of prompts");
}

static void devices_print(const struct engine_loaded *l, char *to, size_t n)
{
    struct buf text = { 0 };
    char kind[DEVICE_KIND_BYTES];

    for (uint32_t i = 0; i < l->n_stages; i++)
        if (i == 0 || !devices_are_alike(l->stages[i].device, l->stages[i - 1].device)) {
            devices_kind(l->stages[i].device, kind);
            buf_printf(&text, "%s%s from layer %u%s", i ? ", " : "", kind, l->stages[i].parts.first,
                       l->stages[i].shape.exact ? ", exact" : "");
        }
    if (l->n_parts)
        buf_printf(&text, ", over %u ranks", l->n_parts);
    if (l->devices.experts)
        buf_printf(&text, ", experts of %u layer%s on %s", l->stages[0].shape.n_away,
                   str_plural(l->stages[0].shape.n_away), l->devices.experts->name);
    snprintf(to, n, "%s", text.n ? text.at : "");
    buf_free(&text);
}

bool ingot_pages_info_fill(struct ingot_engine *engine, struct ingot_pages_info *info, size_t size,
                           struct ingot_error *error)
{
    struct engine *e = &engine->inner;
    struct ingot_pages_info all = { 0 };
    struct sha256 weights, identity;

    pthread_mutex_lock(&e->state); // the devices may be others after one was lost
    bool ok = can_move(e, as_err(error)) && kv_persist_model(e, &weights, as_err(error)) &&
              identity_of(e, &identity, as_err(error));
    if (ok) {
        const struct stage_shape *shape = &e->loaded->stages[0].shape;
        snprintf(all.version, sizeof all.version, "%s", INGOT_VERSION);
        sha256_hex(&weights, all.weights);
        sha256_hex(&identity, all.identity);
        devices_print(e->loaded, all.devices, sizeof all.devices);
        snprintf(all.cache_types, sizeof all.cache_types, "%s, %s", kv_format_name(shape->k_format),
                 kv_format_name(shape->v_format));
        all.cpu_features = kv_persist_cpu_features(e);
        all.page_bytes = kv_persist_page_bytes(e);
        all.state_bytes = kv_persist_state_bytes(e);
    }
    pthread_mutex_unlock(&e->state);
    sizes_give(info, size, &all, sizeof all);
    return ok;
}

// ---- opening

static bool kinds_fill(struct engine *e, struct kv_file_kinds *kinds, struct err *err)
{
    kinds->page_bytes = kv_persist_page_bytes(e);
    kinds->state_bytes = e->kv.has_states ? kv_persist_state_bytes(e) : 0;
    kinds->window_bytes = kv_persist_window_bytes(e);
    return identity_of(e, &kinds->pages, err) &&
           kv_persist_state_identity(&kinds->pages, &kinds->states, err) &&
           kv_persist_window_identity(&kinds->pages, &kinds->windows, err);
}

static bool tokens_check(const struct engine *e, const uint32_t *tokens, size_t n, struct err *err)
{
    if (n > e->loaded->n_context)
        return err_set(err, ERR_LIMIT, "a prompt of %zu tokens; the context holds %u", n,
                       e->loaded->n_context);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= e->loaded->model.config.n_vocab)
            return err_set(err, ERR_INPUT, "token %zu of the prompt is %u; the model has %u", i, tokens[i],
                           e->loaded->model.config.n_vocab);
    return true;
}

// Of the files of a page and what belongs to it.
static uint64_t both_bytes(const struct kv_file_kinds *kinds)
{
    return kv_file_bytes(kinds->page_bytes) + (kinds->state_bytes ? kv_file_bytes(kinds->state_bytes) : 0) +
           (kinds->window_bytes ? kv_file_bytes(kinds->window_bytes) : 0);
}

static bool reserve(struct ingot_pages *p, const uint32_t *tokens, struct err *err)
{
    uint64_t both = both_bytes(&p->kinds);

    p->room_bytes = both > TURN_BYTES ? both : TURN_BYTES;
    if (p->room_bytes > both * (p->n_pages + 1ull))
        p->room_bytes = both * (p->n_pages + 1ull);
    p->tokens = mem_alloc_array(p->n_pages * (size_t)PAGE_TOKENS + 1, sizeof *p->tokens);
    p->keys = mem_alloc_array(p->n_pages + 1ull, sizeof *p->keys);
    p->held = mem_alloc_array(p->n_pages + 1ull, sizeof *p->held);
    p->room = mem_alloc(p->room_bytes);
    if (!p->tokens || !p->keys || !p->held || !p->room)
        return err_memory(err, "pages on their way");
    unsigned n_sums = thread_count_available();
    p->sums = p->n_pages ? thread_pool_create(n_sums < MOST_SUMS ? n_sums : MOST_SUMS) : NULL;
    memcpy(p->tokens, tokens, p->n_pages * (size_t)PAGE_TOKENS * sizeof *tokens);
    return true;
}

static const uint32_t *tokens_of(const struct ingot_pages *p, uint32_t page)
{
    return p->tokens + (size_t)page * PAGE_TOKENS;
}

// Whether the row behind all pages sees this one through its window.
static bool is_seen(const struct ingot_pages *p, uint32_t page)
{
    return p->kinds.window_bytes && page >= kv_window_first(&p->engine->kv, p->n_pages * PAGE_TOKENS);
}

// Finds the keys of all pages. The state lock is held, as for the rest of this part.
static void keys_fill(struct ingot_pages *p, const char *salt)
{
    struct kv *kv = &p->engine->kv;
    struct sha256 root = prefix_root(kv->prefix, salt);
    struct prefix_walk walk = prefix_begin(&root);

    p->walk = walk;
    for (uint32_t i = 0; i < p->n_pages; i++) {
        p->keys[i] = walk.key;
        prefix_next(kv, &walk, tokens_of(p, i));
    }
    p->keys[p->n_pages] = walk.key;
}

static bool pages_fill(struct ingot_pages *p, const uint32_t *tokens, size_t n_tokens, const char *salt,
                       struct err *err)
{
    struct engine *e = p->engine;
    uint32_t grid = e->kv.has_states ? STATE_GRID : PAGE_TOKENS;

    if (e->closed || e->failed)
        return err_set(err, ERR_DEVICE, "the engine is closed, or its device has failed");
    if (!can_move(e, err) || !tokens_check(e, tokens, n_tokens, err) || !kinds_fill(e, &p->kinds, err))
        return false;
    p->n_renewed = e->n_renewed;
    p->n_pages = n_tokens ? (uint32_t)(n_tokens - 1) / grid * grid / PAGE_TOKENS : 0;
    if (!reserve(p, tokens, err))
        return false;
    keys_fill(p, salt);
    return true;
}

static void pages_free(struct ingot_pages *p)
{
    thread_pool_destroy(p->sums);
    mem_free(p->tokens);
    mem_free(p->keys);
    mem_free(p->held);
    mem_free(p->room);
    mem_free(p);
}

// The state lock is held when it returns, unless it returns NULL.
static struct ingot_pages *pages_open(struct engine *e, const uint32_t *tokens, size_t n_tokens,
                                      const char *salt, struct err *err)
{
    struct ingot_pages *p = mem_alloc(sizeof *p);

    if (!p) {
        err_memory(err, "pages on their way");
        return NULL;
    }
    p->engine = e;
    pthread_mutex_lock(&e->state);
    if (pages_fill(p, tokens, n_tokens, salt, err)) {
        e->n_live++;
        return p;
    }
    pthread_mutex_unlock(&e->state);
    pages_free(p);
    return NULL;
}

struct ingot_pages *ingot_pages_offer(struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                                      size_t n_known, const char *cache_salt, struct ingot_error *error)
{
    struct engine *e = &engine->inner;
    struct ingot_pages *p = pages_open(e, tokens, n_tokens, cache_salt, as_err(error));

    if (!p)
        return NULL;
    while (p->at < p->n_pages && (p->at + 1ull) * PAGE_TOKENS <= n_known)
        prefix_next(&e->kv, &p->walk, tokens_of(p, p->at++));
    pthread_mutex_unlock(&e->state);
    return p;
}

struct ingot_pages *ingot_pages_expect(struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                                       const char *cache_salt, struct ingot_error *error)
{
    struct engine *e = &engine->inner;
    struct ingot_pages *p = pages_open(e, tokens, n_tokens, cache_salt, as_err(error));

    if (!p)
        return NULL;
    while (p->at < p->n_pages) {
        struct prefix_walk next = p->walk;
        uint32_t page = prefix_next(&e->kv, &next, tokens_of(p, p->at));
        if (page == KV_NONE || (is_seen(p, p->at) && kv_window_of(&e->kv, page) == KV_NONE))
            break;
        kv_window_touch(&e->kv, page);
        kv_page_hold(&e->kv, page);
        p->held[p->n_held++] = page;
        p->walk = next;
        p->at++;
    }
    pthread_mutex_unlock(&e->state);
    return p;
}

size_t ingot_pages_n_tokens(const struct ingot_pages *pages)
{
    return (size_t)pages->at * PAGE_TOKENS;
}

size_t ingot_pages_most_tokens(const struct ingot_pages *pages)
{
    return (size_t)pages->n_pages * PAGE_TOKENS;
}

// Both locks are held.
static bool is_as_opened(const struct ingot_pages *p)
{
    return p->n_renewed == p->engine->n_renewed && !p->engine->failed && !p->engine->closed;
}

void ingot_pages_close(struct ingot_pages *pages)
{
    if (!pages)
        return;
    struct engine *e = pages->engine;
    pthread_mutex_lock(&e->state);
    while (pages->n_renewed == e->n_renewed && pages->n_held > 0) // in reverse, as kv_shrink does
        kv_page_drop(&e->kv, pages->held[--pages->n_held]);
    e->n_live--;
    pages_free(pages);
    api_unlock_or_free(e);
}

// What the file of this page says of it.
static struct kv_store_page page_words(const struct ingot_pages *p, uint32_t page)
{
    struct kv_store_page s = { .key = p->keys[page + 1], .parent_key = p->keys[page] };

    memcpy(s.tokens, tokens_of(p, page), sizeof s.tokens);
    return s;
}

// ---- sums

// Files one behind the other, whose sums are made or checked.
struct files {
    struct moved_file {
        unsigned char *at;
        const struct sha256 *model; // what it is a file of
        struct kv_store_page words;
        uint64_t bytes; // of its numbers
        bool ok;
    } at[MOST_FILES];
    uint32_t n;
    bool seals; // else they are checked
    atomic_uint next;
};

static void files_add(struct files *f, unsigned char *at, const struct sha256 *model,
                      const struct kv_store_page *words, uint64_t bytes)
{
    CHECK(f->n < MOST_FILES);
    f->at[f->n++] = (struct moved_file){ at, model, *words, bytes, true };
}

static void sum_some(void *arg, unsigned thread)
{
    struct files *f = arg;

    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&f->next, 1)) < f->n;) {
        struct moved_file *one = &f->at[i];
        struct str file = { (const char *)one->at, kv_file_bytes(one->bytes) };
        if (f->seals)
            kv_file_seal(one->at, one->model, &one->words, one->bytes);
        else
            one->ok = kv_file_check(file, one->model, &one->words, one->bytes);
    }
}

static void files_sum(struct files *f, struct thread_pool *sums)
{
    if (sums && f->n > 1)
        thread_pool_run(sums, sum_some, f);
    else
        sum_some(f, 0);
}

// ---- giving

// Copies the page's numbers, and those that belong to it, to where their files will be. Both locks are held.
// Returns the bytes of the files; 0: the page was forgotten, or cannot be read.
static size_t give_page(struct ingot_pages *p, unsigned char *to, struct files *f)
{
    struct engine *e = p->engine;
    struct prefix_walk next = p->walk;
    const struct kv_file_kinds *k = &p->kinds;
    struct kv_store_page words = page_words(p, p->at);
    uint32_t page = prefix_next(&e->kv, &next, tokens_of(p, p->at));
    uint64_t n = kv_file_bytes(k->page_bytes);

    if (page == KV_NONE || !kv_persist_page_move(e, page, to + KV_FILE_HEAD, false))
        return 0;
    p->walk = next;
    files_add(f, to, &k->pages, &words, k->page_bytes);
    if (k->state_bytes && e->kv.pages[page].state &&
        kv_persist_state_move(e, e->kv.pages[page].state, to + n + KV_FILE_HEAD, false)) {
        files_add(f, to + n, &k->states, &words, k->state_bytes);
        n += kv_file_bytes(k->state_bytes);
    }
    if (is_seen(p, p->at) && kv_window_of(&e->kv, page) != KV_NONE &&
        kv_persist_window_move(e, kv_window_of(&e->kv, page), to + n + KV_FILE_HEAD, false)) {
        files_add(f, to + n, &k->windows, &words, k->window_bytes);
        n += kv_file_bytes(k->window_bytes);
    }
    return n;
}

const void *ingot_pages_give(struct ingot_pages *p, size_t *n_bytes)
{
    struct files files = { .seals = true };
    size_t n = 0, more;

    wait_turn_begin(p->engine);
    for (bool ok = is_as_opened(p);
         ok && p->at < p->n_pages && files.n + 3 <= MOST_FILES &&
         p->room_bytes - n >= both_bytes(&p->kinds) && (more = give_page(p, p->room + n, &files)) > 0;
         p->at++)
        n += more;
    wait_turn_end(p->engine);
    files_sum(&files, p->sums); // which takes longer than the copies
    *n_bytes = n;
    return n ? p->room : NULL;
}

// ---- taking

// The files at the beginning of what has come.
struct arrived {
    uint32_t n_pages, state_of, window_of; // as in struct ingot_pages
    size_t n_bytes;
    bool more; // there may be other ones behind them
};

static const struct sha256 *model_of(const struct kv_file_kinds *kinds, enum kv_file_kind kind)
{
    return kind == KV_FILE_PAGE ? &kinds->pages : kind == KV_FILE_STATE ? &kinds->states : &kinds->windows;
}

// The next file, if all of it has come: false without an error otherwise.
static bool arrived_next(const struct ingot_pages *p, struct arrived *a, struct files *f, struct err *err)
{
    uint64_t n;
    struct str rest = { (const char *)p->room + a->n_bytes, p->n_bytes - a->n_bytes };
    uint32_t page = p->at + a->n_pages; // what is no page belongs to the page before
    enum kv_file_kind kind = kv_file_next(rest, &p->kinds, &n);
    bool is_page = kind == KV_FILE_PAGE;
    uint32_t *last = kind == KV_FILE_STATE ? &a->state_of : &a->window_of;

    if (kind == KV_FILE_PART)
        return false;
    if (kind == KV_FILE_OTHER || (is_page && page == p->n_pages) || (!is_page && page == *last))
        return err_set(err, ERR_INPUT,
                       "what came behind %u pages is no file of the next one with this model, version, "
                       "device and cache type",
                       page);
    struct kv_store_page words = page_words(p, is_page ? page : page - 1);
    files_add(f, p->room + a->n_bytes, model_of(&p->kinds, kind), &words, n - kv_file_bytes(0));
    a->n_bytes += n;
    a->n_pages += is_page;
    *last = is_page ? *last : page;
    return true;
}

// The page that the file is of, or belongs to.
static uint32_t page_of_file(const struct ingot_pages *p, const struct files *f, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < i; k++)
        n += f->at[k].model == &p->kinds.pages;
    return f->at[i].model == &p->kinds.pages ? p->at + n : p->at + n - 1;
}

// The first thing that is wrong is told.
static bool arrived_check(struct ingot_pages *p, struct arrived *a, struct err *err)
{
    struct files files = { .n = 0 };
    struct err why = { 0 };

    *a = (struct arrived){ .state_of = p->state_of, .window_of = p->window_of };
    while (files.n < MOST_FILES && arrived_next(p, a, &files, &why))
        ;
    a->more = files.n == MOST_FILES;
    files_sum(&files, p->sums);
    for (uint32_t i = 0; i < files.n; i++)
        if (!files.at[i].ok)
            return err_set(err, ERR_INPUT, "page %u is damaged, or another prompt's",
                           page_of_file(p, &files, i));
    if (why.code != ERR_NONE && err)
        *err = why;
    return why.code == ERR_NONE;
}

// A running request must not be paused for pages that are only to come.
static bool has_room(const struct engine *e)
{
    uint32_t n_running = 0;

    for (const struct request *r = e->first; r; r = r->next)
        n_running += r->state == REQUEST_PREFILL || r->state == REQUEST_DECODE;
    return kv_n_available(&e->kv) > n_running;
}

// Both locks are held for these.
static bool take_page(struct ingot_pages *p, unsigned char *numbers, struct err *err)
{
    struct kv *kv = &p->engine->kv;
    struct prefix_walk next = p->walk;
    const uint32_t *tokens = tokens_of(p, p->at);
    uint32_t page = prefix_next(kv, &next, tokens);

    if (page != KV_NONE) { // read here meanwhile
        kv_window_touch(kv, page);
        kv_page_hold(kv, page);
    } else {
        page = has_room(p->engine) ? kv_page_take(kv) : KV_NONE;
        if (page == KV_NONE)
            return err_set(err, ERR_LIMIT, "no page is free behind %u", p->at);
        if (!kv_persist_page_move(p->engine, page, numbers, true)) {
            kv_page_drop(kv, page);
            return err_set(err, ERR_DEVICE, "page %u cannot be written to the device", p->at);
        }
        prefix_put(kv, &p->walk, page, tokens);
        next = p->walk;
        prefix_next(kv, &next, tokens);
    }
    p->walk = next;
    p->held[p->n_held++] = page;
    p->at++;
    return true;
}

// Of the page before. Where no row is free, or the page has its state, it is not needed.
static void take_state(struct ingot_pages *p, unsigned char *numbers)
{
    struct kv *kv = &p->engine->kv;
    uint32_t page = p->held[p->n_held - 1];
    uint32_t row = kv->pages[page].state ? 0 : kv_state_keep(kv, page);

    if (row && !kv_persist_state_move(p->engine, row, numbers, true))
        kv_state_drop(kv, page);
}

static void take_window(struct ingot_pages *p, unsigned char *numbers)
{
    struct kv *kv = &p->engine->kv;
    uint32_t page = p->held[p->n_held - 1];
    uint32_t w = kv_window_of(kv, page) == KV_NONE ? kv_window_keep(kv, page) : KV_NONE;

    if (w != KV_NONE && !kv_persist_window_move(p->engine, w, numbers, true))
        kv_window_drop(kv, page);
}

static bool take_all(struct ingot_pages *p, const struct arrived *a, size_t from, struct err *err)
{
    bool ok = true;
    uint64_t n = 0;

    for (size_t at = from; ok && at < a->n_bytes; at += n) {
        struct str rest = { (const char *)p->room + at, a->n_bytes - at };
        enum kv_file_kind kind = kv_file_next(rest, &p->kinds, &n);
        if (kind == KV_FILE_PAGE)
            ok = take_page(p, p->room + at + KV_FILE_HEAD, err);
        else if (kind == KV_FILE_STATE)
            take_state(p, p->room + at + KV_FILE_HEAD);
        else
            take_window(p, p->room + at + KV_FILE_HEAD);
    }
    return ok;
}

// ---- beside the steps

// The state lock is held.
static bool may_come_beside(const struct ingot_pages *p)
{
    const struct engine *e = p->engine;
    bool may = is_as_opened(p) && !p->kinds.state_bytes && !p->kinds.window_bytes && !e->kv_store &&
               !e->pipeline && !e->loaded->n_parts;

    for (uint32_t i = 0; i < e->loaded->n_stages && may; i++)
        may = device_can_bring(e->loaded->stages[i].device);
    return may;
}

static bool bring(const struct engine *e, uint32_t page, const unsigned char *numbers, struct err *err)
{
    struct device_piece *pieces = mem_alloc_array(2ull * e->loaded->model.config.n_layers, sizeof *pieces);
    bool ok = pieces || err_memory(err, "pages on their way");

    for (uint32_t i = 0; i < e->loaded->n_stages && ok; i++) {
        struct stage *s = &e->loaded->stages[i];
        ok = device_bring(s->device, pieces, stage_page_pieces(s, page, &numbers, pieces), err);
    }
    mem_free(pieces);
    return ok;
}

// The page is taken, so that no request may have it, and known only when its numbers are there. The state
// lock is held, but not while it is copied.
static bool take_page_beside(struct ingot_pages *p, const unsigned char *numbers, struct err *err)
{
    struct engine *e = p->engine;
    struct prefix_walk next = p->walk;
    const uint32_t *tokens = tokens_of(p, p->at);
    uint32_t known = prefix_next(&e->kv, &next, tokens), page = KV_NONE;
    bool ok = true;

    if (known == KV_NONE) {
        page = has_room(e) ? kv_page_take(&e->kv) : KV_NONE;
        if (page == KV_NONE)
            return err_set(err, ERR_LIMIT, "no page is free behind %u", p->at);
        e->n_bringing++;
        pthread_mutex_unlock(&e->state);
        ok = bring(e, page, numbers, err);
        pthread_mutex_lock(&e->state);
        e->n_bringing--;
        wait_wake(e);
        if (p->n_renewed != e->n_renewed)
            return err_set(err, ERR_DEVICE, "a device was lost");
        next = p->walk;
        known = prefix_next(&e->kv, &next, tokens); // read here meanwhile
    }
    if (known != KV_NONE)
        kv_page_hold(&e->kv, known);
    if (page != KV_NONE && (known != KV_NONE || !ok))
        kv_page_drop(&e->kv, page);
    if (!ok && known == KV_NONE)
        return false;
    if (known == KV_NONE) {
        prefix_put(&e->kv, &p->walk, page, tokens);
        next = p->walk;
        prefix_next(&e->kv, &next, tokens);
    }
    p->walk = next;
    p->held[p->n_held++] = known != KV_NONE ? known : page;
    p->at++;
    return true;
}

// *done: as many bytes of the room as could be taken so.
static bool take_beside(struct ingot_pages *p, const struct arrived *a, size_t *done, struct err *err)
{
    struct engine *e = p->engine;
    bool ok = true;
    uint64_t n;

    pthread_mutex_lock(&e->state);
    for (*done = 0; ok && *done < a->n_bytes && may_come_beside(p); *done += n) {
        struct str rest = { (const char *)p->room + *done, a->n_bytes - *done };
        kv_file_next(rest, &p->kinds, &n);
        ok = take_page_beside(p, p->room + *done + KV_FILE_HEAD, err);
    }
    pthread_mutex_unlock(&e->state);
    return ok;
}

static bool take_some(struct ingot_pages *p, struct arrived *a, struct err *err)
{
    size_t done;

    if (!arrived_check(p, a, err) || !take_beside(p, a, &done, err))
        return false;
    bool ok = true;
    if (done < a->n_bytes || a->n_bytes == 0) {
        wait_turn_begin(p->engine);
        ok = is_as_opened(p) ? take_all(p, a, done, err)
                             : err_set(err, ERR_DEVICE, "the engine is closed, or a device was lost");
        wait_turn_end(p->engine);
    }
    p->state_of = a->state_of;
    p->window_of = a->window_of;
    memmove(p->room, p->room + a->n_bytes, p->n_bytes - a->n_bytes);
    p->n_bytes -= a->n_bytes;
    return ok;
}

// Takes the whole files that have come; what is left is the beginning of one.
static bool take_arrived(struct ingot_pages *p, struct err *err)
{
    struct arrived a;
    bool ok;

    do
        ok = take_some(p, &a, err);
    while (ok && a.more);
    return ok;
}

bool ingot_pages_take(struct ingot_pages *p, const void *bytes, size_t n_bytes, struct ingot_error *error)
{
    const unsigned char *at = bytes;

    while (n_bytes > 0) {
        size_t n = p->room_bytes - p->n_bytes < n_bytes ? p->room_bytes - p->n_bytes : n_bytes;
        memcpy(p->room + p->n_bytes, at, n);
        p->n_bytes += n;
        at += n;
        n_bytes -= n;
        if (p->n_bytes == p->room_bytes && !take_arrived(p, as_err(error)))
            return false;
    }
    return true;
}

bool ingot_pages_finish(struct ingot_pages *p, struct ingot_error *error)
{
    return take_arrived(p, as_err(error)) &&
           (p->n_bytes == 0 || err_set(as_err(error), ERR_INPUT,
                                       "the pages end within a file, behind %u of %u", p->at, p->n_pages));
}
