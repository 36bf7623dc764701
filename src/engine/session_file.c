// session_file.c - see session_file.h.
#include "engine/session_file.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/flight/flight_run.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/kv_persist.h"
#include "engine/tiles.h"

static const char MAGIC[8] = "ingotse2";

struct session_head {
    char magic[8];
    struct sha256 model, root;
    uint64_t page_bytes;
    uint32_t n_tokens, n_pages;
    uint32_t n_tiles; // of pictures, in tokens as STEP_TOKEN_POOLED + i
    uint32_t zero;
};
_Static_assert(sizeof(struct session_head) == 8 + 2 * sizeof(struct sha256) + 8 + 4 * 4, "no holes");

static bool head_fill(struct session_head *h, const struct engine *e, struct err *err)
{
    *h = (struct session_head){ .page_bytes = kv_persist_page_bytes(e) };
    memcpy(h->magic, MAGIC, sizeof h->magic);
    return kv_persist_identity(e, &h->model, err);
}

// Of the state behind the last token.
static uint64_t state_bytes(const struct engine *e, const struct session_head *h)
{
    return h->n_tokens ? kv_persist_state_bytes(e) : 0;
}

// The window pages that the next row sees lie behind the pages.
static uint32_t first_window(const struct engine *e, const struct session_head *h)
{
    return e->kv.window ? kv_window_first(&e->kv, h->n_tokens) : h->n_pages;
}

// ---- saving

struct session_writer {
    struct file_writer file;
    struct sha256_stream *sum;
    unsigned char *room; // of one page, a state or a window page
    uint32_t *tokens;    // as the file has them
    struct sha256 *keys; // [n_tiles]
    uint32_t n_tiles;
};

static void add(struct session_writer *w, const void *bytes, size_t n)
{
    sha256_add(w->sum, bytes, n);
    file_write(&w->file, bytes, n);
}

static bool write_pages(struct session_writer *w, const struct ingot_session *s, const struct session_head *h,
                        struct err *err)
{
    for (uint32_t i = 0; i < h->n_pages; i++) {
        if (!flight_move(s->engine, stage_page_move, kv_at(&s->engine->kv, s->slot, i), w->room, false, err))
            return false;
        add(w, w->room, h->page_bytes);
    }
    for (uint32_t i = first_window(s->engine, h); i < h->n_pages; i++) {
        if (!flight_move(s->engine, stage_window_move, kv_window_at(&s->engine->kv, s->slot, i), w->room,
                         false, err))
            return false;
        add(w, w->room, kv_persist_window_bytes(s->engine));
    }
    return true;
}

static bool write_state(struct session_writer *w, const struct ingot_session *s, const struct session_head *h,
                        struct err *err)
{
    uint64_t bytes = state_bytes(s->engine, h);

    if (bytes == 0)
        return true;
    if (!flight_move(s->engine, stage_state_move, session_state_row(s, h->n_tokens), w->room, false, err))
        return false;
    add(w, w->room, bytes);
    return true;
}

static bool write_all(struct session_writer *w, const struct ingot_session *s, const struct session_head *h,
                      struct err *err)
{
    add(w, h, sizeof *h);
    add(w, w->tokens, h->n_tokens * sizeof *w->tokens);
    add(w, w->keys, w->n_tiles * sizeof *w->keys);
    bool ok = write_pages(w, s, h, err) && write_state(w, s, h, err);
    struct sha256 sum = sha256_take(w->sum);
    file_write(&w->file, &sum, sizeof sum);
    if (ok)
        return file_commit(&w->file, err);
    file_abort(&w->file);
    return false;
}

// Rows of pictures have numbers of this process in place of tokens; the file has the keys of their tiles. The
// rows of a tile follow each other.
static bool write_tokens(struct session_writer *w, const struct ingot_session *s, uint32_t n, struct err *err)
{
    w->tokens = mem_alloc_array(n + 1, sizeof *w->tokens);
    w->keys = mem_alloc_array(n + 1, sizeof *w->keys);
    if (!w->tokens || !w->keys)
        return err_memory(err, "a session's tokens");
    for (uint32_t i = 0; i < n; i++) {
        w->tokens[i] = s->tokens[i];
        if (s->tokens[i] < STEP_TOKEN_POOLED)
            continue;
        if ((i == 0 || s->tokens[i] != s->tokens[i - 1]) &&
            !tiles_key(s->engine->tiles, s->tokens[i] - STEP_TOKEN_POOLED, &w->keys[w->n_tiles++]))
            return err_set(err, ERR_LIMIT,
                           "the picture at position %u was forgotten after thousands of others; ask about it "
                           "again, then save",
                           i);
        w->tokens[i] = STEP_TOKEN_POOLED + w->n_tiles - 1;
    }
    return true;
}

static bool is_here(const struct engine *e, struct err *err)
{
    return !e->loaded->remote ||
           err_set(err, ERR_UNSUPPORTED,
                   "sessions are not kept in files where a model is on several ranks: each has the pages of "
                   "its own layers; keep the prompt, and start without mpirun to keep its pages");
}

bool session_file_save(const struct ingot_session *s, const char *path, struct err *err)
{
    struct session_writer w = { .sum = sha256_open() };
    struct session_head h;
    const uint32_t n = kv_window_below(&s->engine->kv, s->slot, session_state_below(s, s->n_tokens));
    bool ok = is_here(s->engine, err) && head_fill(&h, s->engine, err) && write_tokens(&w, s, n, err);

    if (ok) {
        h.root = s->root;
        h.n_tokens = n;
        h.n_pages = kv_pages_of(n);
        h.n_tiles = w.n_tiles;
        uint64_t most = state_bytes(s->engine, &h), window = kv_persist_window_bytes(s->engine);
        most = most > window ? most : window;
        w.room = mem_alloc(h.page_bytes > most ? h.page_bytes : most);
        ok = (w.sum && w.room) || err_memory(err, "a session's pages");
    }
    ok = ok && file_create(&w.file, path, err) && write_all(&w, s, &h, err);
    mem_free(w.room);
    mem_free(w.tokens);
    mem_free(w.keys);
    sha256_close(w.sum);
    return ok;
}

