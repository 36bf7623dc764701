// session.c - see session.h.
#include "engine/session.h"
#include "base/mem.h"

struct ingot_session *session_open(struct engine *e, struct err *err)
{
    struct ingot_session *s = mem_alloc(sizeof *s);
    uint32_t *tokens = mem_alloc_array(e->n_context, sizeof *tokens);
    uint32_t slot = s && tokens ? kv_slot_take(&e->kv) : UINT32_MAX;

    if (slot != UINT32_MAX) {
        *s = (struct ingot_session){ .engine = e, .slot = slot, .tokens = tokens };
        e->n_live++;
        return s;
    }
    if (s && tokens)
        err_set(err, ERR_LIMIT, "all %u sequences are in use; free a session or raise n_sequences", e->kv.n_slots);
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
    kv_slot_return(&s->engine->kv, s->slot);
    s->engine->n_live--;
    mem_free(s->tokens);
    mem_free(s);
}
