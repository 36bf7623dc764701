// kv.h - pages of 16 tokens and the slots of sequences.
//
// A slot is a sequence's row in the page table and in the token log. Pages are taken from one free list as a sequence grows, and are
// the same numbers in every layer of every stage. Enough pages for all slots at full length exist from the start, so a sequence that
// was admitted never waits for memory. Guarded by the engine's state lock.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct kv {
    uint32_t n_slots, max_pages, n_pages; // max_pages: of one sequence
    uint32_t *table;                      // [n_slots][max_pages], the host's copy
    uint32_t *n_taken;                    // [n_slots] pages in use
    bool *slot_used;                      // [n_slots]
    uint32_t *free_pages, n_free;         // a stack
};

bool kv_create(struct kv *kv, uint32_t n_slots, uint32_t n_context, struct err *err);
void kv_release(struct kv *kv);
// UINT32_MAX when all are in use.
uint32_t kv_slot_take(struct kv *kv);
void kv_slot_return(struct kv *kv, uint32_t slot); // its pages too
// Pages for positions below n_tokens. *changed_from is the first new entry of the slot's table (or its length).
void kv_grow(struct kv *kv, uint32_t slot, uint32_t n_tokens, uint32_t *changed_from);
