// request_admit.c - see request_admit.h.
#include "engine/request_admit.h"
#include "base/clock.h"
#include "engine/kv_persist.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"

// Length in tokens of the whole pages that two lists of tokens have in common at their beginning.
static uint32_t common_pages(const struct request *a, const struct request *b)
{
    uint32_t n = 0, most = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens;

    while (n < most && a->tokens[n] == b->tokens[n])
        n++;
    return n / PAGE_TOKENS * PAGE_TOKENS;
}

// The number of tokens that the prefix cache may supply: all before the first whose logits or hidden state
// the request wants.
static uint32_t most_reusable(const struct request *r)
{
    return r->pool.kind ? 0 : r->next_logits;
}

static uint32_t known_tokens(struct request *r)
{
    struct kv *kv = &r->engine->kv;
    struct prefix_walk walk = prefix_begin(&r->root);
    uint32_t n = 0, n_known = 0, lost = 0, page;

    while (n + PAGE_TOKENS <= most_reusable(r) && (page = prefix_next(kv, &walk, r->tokens + n)) != KV_NONE) {
        n += PAGE_TOKENS;
        if (kv_window_passes(kv, page, n, &lost) && (!kv->has_states || kv->pages[page].state))
            n_known = n;
    }
    return n_known;
}

// How many of these tokens another request can begin with when this one has read them. Of a model with
// states: as many as it keeps a state behind, which it is asked for.
static uint32_t leaves(struct request *reader, uint32_t n_tokens)
{
    struct ingot_session *s = reader->session;
    uint32_t n = n_tokens / STATE_GRID * STATE_GRID;

    kv_window_expect(&reader->engine->kv, s->slot, n_tokens, reader->n_prompt);
    if (!reader->engine->kv.has_states)
        return n_tokens;
    if (n == s->keep_last || n == s->keep_shared)
        return n;
    if (reader->n_fed >= n || s->keep_shared > reader->n_fed) // too late, or another one waits already
        return 0;
    s->keep_shared = n;
    return n;
}

// Its prompt is not in the pages yet: the last chunk may be in a step that still runs.
static bool is_reading(const struct request *r)
{
    return r->state == REQUEST_PREFILL || (r->state == REQUEST_DECODE && r->next_logits < r->n_prompt);
}

// Whether to wait for a request that is computing a prefix which this one shares. The pages are ready when
// that whole prompt is read, so waiting for more than twice the rows that it saves is not worth it.
static bool is_being_read(struct request *r)
{
    const struct engine *e = r->engine;

    if (!e->kv.prefix || r->session || r->n_tokens <= PAGE_TOKENS)
        return false;
    for (struct request *other = e->first; other; other = other->next) {
        if (!is_reading(other) || !sha256_eq(&other->root, &r->root))
            continue;
        uint32_t common = common_pages(r, other);
        uint32_t most = most_reusable(r) / PAGE_TOKENS * PAGE_TOKENS;
        common = leaves(other, common < most ? common : most);
        uint32_t known = common > 0 ? known_tokens(r) : 0;
        if (common > known && other->n_tokens - other->n_fed <= 2 * (common - known))
            return true;
    }
    return false;
}

// Reuses the session's own tokens. Returns how many of the request's tokens they cover.
static uint32_t reuse_session(struct request *r, struct ingot_session *s, struct ingot_miss *miss)
{
    uint32_t n = 0;

    if (!sha256_eq(&s->root, &r->root))
        session_rewind(s, 0);
    s->root = r->root;
    while (n < most_reusable(r) && n < s->n_tokens && s->tokens[n] == r->tokens[n])
        n++;
    *miss = (struct ingot_miss){ INGOT_MISS_NEW, n, r->tokens[n], UINT32_MAX };
    if (n < s->n_tokens && n < most_reusable(r))
        *miss = (struct ingot_miss){ INGOT_MISS_DIFFERS, n, r->tokens[n], s->tokens[n] };
    return session_rewind(s, n);
}