// ---- loading

static bool sum_check(struct str file, struct err *err)
{
    struct sha256_stream *s = sha256_open();
    size_t n = file.n - sizeof(struct sha256);

    if (!s)
        return err_memory(err, "a session's sum");
    sha256_add(s, file.at, n);
    struct sha256 sum = sha256_take(s);
    sha256_close(s);
    return memcmp(file.at + n, &sum, sizeof sum) == 0 ||
           err_set(err, ERR_INPUT, "damaged: its sum is another; save it again");
}

static bool head_read(const struct engine *e, struct str file, struct session_head *h, struct err *err)
{
    struct session_head own;

    if (file.n < sizeof *h + sizeof(struct sha256) || memcmp(file.at, MAGIC, sizeof MAGIC) != 0)
        return err_set(err, ERR_INPUT, "this is no session of ingot's");
    memcpy(h, file.at, sizeof *h);
    if (!head_fill(&own, e, err))
        return false;
    if (!sha256_eq(&h->model, &own.model) || h->page_bytes != own.page_bytes)
        return err_set(
            err, ERR_INPUT,
            "a session of another model, device, version or cache type; its text has to be read again");
    if (h->n_tokens > e->loaded->n_context)
        return err_set(err, ERR_LIMIT, "a session of %u tokens, and the context holds %u; raise %s",
                       h->n_tokens, e->loaded->n_context, err_option("n_context"));
    uint64_t n = sizeof *h + (uint64_t)h->n_tokens * sizeof(uint32_t) +
                 (uint64_t)h->n_tiles * sizeof(struct sha256) + h->n_pages * h->page_bytes +
                 (h->n_pages - first_window(e, h)) * kv_persist_window_bytes(e) + state_bytes(e, h) +
                 sizeof(struct sha256);
    if (h->n_pages != kv_pages_of(h->n_tokens) || file.n != n)
        return err_set(err, ERR_INPUT, "%zu bytes, and a session of %u tokens has %llu; save it again",
                       file.n, h->n_tokens, (unsigned long long)n);
    return sum_check(file, err);
}

// Puts this process's numbers in place of the file's.
static bool read_tokens(struct ingot_session *s, const struct session_head *h, const char *tokens,
                        const char *keys, struct err *err)
{
    uint32_t n_vocab = s->engine->loaded->model.config.n_vocab;

    if (h->n_tiles && !s->engine->tiles)
        return tiles_refuse(err);
    memcpy(s->tokens, tokens, h->n_tokens * sizeof *s->tokens);
    for (uint32_t i = 0; i < h->n_tokens; i++) {
        uint32_t token = s->tokens[i], tile = token - STEP_TOKEN_POOLED;
        struct sha256 key;
        if (token < n_vocab)
            continue;
        if (token < STEP_TOKEN_POOLED || tile >= h->n_tiles)
            return err_set(err, ERR_INPUT, "token %u is %u; the model has %u", i, token, n_vocab);
        memcpy(&key, keys + tile * sizeof key, sizeof key);
        uint32_t number = tiles_number(s->engine->tiles, &key, err);
        if (number == 0)
            return false;
        s->tokens[i] = STEP_TOKEN_POOLED + number;
    }
    return true;
}

// The session's pages are its own until a request has continued from them.
static bool fill(struct ingot_session *s, struct str file, const struct session_head *h, struct err *err)
{
    struct engine *e = s->engine;
    const char *tokens = file.at + sizeof *h, *keys = tokens + h->n_tokens * sizeof *s->tokens,
               *at = keys + h->n_tiles * sizeof(struct sha256);

    if (!read_tokens(s, h, tokens, keys, err))
        return false;
    kv_window_advance(&e->kv, s->slot, h->n_tokens);
    if (!engine_grow(e, s->slot, h->n_tokens))
        return err_set(err, ERR_LIMIT, "no pages for its %u tokens; free a session or raise %s", h->n_tokens,
                       err_option("n_kv_tokens"));
    for (uint32_t i = 0; i < h->n_pages; i++, at += h->page_bytes)
        if (!flight_move(e, stage_page_move, kv_at(&e->kv, s->slot, i), (unsigned char *)(uintptr_t)at, true,
                         err))
            return false;
    for (uint32_t i = first_window(e, h); i < h->n_pages; i++, at += kv_persist_window_bytes(e))
        if (!flight_move(e, stage_window_move, kv_window_at(&e->kv, s->slot, i),
                         (unsigned char *)(uintptr_t)at, true, err))
            return false;
    if (state_bytes(e, h) && !flight_move(e, stage_state_move, kv_state_own(&e->kv, s->slot),
                                          (unsigned char *)(uintptr_t)at, true, err))
        return false;
    session_state_arrived(s, h->n_tokens);
    s->root = h->root;
    s->n_tokens = h->n_tokens;
    return true;
}

struct ingot_session *session_file_load(struct engine *e, const char *path, struct err *err)
{
    struct ingot_session *s = NULL;
    struct session_head h;
    struct file_map map;

    if (!is_here(e, err) || !file_map_open(&map, path, err))
        return NULL;
    struct str file = { (const char *)map.at, map.bytes };
    bool ok = head_read(e, file, &h, err) && (s = session_open(e, err)) && fill(s, file, &h, err);
    file_map_close(&map);
    if (ok)
        return s;
    session_close(s);
    err_prefix(err, "%s", path);
    return NULL;
}
