// kv_state.h - the rows of the layers' buffers of states (device/states.h): own, spare and kept ones.
//
// Each slot has a row of its own, and all of them share some spare rows: the state behind a drafted token
// goes to one, since a state cannot be cut short as pages can. When the token counts the row becomes the
// slot's own, and the one before is spare: nothing is copied, so ask kv_state_own and never take the slot's
// number.
//
// The rows behind these keep states behind earlier tokens, so that a sequence can begin there again. A
// kept state belongs to a page: it is the state behind the page's last token, is found through the page by
// whoever finds the page (a prompt with the same beginning, or the sequence itself after a step back), and
// goes with it. A slot may go on from a kept state any number of times: it is read, never written again.
// When all rows are taken the least recently used state is lost. Guarded by the engine's state lock.
#pragma once
#include "engine/kv/kv.h"

struct kv_state {
    uint32_t page;   // KV_NONE: free, unless a slot goes on from it
    uint32_t n_pins; // slots that go on from it
    uint64_t used;   // clock of the last use
    bool saved;      // on disk
};

// For a model with recurrent layers. n: rows to keep states in.
bool kv_state_create(struct kv *kv, uint32_t n, uint32_t n_spare, struct err *err);
void kv_state_release(struct kv *kv);
uint32_t kv_state_rows(const struct kv *kv); // of all kinds; 0: the model has no recurrent layers
uint32_t kv_state_own(const struct kv *kv, uint32_t slot);
// The kept state of a row; NULL: a slot's own, a spare one or none.
struct kv_state *kv_state_kept(struct kv *kv, uint32_t row);
// A spare row. KV_NONE: all are taken. Taken rows come back, or become a slot's own in place of the one that
// it has.
uint32_t kv_state_spare_take(struct kv *kv);
void kv_state_spare_return(struct kv *kv, uint32_t row);
// Where nobody takes any and there is one for each slot: the slot's.
uint32_t kv_state_spare_of(const struct kv *kv, uint32_t slot);
void kv_state_own_change(struct kv *kv, uint32_t slot, uint32_t row);

// A row for the state behind the page's last token. 0: none is free; this is no row to keep anything in.
uint32_t kv_state_keep(struct kv *kv, uint32_t page);
void kv_state_drop(struct kv *kv, uint32_t page);              // the page's state, if it has one
void kv_state_move(struct kv *kv, uint32_t from, uint32_t to); // to another page of the same tokens
// Between these calls the state at this row is not lost. Rows of slots are allowed, and STATE_ZERO.
void kv_state_pin(struct kv *kv, uint32_t row);
void kv_state_unpin(struct kv *kv, uint32_t row);
// A new step begins: what was kept before may be lost again.
void kv_state_tick(struct kv *kv);
