// session.c - see session.h.
#include "engine/session.h"
#include "base/mem.h"
#include "engine/kv/prefix.h"

struct ingot_session *session_open(struct engine *e, struct err *err)
{
    struct ingot_session *s = mem_alloc(sizeof *s);
    uint32_t *tokens = mem_alloc_array(e->loaded->n_context, sizeof *tokens);
    uint32_t slot = s && tokens ? kv_slot_take(&e->kv) : KV_NONE;

    if (slot != KV_NONE) {
        *s = (struct ingot_session){ .engine = e, .next = e->sessions, .slot = slot, .tokens = tokens };
        e->sessions = s;
        e->n_live++;
        return s;
    }
    if (s && tokens)
        err_set(err, ERR_LIMIT, "all %u sequences are in use; free a session or raise n_sequences",
                e->kv.n_slots);
    else
        err_memory(err, "a session");
    mem_free(s);
    mem_free(tokens);
    return NULL;
}

void session_close(struct ingot_session *s)
{
    if (!s)
        return;
    CHECK(!s->busy);
    struct ingot_session **at = &s->engine->sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    kv_slot_return(&s->engine->kv, s->slot);
    s->engine->n_live--;
    mem_free(s->tokens);
    mem_free(s);
}

uint32_t session_rewind(struct ingot_session *s, uint32_t n)
{
    struct kv *kv = &s->engine->kv;
    uint32_t n_whole = n / PAGE_TOKENS;

    if (n % PAGE_TOKENS && kv->pages[kv_at(kv, s->slot, n_whole)].known) // other slots may share it
        n = n_whole * PAGE_TOKENS;
    kv_shrink(kv, s->slot, kv_pages_of(n));
    s->n_tokens = n;
    s->n_indexed = s->n_indexed < n_whole ? s->n_indexed : n_whole;
    return n;
}

void session_index(struct ingot_session *s, uint32_t n)
{
    struct kv *kv = &s->engine->kv;

    for (; kv->prefix && s->n_indexed < n / PAGE_TOKENS; s->n_indexed++) {
        struct prefix_walk walk = prefix_at(kv, &s->root, s->slot, s->n_indexed);
        prefix_put(kv, &walk, kv_at(kv, s->slot, s->n_indexed), s->tokens + walk.n_tokens);
    }
}
