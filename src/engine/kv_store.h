// kv_store.h - pages on disk: one file per page, named by the model and the page's key, so that a prompt's beginning outlives the process.
//
// A file is written beside its place and renamed, and ends in a SHA-256 of all that is in it: half a file, or one of another model,
// other settings or another version, is not there as far as anybody can tell. Files are never changed, so several processes may use
// one directory. Beyond the limit those go first that were not read or written for longest.
// What is trusted: the directory's owner. A key is a digest of tokens and salt, so names tell no text; the files do.
#pragma once
#include "base/sha256.h"
#include "base/str.h"
#include "device/pages.h"

struct kv_store;

struct kv_store_options {
    const char *directory; // is made if it is not there
    struct sha256 model;   // everything that the numbers in a page depend on
    uint64_t page_bytes;   // of one page, all layers
    uint64_t limit_bytes;  // of all files in the directory
};

struct kv_store_page {
    struct sha256 key, parent_key;
    uint32_t tokens[PAGE_TOKENS];
};

bool kv_store_open(struct kv_store **store, const struct kv_store_options *options, struct err *err);
void kv_store_close(struct kv_store *store); // NULL is allowed

// The room for one page's numbers, page_bytes long: kv_store_save writes it, kv_store_load fills it.
unsigned char *kv_store_room(struct kv_store *store);
// False when it could not be written; the first time a line of the log says why.
bool kv_store_save(struct kv_store *store, const struct kv_store_page *page);
bool kv_store_has(const struct kv_store *store, const struct kv_store_page *page); // a file of that name
// False when there is no such page, or its file is damaged, which is removed then.
bool kv_store_load(struct kv_store *store, const struct kv_store_page *page);

// Whether these bytes are that page of that model. What a file is checked with; for fuzzing too.
bool kv_store_check(struct str file, const struct sha256 *model, const struct kv_store_page *page, uint64_t page_bytes);
