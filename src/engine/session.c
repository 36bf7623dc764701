// session.c - see session.h.
#include "engine/session.h"
#include "base/err.h"
#include "base/mem.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"

struct ingot_session *session_open(struct engine *e, struct err *err)
{
    struct ingot_session *s = mem_alloc(sizeof *s);
    uint32_t *tokens = mem_alloc_array(e->loaded->n_context, sizeof *tokens);
    uint32_t slot = s && tokens ? kv_slot_take(&e->kv) : KV_NONE;

    if (slot != KV_NONE) {
        *s = (struct ingot_session){
            .engine = e, .next = e->sessions, .slot = slot, .tokens = tokens, .state = STATE_ZERO
        };
        e->sessions = s;
        e->n_live++;
        return s;
    }
    if (s && tokens)
        err_set(err, ERR_LIMIT, "sequences in use: all %u; free a session or raise %s", e->kv.n_slots,
                err_option("n_sequences"));
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
    session_state_resume(s, 0);
    kv_slot_return(&s->engine->kv, s->slot);
    s->engine->n_live--;
    mem_free(s->tokens);
    mem_free(s);
}

void session_restart(struct ingot_session *s)
{
    *s = (struct ingot_session){ .engine = s->engine,
                                 .next = s->next,
                                 .slot = kv_slot_take(&s->engine->kv),
                                 .tokens = s->tokens,
                                 .state = STATE_ZERO };
    CHECK(s->slot != KV_NONE); // as many as before
}

