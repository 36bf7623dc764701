// prefix.h - the prefix cache: an index of full KV pages by their contents.
//
// A page's key is the SHA-256 of its 16 tokens, the keys of the tiles that these name, and its parent's key;
// the parent key of a first page is the digest of the salt. So only a request with the same prefix and salt
// can find a page. A hit also compares the tokens and the parent page: key collisions cannot cause a false
// match. A page enters the index after a later row of its sequence gave valid logits, so that NaN never
// enters. Not here: disk (kv_store.h). Guarded by the engine's state lock.
#pragma once
#include "engine/kv/kv.h"
#include "ingot.h"

struct prefix;

struct prefix *prefix_create(uint32_t n_pages);
void prefix_destroy(struct prefix *x); // NULL is allowed
// For tests: truncates keys to n_bits, so that they collide.
void prefix_weaken(struct prefix *x, uint32_t n_bits);

struct sha256 prefix_root(struct prefix *x, const char *salt); // NULL is the empty salt

// A walk along the tokens of a prompt.
struct prefix_walk {
    struct sha256 key; // of the tokens so far
    uint64_t id;       // of the last page; 0: at the beginning
    uint64_t plain;    // without the salt, to report a miss that only the salt caused
    uint32_t n_tokens; // so far, whole pages
};
struct prefix_walk prefix_begin(const struct sha256 *root);
// Advances by one page of 16 tokens. Returns the page of the index; KV_NONE: it is not there, and the walk
// goes on without a page.
uint32_t prefix_next(struct kv *kv, struct prefix_walk *walk, const uint32_t *tokens);
// What a page holds, in the same words in every process.
struct prefix_content {
    uint32_t tokens[PAGE_TOKENS]; // STEP_TOKEN_POOLED + i for a row of the page's i-th tile
    struct sha256 media;          // of the tiles' keys; zero without
};
struct prefix_content prefix_content(const struct kv *kv, const uint32_t *tokens);
// The walk after the first n_pages pages of a slot. All of them came from prefix_next or were passed to
// prefix_put.
struct prefix_walk prefix_at(const struct kv *kv, const struct sha256 *root, uint32_t slot, uint32_t n_pages);

// Adds a full and valid page, held by one slot, as the child of the walk's page. If the index has an equal
// page, that one stays and this one remains the slot's own.
void prefix_put(struct kv *kv, const struct prefix_walk *walk, uint32_t page, const uint32_t *tokens);
void prefix_forget(struct kv *kv, uint32_t page); // before the page is overwritten

// Explains why the tokens [walk.n_tokens, n) of a prompt were not found after the walk.
struct ingot_miss prefix_explain(const struct kv *kv, const struct prefix_walk *walk, const uint32_t *tokens,
                                 uint32_t n);
