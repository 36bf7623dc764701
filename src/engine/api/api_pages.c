// api_pages.c - the part of ingot.h about pages of prompts that move from one engine to another.
//
// What moves is files as kv_store.h has them, one behind the other: of each page, and behind it of the state
// that belongs to it, if there is one, and of its window page, if the row behind all pages sees it. The keys
// of all pages are known before the first file comes, so nothing is taken that is not the very page of that
// prompt, of that model and of these settings. Sums are checked without a lock; the copies between two steps
// move a few MiB at a time, so that answers go on meanwhile. Taken pages are held until the end: a page whose
// beginning is lost could not be found.
//
// Where each stage's device takes copies beside what is played (device_bring), pages come without waiting for
// steps: nothing reads or writes a page between its taking and its entry in the prefix index. States and
// window pages, and engines that keep pages on disk or have threads for stages, take the turns between steps.
#include <stdio.h>
#include "base/log.h"
#include "base/mem.h"
#include "engine/api.h"
#include "engine/api/sizes.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"
#include "engine/kv_persist.h"
#include "engine/session.h"
#include "engine/wait.h"

enum { TURN_BYTES = 4 << 20 }; // moved between two steps, and at least a page with its state

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
    unsigned char *room; // [room_bytes] files to give, or that have come
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

static void hex_put(char *to, const struct sha256 *sum)
{
    for (size_t i = 0; i < sizeof sum->at; i++)
        snprintf(to + 2 * i, 3, "%02x", sum->at[i]);
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
        buf_printf(&text, ", experts of %u layers on %s", l->stages[0].shape.n_away,
                   l->devices.experts->name);
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
        hex_put(all.weights, &weights);
        hex_put(all.identity, &identity);
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

// ---- giving

struct follows { // the page's file
    bool state, window;
};

// Copies the page's numbers, and those that belong to it, to where their files will be. Both locks are held.
// Returns the bytes of the files; 0: the page was forgotten, or cannot be read.
static size_t give_page(struct ingot_pages *p, unsigned char *to, struct follows *has)
{
    struct engine *e = p->engine;
    struct prefix_walk next = p->walk;
    uint32_t page = prefix_next(&e->kv, &next, tokens_of(p, p->at));
    uint64_t n = kv_file_bytes(p->kinds.page_bytes);

    if (page == KV_NONE || !kv_persist_page_move(e, page, to + KV_FILE_HEAD, false))
        return 0;
    p->walk = next;
    has->state = p->kinds.state_bytes && e->kv.pages[page].state &&
                 kv_persist_state_move(e, e->kv.pages[page].state, to + n + KV_FILE_HEAD, false);
    n += has->state ? kv_file_bytes(p->kinds.state_bytes) : 0;
    has->window = is_seen(p, p->at) && kv_window_of(&e->kv, page) != KV_NONE &&
                  kv_persist_window_move(e, kv_window_of(&e->kv, page), to + n + KV_FILE_HEAD, false);
    return n + (has->window ? kv_file_bytes(p->kinds.window_bytes) : 0);
}

const void *ingot_pages_give(struct ingot_pages *p, size_t *n_bytes)
{
    struct follows has[TURN_BYTES / KV_FILE_HEAD];
    uint32_t first = p->at;
    size_t n = 0, more;

    wait_turn_begin(p->engine);
    for (bool ok = is_as_opened(p); ok && p->at < p->n_pages && p->at - first < sizeof has / sizeof *has &&
                                    p->room_bytes - n >= both_bytes(&p->kinds) &&
                                    (more = give_page(p, p->room + n, &has[p->at - first])) > 0;
         p->at++)
        n += more;
    wait_turn_end(p->engine);
    unsigned char *at = p->room;
    for (uint32_t i = first; i < p->at; i++) { // the sums take longer than the copies
        struct kv_store_page words = page_words(p, i);
        kv_file_seal(at, &p->kinds.pages, &words, p->kinds.page_bytes);
        at += kv_file_bytes(p->kinds.page_bytes);
        if (has[i - first].state) {
            kv_file_seal(at, &p->kinds.states, &words, p->kinds.state_bytes);
            at += kv_file_bytes(p->kinds.state_bytes);
        }
        if (has[i - first].window) {
            kv_file_seal(at, &p->kinds.windows, &words, p->kinds.window_bytes);
            at += kv_file_bytes(p->kinds.window_bytes);
        }
    }
    *n_bytes = n;
    return n ? p->room : NULL;
}

// ---- taking

// The files at the beginning of what has come.
struct arrived {
    uint32_t n_pages, state_of, window_of; // as in struct ingot_pages
    size_t n_bytes;
};

static bool is_file_of(struct str file, const struct kv_file_kinds *kinds, enum kv_file_kind kind,
                       const struct kv_store_page *words)
{
    if (kind == KV_FILE_PAGE)
        return kv_file_check(file, &kinds->pages, words, kinds->page_bytes);
    if (kind == KV_FILE_STATE)
        return kv_file_check(file, &kinds->states, words, kinds->state_bytes);
    return kv_file_check(file, &kinds->windows, words, kinds->window_bytes);
}

static bool arrived_check(const struct ingot_pages *p, struct arrived *a, struct err *err)
{
    enum kv_file_kind kind;
    uint64_t n;

    for (*a = (struct arrived){ 0, p->state_of, p->window_of, 0 };; a->n_bytes += n) {
        struct str rest = { (const char *)p->room + a->n_bytes, p->n_bytes - a->n_bytes };
        uint32_t page = p->at + a->n_pages; // what is no page belongs to the page before
        kind = kv_file_next(rest, &p->kinds, &n);
        if (kind == KV_FILE_PART)
            return true;
        bool is_page = kind == KV_FILE_PAGE;
        uint32_t *last = kind == KV_FILE_STATE ? &a->state_of : &a->window_of;
        if (kind == KV_FILE_OTHER || (is_page && page == p->n_pages) || (!is_page && page == *last))
            return err_set(err, ERR_INPUT,
                           "what came behind %u pages is no file of the next one with this model, version, "
                           "device and cache type",
                           page);
        struct kv_store_page words = page_words(p, is_page ? page : page - 1);
        rest.n = n;
        if (!is_file_of(rest, &p->kinds, kind, &words))
            return err_set(err, ERR_INPUT, "page %u is damaged, or another prompt's",
                           is_page ? page : page - 1);
        a->n_pages += is_page;
        *last = is_page ? *last : page;
    }
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

// Takes the whole files that have come; what is left is the beginning of one.
static bool take_arrived(struct ingot_pages *p, struct err *err)
{
    struct arrived a;
    size_t done;

    if (!arrived_check(p, &a, err) || !take_beside(p, &a, &done, err))
        return false;
    bool ok = true;
    if (done < a.n_bytes || a.n_bytes == 0) {
        wait_turn_begin(p->engine);
        ok = is_as_opened(p) ? take_all(p, &a, done, err)
                             : err_set(err, ERR_DEVICE, "the engine is closed, or a device was lost");
        wait_turn_end(p->engine);
    }
    p->state_of = a.state_of;
    p->window_of = a.window_of;
    memmove(p->room, p->room + a.n_bytes, p->n_bytes - a.n_bytes);
    p->n_bytes -= a.n_bytes;
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
