// fuzz_kv_store.c - any bytes as a page's file: taken only when it is that page, whole.
#include "base/mem.h"
#include "engine/kv/kv_store.h"

enum { PAGE_BYTES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sha256 model = { "model" };
    const struct kv_store_page page = { .key = { "key" }, .parent_key = { "parent" }, .tokens = { 1, 2, 3 } };
    struct str file = { (const char *)data, size };
    bool taken = kv_file_check(file, &model, &page, PAGE_BYTES);

    CHECK(!taken || size == 8 + 3 * 32 + 4 * PAGE_TOKENS + 8 + PAGE_BYTES + 32);
    return 0;
}
