// kv_window.c - see kv_window.h.
#include "engine/kv/kv_window.h"
#include "base/mem.h"

enum { KEPT_BEHIND = 64 }; // tokens: a prompt that was shared once may be shared a little further

bool kv_window_create(struct kv *kv, uint32_t window, uint32_t n, struct err *err)
{
    CHECK(window > 0 && n > 0);
    kv->windows = mem_alloc_array(n, sizeof *kv->windows);
    kv->window_slots = mem_alloc_array(kv->n_slots, sizeof *kv->window_slots);
    kv->window_table = mem_alloc_array((size_t)kv->n_slots * kv->max_pages, sizeof *kv->window_table);
    if (!kv->windows || !kv->window_slots || !kv->window_table)
        return err_memory(err, "the page table of the window");
    kv->window = window;
    kv->n_windows = n;
    for (uint32_t i = 0; i < n; i++)
        kv->windows[i] =
            (struct kv_window){ KV_NONE, 0, i ? i - 1 : KV_NONE, i + 1 < n ? i + 1 : KV_NONE, false };
    kv->newest_window = 0;
    kv->oldest_window = n - 1;
    return true;
}

void kv_window_release(struct kv *kv)
{
    mem_free(kv->windows);
    mem_free(kv->window_slots);
    mem_free(kv->window_table);
    kv->windows = NULL;
    kv->window_slots = NULL;
    kv->window_table = NULL;
    kv->window = kv->n_windows = 0;
}

struct kv_window_count kv_window_count(const struct kv *kv)
{
    struct kv_window_count n = { 0 };

    for (uint32_t i = 0; i < kv->n_windows; i++) {
        n.n_held += kv->windows[i].n_pins > 0;
        n.n_idle += kv->windows[i].n_pins == 0 && kv->windows[i].page != KV_NONE;
    }
    return n;
}

// ---- those that no slot holds

static void idle_remove(struct kv *kv, uint32_t w)
{
    const struct kv_window *p = &kv->windows[w];

    if (p->older != KV_NONE)
        kv->windows[p->older].newer = p->newer;
    else
        kv->oldest_window = p->newer;
    if (p->newer != KV_NONE)
        kv->windows[p->newer].older = p->older;
    else
        kv->newest_window = p->older;
}

// last: it is the last to be lost, else the first.
static void idle_add(struct kv *kv, uint32_t w, bool last)
{
    struct kv_window *p = &kv->windows[w];

    p->older = last ? kv->newest_window : KV_NONE;
    p->newer = last ? KV_NONE : kv->oldest_window;
    if (p->older != KV_NONE)
        kv->windows[p->older].newer = w;
    else
        kv->oldest_window = w;
    if (p->newer != KV_NONE)
        kv->windows[p->newer].older = w;
    else
        kv->newest_window = w;
}

static void pin(struct kv *kv, uint32_t w)
{
    if (kv->windows[w].n_pins++ == 0)
        idle_remove(kv, w);
}

static void unpin(struct kv *kv, uint32_t w, bool last)
{
    struct kv_window *p = &kv->windows[w];

    CHECK(p->n_pins > 0);
    if (--p->n_pins == 0)
        idle_add(kv, w, last && p->page != KV_NONE);
}

static void assign(struct kv *kv, uint32_t w, uint32_t page)
{
    kv->windows[w].page = page;
    kv->windows[w].saved = false;
    kv->pages[page].window = w + 1;
}

// Takes the first that may be lost from its page.
static uint32_t take(struct kv *kv)
{
    uint32_t w = kv->oldest_window;

    if (w == KV_NONE)
        return KV_NONE;
    uint32_t page = kv->windows[w].page;
    if (page != KV_NONE && kv->pages[page].known && kv->before_loss)
        kv->before_loss(kv->before_loss_arg, page);
    if (page != KV_NONE)
        kv_window_drop(kv, page);
    return w;
}

// ---- of a page

uint32_t kv_window_of(const struct kv *kv, uint32_t page)
{
    return kv->pages[page].window ? kv->pages[page].window - 1 : KV_NONE;
}

uint32_t kv_window_keep(struct kv *kv, uint32_t page)
{
    uint32_t w = take(kv);

    if (w == KV_NONE)
        return KV_NONE;
    assign(kv, w, page);
    kv_window_touch(kv, page);
    return w;
}

void kv_window_touch(struct kv *kv, uint32_t page)
{
    uint32_t w = kv_window_of(kv, page);

    if (w == KV_NONE || kv->windows[w].n_pins > 0)
        return;
    idle_remove(kv, w);
    idle_add(kv, w, true);
}

void kv_window_drop(struct kv *kv, uint32_t page)
{
    uint32_t w = kv_window_of(kv, page);

    if (w == KV_NONE)
        return;
    kv->pages[page].window = 0;
    kv->windows[w].page = KV_NONE;
    if (kv->windows[w].n_pins > 0) // a slot goes on with it
        return;
    idle_remove(kv, w);
    idle_add(kv, w, false);
}

