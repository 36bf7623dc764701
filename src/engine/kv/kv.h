// kv.h - the paged KV cache: pages of 16 tokens with reference counts, and the slots of sequences.
//
// A slot is a sequence's row in the page table and in the token history. A page has the same number in every
// layer of every stage. It is free; or held by the one slot that writes it; or full and in the prefix index
// (prefix.h), where any number of slots share it. A page of the index with no holder is idle: it keeps its
// tokens until its memory is needed, least recently used first.
// Shared pages are never written: a sequence that leaves a shared prefix in the middle of a page computes
// that page again. Guarded by the engine's state lock.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/sha256.h"
#include "device/pages.h"

enum { KV_NONE = UINT32_MAX };

struct kv_page {
    // The contents: prefix.h.
    struct sha256 key, parent_key; // of all tokens up to its end, and up to its beginning
    uint64_t id, parent; // of these contents: never used twice; parent 0: the first page of a sequence
    uint64_t plain;      // of the tokens without the salt
    uint32_t tokens[PAGE_TOKENS];
    uint32_t next, child_next, child_before; // chains of the index
    bool known;                              // the page is in the index
    bool saved;                              // and on disk
    struct sha256 media;                     // of the keys of the tiles that its tokens name; zero without
    uint32_t state;  // the row that keeps the state behind its last token, or 0: kv_state.h
    uint32_t window; // its window page's number plus 1, or 0: kv_window.h
    // The holders.
    uint32_t n_refs;
    uint32_t newer, older; // among idle pages
};

struct kv_state;
struct kv_window;
struct kv_window_slot;

struct kv {
    uint32_t n_slots, max_pages, n_pages; // max_pages: of one sequence
    uint32_t *table;                      // [n_slots][max_pages], the host's copy
    uint32_t *n_taken;                    // [n_slots] pages in use
    bool *slot_used;                      // [n_slots]
    struct kv_page *pages;                // [n_pages]
    uint32_t *free_pages, n_free;         // a stack
    uint32_t oldest, newest, n_idle;
    struct prefix *prefix;   // NULL: nothing is shared
    bool has_states;         // the model has recurrent layers
    struct kv_state *states; // [n_states] kept ones: kv_state.h
    uint32_t n_states, n_spare, n_spare_free;
    uint32_t *own_states, *spare_states; // [n_slots] rows; [n_spare], of which the first are free
    uint64_t state_clock;
    uint32_t window, n_windows;          // tokens that layers with a window see, or 0: kv_window.h
    struct kv_window *windows;           // [n_windows]
    struct kv_window_slot *window_slots; // [n_slots]
    uint32_t *window_table;              // [n_slots][max_pages], as table
    uint32_t oldest_window, newest_window;
    // called before a page of the index is overwritten, or NULL
    void (*before_loss)(void *arg, uint32_t page);
    void *before_loss_arg;
    // the key of the tile that a token of a picture's row names, or NULL: there are no pictures
    struct sha256 (*tile_key)(void *arg, uint32_t token);
    void *tile_key_arg;
};

// n_pages 0: enough for all slots at full length, so that a running sequence never waits for pages.
bool kv_create(struct kv *kv, uint32_t n_slots, uint32_t n_context, uint32_t n_pages, struct err *err);
void kv_release(struct kv *kv);
uint32_t kv_pages_of(uint32_t n_tokens);      // pages for n tokens
uint32_t kv_n_available(const struct kv *kv); // free or idle

uint32_t kv_slot_take(struct kv *kv); // KV_NONE when all are in use
void kv_slot_return(struct kv *kv, uint32_t slot);
// Adds pages of its own to a slot, for positions below n_tokens. False, and no change: there are not enough.
bool kv_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens);
void kv_shrink(struct kv *kv, uint32_t slot, uint32_t n_pages); // releases the pages beyond n_pages
void kv_share(struct kv *kv, uint32_t slot, uint32_t page);     // appends a page of the index
// Takes a page that the caller fills and puts into the index. KV_NONE: there is none.
uint32_t kv_page_take(struct kv *kv);
void kv_page_hold(struct kv *kv, uint32_t page); // one of the index: it stays until kv_page_drop
void kv_page_drop(struct kv *kv, uint32_t page);

static inline uint32_t kv_at(const struct kv *kv, uint32_t slot, uint32_t i)
{
    return kv->table[(uint64_t)slot * kv->max_pages + i];
}

const char *kv_format_name(enum kv_format format); // as -ctk takes it: "f16"