uint32_t session_rewind(struct ingot_session *s, uint32_t n)
{
    struct kv *kv = &s->engine->kv;

    if (n % PAGE_TOKENS && kv->pages[kv_at(kv, s->slot, n / PAGE_TOKENS)].known) // other slots may share it
        n = n / PAGE_TOKENS * PAGE_TOKENS;
    for (uint32_t asked = n + 1; n < asked;) {
        asked = n;
        n = kv_window_below(kv, s->slot, session_state_below(s, n));
    }
    session_state_resume(s, n);
    kv_shrink(kv, s->slot, kv_pages_of(n));
    kv_window_resume(kv, s->slot, n);
    s->n_tokens = n;
    s->n_indexed = s->n_indexed < n / PAGE_TOKENS ? s->n_indexed : n / PAGE_TOKENS;
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

// ---- the state

static void hold(struct ingot_session *s, uint32_t row, uint32_t n_tokens)
{
    kv_state_pin(&s->engine->kv, row);
    kv_state_unpin(&s->engine->kv, s->state);
    s->state = row;
    s->state_at = n_tokens;
}

void session_state_expect(struct ingot_session *s, uint32_t n_prompt, uint32_t n_shared)
{
    s->keep_shared = n_shared / STATE_GRID * STATE_GRID;
    s->keep_last = (n_prompt - 1) / STATE_GRID * STATE_GRID; // a row of the prompt has to be left
    s->n_prompt = n_prompt;
}

static uint32_t page_behind(const struct ingot_session *s, uint32_t n_tokens)
{
    return kv_at(&s->engine->kv, s->slot, n_tokens / PAGE_TOKENS - 1);
}

static bool is_worth_keeping(const struct ingot_session *s, uint32_t n_tokens)
{
    return n_tokens % STATE_GRID == 0 && (n_tokens == s->keep_shared || n_tokens == s->keep_last ||
                                          n_tokens > s->n_prompt || n_tokens % STATE_FAR == 0);
}

// Of an answer the newest alone is worth its memory.
static void drop_older(struct ingot_session *s, uint32_t n_tokens)
{
    if (n_tokens <= s->n_prompt)
        return;
    if (s->answer_kept && s->answer_kept < n_tokens)
        kv_state_drop(&s->engine->kv, page_behind(s, s->answer_kept));
    s->answer_kept = n_tokens % STATE_FAR ? n_tokens : 0;
}

static uint32_t row_behind(struct ingot_session *s, uint32_t n_tokens)
{
    uint32_t kept = 0;

    if (is_worth_keeping(s, n_tokens)) {
        drop_older(s, n_tokens);
        kept = kv_state_keep(&s->engine->kv, page_behind(s, n_tokens));
    }
    return kept ? kept : kv_state_own(&s->engine->kv, s->slot);
}

void session_state_feed(struct ingot_session *s, const struct batch *b, struct batch_row *row)
{
    struct batch_row *above = b->n_rows ? &b->rows[b->n_rows - 1] : NULL;
    bool goes_on = above && above->slot == s->slot;

    if (!s->engine->kv.has_states)
        return;
    CHECK(s->state_at == row->position);
    row->state_from = goes_on ? STATE_NEXT : s->state;
    if (goes_on && above->state_to == kv_state_own(&s->engine->kv, s->slot))
        above->state_to = STATE_NONE;
    row->state_to = row_behind(s, row->position + 1);
    hold(s, row->state_to, row->position + 1);
}

// What is refused is not kept, and an older state that would give way to it stays until it counts.
bool session_state_draft(struct ingot_session *s, struct batch_row *row)
{
    struct kv *kv = &s->engine->kv;
    uint32_t n_tokens = row->position + 1, to = 0;

    if (!kv->has_states)
        return true;
    CHECK(s->state_at == row->position && s->n_drafted < SPECULATE_MOST);
    if (is_worth_keeping(s, n_tokens))
        to = kv_state_keep(kv, page_behind(s, n_tokens));
    if (to == 0 && (to = kv_state_spare_take(kv)) == KV_NONE)
        return false;
    row->state_from = STATE_NEXT;
    row->state_to = to;
    s->before[s->n_drafted++] = s->state;
    hold(s, to, n_tokens);
    return true;
}

static void let_go(struct ingot_session *s, uint32_t row)
{
    if (!kv_state_kept(&s->engine->kv, row))
        kv_state_spare_return(&s->engine->kv, row);
}

static void refuse_last(struct ingot_session *s)
{
    struct kv *kv = &s->engine->kv;
    uint32_t row = s->state;

    if (kv_state_kept(kv, row))
        kv_state_drop(kv, page_behind(s, s->state_at));
    hold(s, s->before[--s->n_drafted], s->state_at - 1);
    let_go(s, row);
}

void session_state_settle(struct ingot_session *s, uint32_t n)
{
    struct kv *kv = &s->engine->kv;

    while (s->n_drafted > 0 && s->state_at > n)
        refuse_last(s);
    if (s->n_drafted == 0)
        return;
    for (uint32_t i = 1; i < s->n_drafted; i++) // the first lies where a row that was no draft left it
        let_go(s, s->before[i]);
    uint32_t kept_at = s->state_at / STATE_GRID * STATE_GRID;
    if (kept_at > s->state_at - s->n_drafted && is_worth_keeping(s, kept_at))
        drop_older(s, kept_at);
    s->n_drafted = 0;
    if (!kv_state_kept(kv, s->state))
        kv_state_own_change(kv, s->slot, s->state);
}

uint32_t session_state_below(const struct ingot_session *s, uint32_t n)
{
    const struct kv *kv = &s->engine->kv;
    uint32_t own = s->state_at <= n ? s->state_at : 0;

    if (!kv->has_states || own == n)
        return n;
    for (uint32_t i = n / PAGE_TOKENS; i * PAGE_TOKENS > own; i--)
        if (kv->pages[kv_at(kv, s->slot, i - 1)].state)
            return i * PAGE_TOKENS;
    return own;
}

uint32_t session_state_row(const struct ingot_session *s, uint32_t n)
{
    return n == s->state_at ? s->state : s->engine->kv.pages[page_behind(s, n)].state;
}

void session_state_arrived(struct ingot_session *s, uint32_t n)
{
    if (s->engine->kv.has_states)
        hold(s, kv_state_own(&s->engine->kv, s->slot), n);
}

void session_state_resume(struct ingot_session *s, uint32_t n)
{
    const struct kv *kv = &s->engine->kv;

    session_state_settle(s, s->state_at);
    if (!kv->has_states || n == s->state_at)
        return;
    if (s->answer_kept > n)
        s->answer_kept = 0;
    hold(s, n ? session_state_row(s, n) : STATE_ZERO, n);
}
