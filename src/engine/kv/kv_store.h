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
    struct sha256 media; // of the pictures' tiles in it, zero without
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

// ---- the bytes of a file, in memory

enum { KV_FILE_HEAD = 8 + 4 * sizeof(struct sha256) + 4 * PAGE_TOKENS + 8 }; // the page's numbers follow

uint64_t kv_file_bytes(uint64_t page_bytes); // of the whole file
// Puts head and sum around the numbers that lie at file + KV_FILE_HEAD.
void kv_file_seal(unsigned char *file, const struct sha256 *model, const struct kv_store_page *page,
                  uint64_t page_bytes);
// Whether these bytes are the file of that page of that model.
bool kv_file_check(struct str file, const struct sha256 *model, const struct kv_store_page *page,
                   uint64_t page_bytes);

// Files one behind the other, as they come over a wire: of pages, and of the states and window pages that
// belong to them.
struct kv_file_kinds {
    struct sha256 pages, states, windows;           // the digests of their models
    uint64_t page_bytes, state_bytes, window_bytes; // 0: the model has no states, or no window pages
};
enum kv_file_kind { KV_FILE_PART, KV_FILE_PAGE, KV_FILE_STATE, KV_FILE_WINDOW, KV_FILE_OTHER };
// What the bytes begin with: a part of a file, a file of *n bytes of one of these, or something else.
// Reads the head alone: kv_file_check is still to be asked.
enum kv_file_kind kv_file_next(struct str bytes, const struct kv_file_kinds *kinds, uint64_t *n);