// Extends them with pages of the prefix index and of the store.
static uint32_t reuse_index(struct request *r, struct ingot_session *s, uint32_t n, struct ingot_miss *miss)
{
    struct kv *kv = &r->engine->kv;
    struct prefix_walk walk = prefix_at(kv, &s->root, s->slot, n / PAGE_TOKENS);
    uint32_t n_before = n;

    while (n + PAGE_TOKENS <= most_reusable(r)) {
        struct prefix_walk further = walk;
        uint32_t page = prefix_next(kv, &further, r->tokens + n);
        if (page == KV_NONE && (page = kv_persist_find(r->engine, &walk, r->tokens + n)) == KV_NONE)
            break;
        if (further.id == UINT64_MAX)
            further.id = kv->pages[page].id;
        kv_share(kv, s->slot, page);
        walk = further;
        n += PAGE_TOKENS;
    }
    if (n > n_before || miss->reason != INGOT_MISS_DIFFERS)
        *miss = prefix_explain(kv, &walk, r->tokens + n, r->n_tokens - n);
    s->n_indexed = n / PAGE_TOKENS;
    return n;
}

static uint32_t reuse(struct request *r, struct ingot_session *s)
{
    struct ingot_miss miss;
    uint32_t n = reuse_session(r, s, &miss);

    if (n % PAGE_TOKENS == 0 && s->n_indexed == n / PAGE_TOKENS && r->engine->kv.prefix)
        n = reuse_index(r, s, n, &miss);
    for (uint32_t i = s->n_tokens; i < n; i++)
        s->tokens[i] = r->tokens[i];
    session_state_expect(s, r->n_tokens, n);
    kv_window_expect(&r->engine->kv, s->slot, n, r->n_prompt);
    kv_persist_find_windows(r->engine, s->slot, n);
    n = session_rewind(s, n); // to where there is a state
    if (r->result.n_pauses == 0) {
        r->result.n_reused = n;
        r->result.miss = miss;
        if (miss.token >= STEP_TOKEN_POOLED) // a picture's place
            r->result.miss.token = UINT32_MAX;
        if (miss.kept_token >= STEP_TOKEN_POOLED)
            r->result.miss.kept_token = UINT32_MAX;
    }
    return n;
}

// A request needs pages for its tokens and one more, and one spare page for each running request: a request
// that is admitted and soon paused again slows down all of them.
static bool has_room(const struct request *r, const struct ingot_session *s)
{
    const struct engine *e = r->engine;
    uint32_t n_pages = kv_pages_of(r->n_tokens + (r->n_tokens < e->loaded->n_context)),
             taken = e->kv.n_taken[s->slot], n_running = 0;

    for (const struct request *other = e->first; other; other = other->next)
        n_running += other->state == REQUEST_PREFILL || other->state == REQUEST_DECODE;
    return n_pages <= taken || n_pages - taken + n_running <= kv_n_available(&e->kv);
}

enum admission request_admit(struct request *r)
{
    struct engine *e = r->engine;

    if ((r->session && r->session->busy) || is_being_read(r))
        return ADMIT_LATER;
    if (r->n_lacked && kv_n_available(&e->kv) <= r->n_lacked - 1)
        return ADMIT_NO_ROOM;
    struct err err = { 0 };
    struct ingot_session *s = r->session ? r->session : session_open(e, &err);
    if (!s && err.code == ERR_MEMORY) { // no request that ends would make room
        request_finish(r, INGOT_FINISH_ERROR, &err);
        return ADMIT_LATER;
    }
    if (!s)
        return ADMIT_NO_ROOM;
    uint32_t n = reuse(r, s);
    if (!has_room(r, s)) {
        if (!r->session)
            session_close(s);
        r->n_lacked = kv_n_available(&e->kv) + 1;
        return ADMIT_NO_ROOM;
    }
    CHECK(kv_grow(&e->kv, s->slot, r->n_tokens));
    engine_tell_slot(e, s->slot, s->tokens, n);
    engine_tell_adapters(e, s->slot, r->scales);
    r->own_session = !r->session;
    r->session = s;
    s->busy = true;
    r->n_fed = n;
    r->n_lacked = 0;
    r->state = REQUEST_PREFILL;
    if (r->started_ns == 0)
        r->started_ns = clock_ns();
    return ADMIT_DONE;
}

void request_pause(struct request *r)
{
    struct ingot_session *s = r->session;

    flight_forget(&r->engine->flight, r); // its tokens come again
    s->busy = false;
    session_rewind(s, 0);
    if (r->own_session) {
        session_close(s);
        r->session = NULL;
    }
    tiles_drop(r);
    r->state = REQUEST_QUEUED;
    r->result.n_pauses++;
    r->engine->n_pauses++;
}
