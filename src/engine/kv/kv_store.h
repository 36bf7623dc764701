// kv_store.h - KV pages on disk: one file per page, named by the model and the page's key, so that cached
// prefixes outlive the process.
//
// A file is written under another name, then renamed, and ends in a SHA-256 of its contents: a partial file,
// or one of another model, other settings or another version, counts as absent. Files never change, so
// several processes may share one directory. Beyond the limit, the least recently used files are deleted.
// The directory's owner is trusted. A key is a digest of tokens and salt, so file names reveal no text; the
// files do.
#pragma once
#include "base/sha256.h"
#include "base/str.h"
#include "device/pages.h"

struct kv_store;

struct kv_store_options {
    const char *directory; // created when missing
    struct sha256 model;   // digest of all that determines the numbers in a page
    uint64_t page_bytes;   // of one page, all layers
    uint64_t limit_bytes;  // of all files in the directory
};

struct kv_store_page {
    struct sha256 key, parent_key;
    uint32_t tokens[PAGE_TOKENS];
};

bool kv_store_open(struct kv_store **store, const struct kv_store_options *options, struct err *err);
void kv_store_close(struct kv_store *store); // NULL is allowed

// The buffer for one page's numbers, page_bytes long: kv_store_save writes it, kv_store_load fills it.
unsigned char *kv_store_room(struct kv_store *store);
// False: it could not be written; the first failure is logged.
bool kv_store_save(struct kv_store *store, const struct kv_store_page *page);
bool kv_store_has(const struct kv_store *store, const struct kv_store_page *page); // a file of that name
// False: there is no such page, or its file is damaged and was removed.
bool kv_store_load(struct kv_store *store, const struct kv_store_page *page);

// Whether these bytes are the file of that page of that model. Public for fuzzing.
bool kv_store_check(struct str file, const struct sha256 *model, const struct kv_store_page *page,
                    uint64_t page_bytes);
