// fuzz_kv_file.c - any bytes as files of pages, states and window pages, one behind the other, as a prefill
// server sends them.
#include "base/mem.h"
#include "engine/kv/kv_store.h"

enum { PAGE_BYTES = 32, STATE_BYTES = 48, WINDOW_BYTES = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct kv_file_kinds kinds = { { "pages" }, { "states" }, { "windows" },
                                         PAGE_BYTES,  STATE_BYTES,  WINDOW_BYTES };
    static const uint64_t bytes_of[] = {
        [KV_FILE_PAGE] = PAGE_BYTES, [KV_FILE_STATE] = STATE_BYTES, [KV_FILE_WINDOW] = WINDOW_BYTES
    };
    const struct kv_store_page page = { .key = { "key" }, .parent_key = { "parent" }, .tokens = { 1, 2, 3 } };
    enum kv_file_kind kind = KV_FILE_PAGE;

    for (uint64_t at = 0, n = 0; kind != KV_FILE_PART && kind != KV_FILE_OTHER; at += n) {
        struct str rest = { (const char *)data + at, size - at };
        kind = kv_file_next(rest, &kinds, &n);
        if (kind == KV_FILE_PART || kind == KV_FILE_OTHER)
            break;
        CHECK(n <= rest.n && n == kv_file_bytes(bytes_of[kind]));
        rest.n = n;
        CHECK(!kv_file_check(rest, kind == KV_FILE_PAGE ? &kinds.states : &kinds.pages, &page, PAGE_BYTES));
        kv_file_check(rest,
                      kind == KV_FILE_PAGE    ? &kinds.pages
                      : kind == KV_FILE_STATE ? &kinds.states
                                              : &kinds.windows,
                      &page, bytes_of[kind]);
    }
    return 0;
}
