// kv.c - see kv.h.
#include "engine/kv/kv.h"
#include "base/mem.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"

bool kv_create(struct kv *kv, uint32_t n_slots, uint32_t n_context, uint32_t n_pages, struct err *err)
{
    *kv = (struct kv){
        .n_slots = n_slots, .max_pages = kv_pages_of(n_context), .oldest = KV_NONE, .newest = KV_NONE
    };
    kv->n_pages = n_pages ? n_pages : n_slots * kv->max_pages;
    kv->table = mem_alloc_array((size_t)n_slots * kv->max_pages, sizeof *kv->table);
    kv->n_taken = mem_alloc_array(n_slots, sizeof *kv->n_taken);
    kv->slot_used = mem_alloc_array(n_slots, sizeof *kv->slot_used);
    kv->pages = mem_alloc_array(kv->n_pages, sizeof *kv->pages);
    kv->free_pages = mem_alloc_array(kv->n_pages, sizeof *kv->free_pages);
    if (!kv->table || !kv->n_taken || !kv->slot_used || !kv->pages || !kv->free_pages) {
        kv_release(kv);
        return err_memory(err, "the page table");
    }
    for (uint32_t i = 0; i < kv->n_pages; i++) // the lowest page is taken first
        kv->free_pages[kv->n_free++] = kv->n_pages - 1 - i;
    return true;
}

void kv_release(struct kv *kv)
{
    prefix_destroy(kv->prefix);
    kv_state_release(kv);
    kv_window_release(kv);
    mem_free(kv->table);
    mem_free(kv->n_taken);
    mem_free(kv->slot_used);
    mem_free(kv->pages);
    mem_free(kv->free_pages);
    *kv = (struct kv){ 0 };
}

uint32_t kv_pages_of(uint32_t n_tokens)
{
    return n_tokens / PAGE_TOKENS + (n_tokens % PAGE_TOKENS != 0);
}

uint32_t kv_n_available(const struct kv *kv)
{
    return kv->n_free + kv->n_idle;
}

// ---- pages

static void idle_add(struct kv *kv, uint32_t page)
{
    struct kv_page *p = &kv->pages[page];

    p->older = kv->newest;
    p->newer = KV_NONE;
    if (kv->newest != KV_NONE)
        kv->pages[kv->newest].newer = page;
    else
        kv->oldest = page;
    kv->newest = page;
    kv->n_idle++;
}

static void idle_remove(struct kv *kv, uint32_t page)
{
    const struct kv_page *p = &kv->pages[page];

    if (p->older != KV_NONE)
        kv->pages[p->older].newer = p->newer;
    else
        kv->oldest = p->newer;
    if (p->newer != KV_NONE)
        kv->pages[p->newer].older = p->older;
    else
        kv->newest = p->older;
    kv->n_idle--;
}

uint32_t kv_page_take(struct kv *kv)
{
    uint32_t page = KV_NONE;

    if (kv->n_free > 0) {
        page = kv->free_pages[--kv->n_free];
    } else if (kv->n_idle > 0) {
        page = kv->oldest;
        if (kv->before_loss)
            kv->before_loss(kv->before_loss_arg, page);
        idle_remove(kv, page);
        kv_state_drop(kv, page);
        kv_window_drop(kv, page);
        prefix_forget(kv, page);
    }
    if (page != KV_NONE)
        kv->pages[page] = (struct kv_page){ .n_refs = 1 };
    return page;
}

void kv_page_hold(struct kv *kv, uint32_t page)
{
    if (kv->pages[page].n_refs++ == 0)
        idle_remove(kv, page);
}

void kv_page_drop(struct kv *kv, uint32_t page)
{
    CHECK(kv->pages[page].n_refs > 0);
    if (--kv->pages[page].n_refs > 0)
        return;
    if (kv->pages[page].known) {
        idle_add(kv, page);
        return;
    }
    kv_state_drop(kv, page);
    kv_window_drop(kv, page);
    kv->free_pages[kv->n_free++] = page;
}

// ---- slots

uint32_t kv_slot_take(struct kv *kv)
{
    for (uint32_t s = 0; s < kv->n_slots; s++)
        if (!kv->slot_used[s]) {
            kv->slot_used[s] = true;
            return s;
        }
    return KV_NONE;
}

void kv_slot_return(struct kv *kv, uint32_t slot)
{
    CHECK(slot < kv->n_slots && kv->slot_used[slot]);
    kv_shrink(kv, slot, 0);
    kv->slot_used[slot] = false;
}

// In reverse, so that the end of an idle sequence is evicted first and its prefix stays usable.
void kv_shrink(struct kv *kv, uint32_t slot, uint32_t n_pages)
{
    kv_window_cut(kv, slot, n_pages);
    while (kv->n_taken[slot] > n_pages)
        kv_page_drop(kv, kv_at(kv, slot, --kv->n_taken[slot]));
}

static void append(struct kv *kv, uint32_t slot, uint32_t page)
{
    CHECK(kv->n_taken[slot] < kv->max_pages);
    kv->table[(uint64_t)slot * kv->max_pages + kv->n_taken[slot]++] = page;
}

bool kv_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens)
{
    uint32_t wanted = kv_pages_of(n_tokens);

    CHECK(wanted <= kv->max_pages);
    if (wanted > kv->n_taken[slot] && wanted - kv->n_taken[slot] > kv_n_available(kv))
        return false;
    while (kv->n_taken[slot] < wanted)
        append(kv, slot, kv_page_take(kv));
    return true;
}

void kv_share(struct kv *kv, uint32_t slot, uint32_t page)
{
    CHECK(kv->pages[page].known);
    kv_page_hold(kv, page);
    append(kv, slot, page);
}

const char *kv_format_name(enum kv_format format)
{
    static const char *const names[N_KV_FORMATS] = { "f32", "f16", "bf16", "q8_0" };
    return names[format];
}
