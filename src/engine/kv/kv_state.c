// kv_state.c - see kv_state.h. There are few states, each large: looking through all of them costs little.
#include "engine/kv/kv_state.h"
#include "base/mem.h"
#include "device/step.h"

bool kv_state_create(struct kv *kv, uint32_t n, uint32_t n_spare, struct err *err)
{
    kv->states = mem_alloc_array(n, sizeof *kv->states);
    kv->own_states = mem_alloc_array(kv->n_slots, sizeof *kv->own_states);
    kv->spare_states = mem_alloc_array(n_spare, sizeof *kv->spare_states);
    if ((n && !kv->states) || !kv->own_states || (n_spare && !kv->spare_states))
        return err_memory(err, "the list of states");
    kv->has_states = true;
    kv->n_states = n;
    kv->n_spare = kv->n_spare_free = n_spare;
    kv->state_clock = 1;
    for (uint32_t i = 0; i < n; i++)
        kv->states[i].page = KV_NONE;
    for (uint32_t i = 0; i < kv->n_slots; i++)
        kv->own_states[i] = i;
    for (uint32_t i = 0; i < n_spare; i++)
        kv->spare_states[i] = kv->n_slots + n_spare - 1 - i; // the lowest row is taken first
    return true;
}

void kv_state_release(struct kv *kv)
{
    mem_free(kv->states);
    mem_free(kv->own_states);
    mem_free(kv->spare_states);
    kv->states = NULL;
    kv->own_states = kv->spare_states = NULL;
    kv->n_states = kv->n_spare = kv->n_spare_free = 0;
}

static uint32_t first_kept(const struct kv *kv)
{
    return kv->n_slots + kv->n_spare;
}

uint32_t kv_state_rows(const struct kv *kv)
{
    return kv->has_states ? first_kept(kv) + kv->n_states : 0;
}

uint32_t kv_state_own(const struct kv *kv, uint32_t slot)
{
    return kv->has_states ? kv->own_states[slot] : slot;
}

struct kv_state *kv_state_kept(struct kv *kv, uint32_t row)
{
    return row >= first_kept(kv) && row - first_kept(kv) < kv->n_states ? &kv->states[row - first_kept(kv)]
                                                                        : NULL;
}

uint32_t kv_state_spare_take(struct kv *kv)
{
    return kv->n_spare_free ? kv->spare_states[--kv->n_spare_free] : KV_NONE;
}

void kv_state_spare_return(struct kv *kv, uint32_t row)
{
    CHECK(kv->n_spare_free < kv->n_spare && row < first_kept(kv));
    kv->spare_states[kv->n_spare_free++] = row;
}

uint32_t kv_state_spare_of(const struct kv *kv, uint32_t slot)
{
    CHECK(!kv->has_states || (slot < kv->n_spare && kv->n_spare_free == kv->n_spare));
    return kv->has_states ? kv->spare_states[slot] : STATE_NONE;
}

void kv_state_own_change(struct kv *kv, uint32_t slot, uint32_t row)
{
    kv_state_spare_return(kv, kv->own_states[slot]);
    kv->own_states[slot] = row;
}

// What was used in this step may be written or read by it.
static bool may_be_lost(const struct kv *kv, const struct kv_state *s)
{
    return s->n_pins == 0 && s->used < kv->state_clock;
}

static bool is_better(const struct kv_state *a, const struct kv_state *b)
{
    return !b || (a->page == KV_NONE) > (b->page == KV_NONE) ||
           ((a->page == KV_NONE) == (b->page == KV_NONE) && a->used < b->used);
}

static struct kv_state *take(struct kv *kv)
{
    struct kv_state *best = NULL;

    for (uint32_t i = 0; i < kv->n_states; i++)
        if (may_be_lost(kv, &kv->states[i]) && is_better(&kv->states[i], best))
            best = &kv->states[i];
    if (best && best->page != KV_NONE) {
        if (kv->pages[best->page].known && kv->before_loss)
            kv->before_loss(kv->before_loss_arg, best->page);
        kv_state_drop(kv, best->page);
    }
    return best;
}

uint32_t kv_state_keep(struct kv *kv, uint32_t page)
{
    struct kv_page *p = &kv->pages[page];
    struct kv_state *s = p->state ? kv_state_kept(kv, p->state) : take(kv);

    if (!s)
        return 0;
    s->page = page;
    s->used = kv->state_clock;
    s->saved = false;
    p->state = first_kept(kv) + (uint32_t)(s - kv->states);
    return p->state;
}

void kv_state_drop(struct kv *kv, uint32_t page)
{
    struct kv_state *s = kv_state_kept(kv, kv->pages[page].state);

    if (s)
        s->page = KV_NONE;
    kv->pages[page].state = 0;
}

void kv_state_move(struct kv *kv, uint32_t from, uint32_t to)
{
    struct kv_state *s = kv_state_kept(kv, kv->pages[from].state);

    if (!s || kv->pages[to].state)
        return;
    s->page = to;
    kv->pages[to].state = kv->pages[from].state;
    kv->pages[from].state = 0;
}

void kv_state_pin(struct kv *kv, uint32_t row)
{
    struct kv_state *s = kv_state_kept(kv, row);

    if (!s)
        return;
    s->n_pins++;
    s->used = kv->state_clock;
}

void kv_state_unpin(struct kv *kv, uint32_t row)
{
    struct kv_state *s = kv_state_kept(kv, row);

    if (!s)
        return;
    CHECK(s->n_pins > 0);
    s->n_pins--;
    s->used = kv->state_clock;
}

void kv_state_tick(struct kv *kv)
{
    kv->state_clock++;
}
