// kv.h - pages of 16 tokens, who holds them, and the slots of sequences.
//
// A slot is a sequence's row in the page table and in the token log. A page is the same number in every layer of every stage. It is
// free; or held by one slot that writes it; or full and in the index (see prefix.h), from where any number of slots share it. A page
// of the index that nobody holds is idle: it keeps its tokens until its memory is needed, the one idle for longest first.
// Shared pages are never written: a sequence that leaves a shared beginning in the middle of a page computes that page again.
// Guarded by the engine's state lock.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/sha256.h"
#include "device/pages.h"

enum { KV_NONE = UINT32_MAX };

struct kv_page {
    // What is in it: prefix.h.
    struct sha256 key, parent_key; // of all tokens up to its end, and up to its beginning
    uint64_t id, parent;           // of these contents: never used twice; parent 0: the first page of a sequence
    uint64_t plain;                // of the tokens without the salt
    uint32_t tokens[PAGE_TOKENS];
    uint32_t next, child_next, child_before; // in the index
    bool known;                              // it is in the index
    bool saved;                              // and on disk
    bool has_picture;                        // it, or a page before it: the tokens mean something to this process alone
    // Who holds it.
    uint32_t n_refs;
    uint32_t newer, older; // among idle pages
};

struct kv {
    uint32_t n_slots, max_pages, n_pages; // max_pages: of one sequence
    uint32_t *table;                      // [n_slots][max_pages], the host's copy
    uint32_t *n_taken;                    // [n_slots] pages in use
    bool *slot_used;                      // [n_slots]
    struct kv_page *pages;                // [n_pages]
    uint32_t *free_pages, n_free;         // a stack
    uint32_t oldest, newest, n_idle;
    struct prefix *prefix;                         // NULL: nothing is shared
    void (*before_loss)(void *arg, uint32_t page); // a page of the index is about to be overwritten; NULL: nobody minds
    void *before_loss_arg;
};

// n_pages 0: enough for all slots at full length, so that a sequence that runs never waits for memory.
bool kv_create(struct kv *kv, uint32_t n_slots, uint32_t n_context, uint32_t n_pages, struct err *err);
void kv_release(struct kv *kv);
uint32_t kv_pages_of(uint32_t n_tokens);      // how many n tokens need
uint32_t kv_n_available(const struct kv *kv); // free or idle

uint32_t kv_slot_take(struct kv *kv); // KV_NONE when all are in use
void kv_slot_return(struct kv *kv, uint32_t slot);
// Pages for positions below n_tokens; those are the slot's own. False, and nothing is done, when there are not enough.
bool kv_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens);
void kv_shrink(struct kv *kv, uint32_t slot, uint32_t n_pages); // lets go of those beyond
void kv_share(struct kv *kv, uint32_t slot, uint32_t page);     // appends a page of the index
// A page to be filled and put into the index, held by the caller; KV_NONE when there is none.
uint32_t kv_page_take(struct kv *kv);
void kv_page_drop(struct kv *kv, uint32_t page);

static inline uint32_t kv_at(const struct kv *kv, uint32_t slot, uint32_t i)
{
    return kv->table[(uint64_t)slot * kv->max_pages + i];
}