void kv_window_move(struct kv *kv, uint32_t from, uint32_t to)
{
    uint32_t w = kv_window_of(kv, from);

    if (w == KV_NONE || kv->pages[to].window)
        return;
    kv->pages[from].window = 0;
    assign(kv, w, to);
}

// ---- of a slot

static uint32_t *entry(struct kv *kv, uint32_t slot, uint32_t i)
{
    return &kv->window_table[(uint64_t)slot * kv->max_pages + i];
}

uint32_t kv_window_first(const struct kv *kv, uint32_t n)
{
    return n >= kv->window ? (n - kv->window + 1) / PAGE_TOKENS : 0;
}

// One that the slot holds may have been moved to another page.
uint32_t kv_window_at(const struct kv *kv, uint32_t slot, uint32_t i)
{
    const struct kv_window_slot *s = &kv->window_slots[slot];
    return i >= s->from && i < s->to ? kv->window_table[(uint64_t)slot * kv->max_pages + i]
                                     : kv_window_of(kv, kv_at(kv, slot, i));
}

// Takes one for each page without; all are held.
bool kv_window_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens)
{
    uint32_t to = kv_pages_of(n_tokens), before;

    if (!kv->window || kv->window_slots[slot].to >= to)
        return true;
    struct kv_window_slot *s = &kv->window_slots[slot];
    CHECK(to <= kv->n_taken[slot]);
    for (before = s->to; s->to < to; s->to++) {
        uint32_t page = kv_at(kv, slot, s->to);
        uint32_t w = kv->pages[page].window ? kv_window_of(kv, page) : kv_window_keep(kv, page);
        if (w == KV_NONE) {
            kv_window_cut(kv, slot, before);
            return false;
        }
        pin(kv, w);
        *entry(kv, slot, s->to) = w;
    }
    return true;
}

// Whether a prompt may begin with what the page is part of the end of.
static bool is_worth_keeping(const struct kv *kv, const struct kv_window_slot *s, uint32_t i)
{
    for (int k = 0; k < 2; k++)
        if (i >= kv_window_first(kv, s->keep[k]) && i * PAGE_TOKENS < s->keep[k] + KEPT_BEHIND)
            return true;
    return false;
}

void kv_window_advance(struct kv *kv, uint32_t slot, uint32_t n)
{
    if (!kv->window)
        return;
    struct kv_window_slot *s = &kv->window_slots[slot];
    for (uint32_t first = kv_window_first(kv, n); s->from < first && s->from < s->to; s->from++)
        unpin(kv, *entry(kv, slot, s->from), is_worth_keeping(kv, s, s->from));
    if (s->from == s->to && s->to < kv_window_first(kv, n))
        s->from = s->to = kv_window_first(kv, n);
}

// In reverse, as kv_shrink lets go of pages.
void kv_window_cut(struct kv *kv, uint32_t slot, uint32_t n_pages)
{
    if (!kv->window)
        return;
    struct kv_window_slot *s = &kv->window_slots[slot];
    while (s->to > n_pages && s->to > s->from)
        unpin(kv, *entry(kv, slot, --s->to), true);
    if (s->to > n_pages)
        s->from = s->to = n_pages;
}

uint32_t kv_window_below(const struct kv *kv, uint32_t slot, uint32_t n)
{
    if (!kv->window)
        return n;
    // a page that will be written further is the slot's own
    if (n % PAGE_TOKENS && !kv->pages[kv_at(kv, slot, n / PAGE_TOKENS)].window)
        n = n / PAGE_TOKENS * PAGE_TOKENS;
    for (uint32_t i = kv_pages_of(n); i > kv_window_first(kv, n); i--)
        if (kv_window_at(kv, slot, i - 1) == KV_NONE)
            n = (i - 1) * PAGE_TOKENS;
    return n;
}

// lost: where the last page without a window page ends.
bool kv_window_passes(const struct kv *kv, uint32_t page, uint32_t n, uint32_t *lost)
{
    if (kv->window && !kv->pages[page].window)
        *lost = n;
    return !kv->window || kv_window_first(kv, n) * PAGE_TOKENS >= *lost;
}

void kv_window_resume(struct kv *kv, uint32_t slot, uint32_t n)
{
    if (!kv->window)
        return;
    struct kv_window_slot *s = &kv->window_slots[slot], old = *s;
    for (uint32_t i = kv_window_first(kv, n); i < kv_pages_of(n); i++) {
        uint32_t w = kv_window_at(kv, slot, i);
        CHECK(w != KV_NONE);
        pin(kv, w);
        *entry(kv, slot, i) = w;
    }
    s->from = kv_window_first(kv, n);
    s->to = kv_pages_of(n);
    while (old.to > old.from)
        unpin(kv, *entry(kv, slot, --old.to), true);
}

void kv_window_expect(struct kv *kv, uint32_t slot, uint32_t shared, uint32_t n_prompt)
{
    if (!kv->window)
        return;
    struct kv_window_slot *s = &kv->window_slots[slot];
    s->keep[0] = shared / PAGE_TOKENS * PAGE_TOKENS;
    s->keep[1] = (n_prompt - 1) / PAGE_TOKENS * PAGE_TOKENS; // a row of the prompt has to be left
}
