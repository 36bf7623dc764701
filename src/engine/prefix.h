// prefix.h - the index of full pages by what is in them, so that a prompt's beginning that is there need not be computed again.
//
// A page's key is the SHA-256 of its 16 tokens and the key of the page before; the first page's is the digest of the salt. A key can
// therefore only be found by who knows the whole beginning and the salt. On a hit the tokens are compared too, page by page, each
// page with the one it followed: a false match is not possible, whatever the keys are.
// A page enters the index when a later row of its sequence gave valid logits: NaN never gets in.
// Not here: disk (kv_store.h). Guarded by the engine's state lock.
#pragma once
#include "engine/kv.h"
#include "ingot.h"

struct prefix;

struct prefix *prefix_create(uint32_t n_pages);
void prefix_destroy(struct prefix *x); // NULL is allowed
// For tests: keys keep so many bits only, so that they collide.
void prefix_weaken(struct prefix *x, uint32_t n_bits);

struct sha256 prefix_root(struct prefix *x, const char *salt); // NULL is the empty salt

// A walk along the tokens of a prompt.
struct prefix_walk {
    struct sha256 key; // of the tokens so far
    uint64_t id;       // of the last page; 0: at the beginning
    uint64_t plain;    // of the tokens alone: only to say that the salt made the difference
    uint32_t n_tokens; // so far, whole pages
    bool has_picture;  // among them
};
struct prefix_walk prefix_begin(const struct sha256 *root);
// One page further along its 16 tokens. Returns the page of the index, or KV_NONE: then the walk has moved on, but knows no page any more.
uint32_t prefix_next(struct kv *kv, struct prefix_walk *walk, const uint32_t *tokens);
// The walk as it is behind page i of a slot, all of which were given to prefix_put or came from prefix_next.
struct prefix_walk prefix_at(const struct kv *kv, const struct sha256 *root, uint32_t slot, uint32_t n_pages);

// Puts a full and valid page that its slot alone holds behind the walk into the index. An equal one that is there already stays, and
// this one remains the slot's own.
void prefix_put(struct kv *kv, const struct prefix_walk *walk, uint32_t page, const uint32_t *tokens);
void prefix_forget(struct kv *kv, uint32_t page); // it is about to be overwritten

// Why a prompt's tokens [walk.n_tokens, n) were not found behind the walk.
struct ingot_miss prefix_explain(const struct kv *kv, const struct prefix_walk *walk, const uint32_t *tokens, uint32_t n);
