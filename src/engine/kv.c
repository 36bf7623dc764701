// kv.c - see kv.h.
#include "engine/kv.h"
#include "base/mem.h"
#include "ops/pages.h"

bool kv_create(struct kv *kv, uint32_t n_slots, uint32_t n_context, struct err *err)
{
    *kv = (struct kv){ .n_slots = n_slots, .max_pages = (n_context + PAGE_TOKENS - 1) / PAGE_TOKENS };
    kv->n_pages = n_slots * kv->max_pages;
    kv->table = mem_alloc_array(kv->n_pages, sizeof *kv->table);
    kv->n_taken = mem_alloc_array(n_slots, sizeof *kv->n_taken);
    kv->slot_used = mem_alloc_array(n_slots, sizeof *kv->slot_used);
    kv->free_pages = mem_alloc_array(kv->n_pages, sizeof *kv->free_pages);
    if (!kv->table || !kv->n_taken || !kv->slot_used || !kv->free_pages) {
        kv_release(kv);
        return err_memory(err, "the page table");
    }
    for (uint32_t i = 0; i < kv->n_pages; i++) // the lowest page is taken first
        kv->free_pages[kv->n_free++] = kv->n_pages - 1 - i;
    return true;
}

void kv_release(struct kv *kv)
{
    mem_free(kv->table);
    mem_free(kv->n_taken);
    mem_free(kv->slot_used);
    mem_free(kv->free_pages);
    *kv = (struct kv){ 0 };
}

uint32_t kv_slot_take(struct kv *kv)
{
    for (uint32_t s = 0; s < kv->n_slots; s++)
        if (!kv->slot_used[s]) {
            kv->slot_used[s] = true;
            return s;
        }
    return UINT32_MAX;
}

void kv_slot_return(struct kv *kv, uint32_t slot)
{
    CHECK(slot < kv->n_slots && kv->slot_used[slot]);
    while (kv->n_taken[slot] > 0)
        kv->free_pages[kv->n_free++] = kv->table[(uint64_t)slot * kv->max_pages + --kv->n_taken[slot]];
    kv->slot_used[slot] = false;
}

void kv_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens, uint32_t *changed_from)
{
    uint32_t wanted = (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;

    CHECK(wanted <= kv->max_pages);
    *changed_from = kv->n_taken[slot];
    while (kv->n_taken[slot] < wanted) {
        CHECK(kv->n_free > 0);
        kv->table[(uint64_t)slot * kv->max_pages + kv->n_taken[slot]++] = kv->free_pages[--kv->n_free];
    }
}
