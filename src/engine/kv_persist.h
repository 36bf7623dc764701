// kv_persist.h - moves pages between the engine's memory and the store on disk: saves them when their memory
// is needed and when the engine closes, and loads them when a prompt continues beyond the pages in memory.
#pragma once
#include "engine/engine.h"
#include "engine/kv/prefix.h"

// Opens the store of the options' cache_dir, if there is one. The stages exist.
bool kv_persist_open(struct engine *e, struct err *err);
// The digest of everything that determines the numbers in a page: weights, version, device, arithmetic,
// formats.
bool kv_persist_model(const struct engine *e, struct sha256 *sum, struct err *err); // of its weights alone
bool kv_persist_identity(const struct engine *e, struct sha256 *identity, struct err *err);
// That of the states that belong to pages of this digest.
bool kv_persist_state_identity(const struct sha256 *pages, struct sha256 *states, struct err *err);
uint32_t kv_persist_cpu_features(const struct engine *e); // that count in the digest
// The digest of a file's weights and numbers.
struct model_file;
bool kv_persist_identity_of_file(const struct model_file *file, struct sha256 *identity, struct err *err);
uint64_t kv_persist_page_bytes(const struct engine *e); // of one page, all layers
// That of the window pages that belong to them; the bytes of one, 0: the model has none.
bool kv_persist_window_identity(const struct sha256 *pages, struct sha256 *windows, struct err *err);
uint64_t kv_persist_window_bytes(const struct engine *e);
uint64_t kv_persist_state_bytes(const struct engine *e); // of one state; 0: the model has none
// Copies the numbers of a page, a state's row or a window page from the stages to at[their bytes], or back.
// No step writes them meanwhile. False: the device failed, which the log says.
bool kv_persist_page_move(struct engine *e, uint32_t page, unsigned char *at, bool to_device);
bool kv_persist_state_move(struct engine *e, uint32_t row, unsigned char *at, bool to_device);
bool kv_persist_window_move(struct engine *e, uint32_t window, unsigned char *at, bool to_device);
// Writes the pages of the index that are not on disk. Returns the number of failures. No step is being
// played.
uint32_t kv_persist_all(struct engine *e);
// Loads the page that follows the walk into an idle page of the index. KV_NONE: not on disk, or no page is
// free.
uint32_t kv_persist_find(struct engine *e, const struct prefix_walk *walk, const uint32_t *tokens);
// Loads the window pages that the row behind the slot's first n tokens sees, if all that are missing are on
// disk. n: whole pages.
void kv_persist_find_windows(struct engine *e, uint32_t slot, uint32_t n);
