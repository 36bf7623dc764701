// kv_window.h - pages of the layers that see a window of the last tokens alone.
//
// Such layers have a pool of pages and a page table of their own: window pages. A window page belongs to a
// page of the same tokens (kv.h), is found through it and goes with it. A slot holds those that its next row
// sees. The ones behind are kept, for a prompt with the same beginning or a step back, until their memory is
// needed: first those inside a prompt that nobody is known to begin with, then the least recently held.
// So a sequence can go on behind n tokens where the window pages that row n sees are there, and nowhere else.
// Without such layers `window` is 0 and these calls do nothing. Guarded by the engine's state lock.
#pragma once
#include "engine/kv/kv.h"

struct kv_window {
    uint32_t page;         // KV_NONE: free, unless a slot holds it
    uint32_t n_pins;       // slots that hold it
    uint32_t newer, older; // among those that no slot holds; free ones are the oldest
    bool saved;            // on disk
};

struct kv_window_slot {
    uint32_t from, to; // the pages whose window pages the slot holds
    uint32_t keep[2];  // tokens behind which others may begin: see kv_window_expect
};

// For a model with such layers. window: tokens that a row sees, itself included; n: window pages.
bool kv_window_create(struct kv *kv, uint32_t window, uint32_t n, struct err *err);
void kv_window_release(struct kv *kv);

// How many slots hold, and how many are kept besides, for prompts to come.
struct kv_window_count {
    uint32_t n_held, n_idle;
};
struct kv_window_count kv_window_count(const struct kv *kv);

// ---- of a slot

// The first page that the row behind n tokens sees.
uint32_t kv_window_first(const struct kv *kv, uint32_t n);
// The window page of the slot's page i, or KV_NONE.
uint32_t kv_window_at(const struct kv *kv, uint32_t slot, uint32_t i);
// Gives window pages to the slot's pages of positions below n_tokens, from where it has them on. False, and
// no change: there are not enough.
bool kv_window_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens);
// No row of the slot before n will be played: what only those see is let go.
void kv_window_advance(struct kv *kv, uint32_t slot, uint32_t n);
void kv_window_cut(struct kv *kv, uint32_t slot, uint32_t n_pages); // lets go of those beyond n_pages
// The most tokens, at most n of those in the slot's pages, behind which it can go on; then, that it does.
uint32_t kv_window_below(const struct kv *kv, uint32_t slot, uint32_t n);
void kv_window_resume(struct kv *kv, uint32_t slot, uint32_t n);
// Others may begin with the slot's first `shared` tokens, or all of its prompt.
void kv_window_expect(struct kv *kv, uint32_t slot, uint32_t shared, uint32_t n_prompt);

// The same of a prompt, in a walk along its pages: whether it can go on behind this one, which ends at n.
// *lost: 0 at first.
bool kv_window_passes(const struct kv *kv, uint32_t page, uint32_t n, uint32_t *lost);

// ---- of a page

// The page's window page, or KV_NONE.
uint32_t kv_window_of(const struct kv *kv, uint32_t page);
// A window page for a page without one, which the caller fills. KV_NONE: there is none.
uint32_t kv_window_keep(struct kv *kv, uint32_t page);
void kv_window_touch(struct kv *kv, uint32_t page); // it is lost last
void kv_window_drop(struct kv *kv, uint32_t page);
void kv_window_move(struct kv *kv, uint32_t from, uint32_t to); // to another page of the same tokens
