// fuzz_tokenizer_gguf.c - any bytes as a GGUF image whose tokeniser is loaded and used, or refused with a message.
#include <string.h>
#include "base/mem.h"
#include "format/model_file.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct model_file *file)
{
    static const char TEXT[] = "It's 1234 ab  abab\n\n <s>A</s> \xe4\xb8\x96\xff<0x41>\xe2\x96\x81 a.";
    struct tokenizer *t;
    struct err err = { 0 };
    struct token_ids ids = { 0 };
    struct buf out = { .max = 1 << 24 };

    if (!tokenizer_load(&t, file, &err)) {
        CHECK(err.code != ERR_NONE && err.message[0] && !t);
        return;
    }
    for (int i = 0; i < 4; i++) {
        struct tokenize_flags flags = { .add_special = i & 1, .parse_special = i & 2 };
        CHECK(tokenizer_encode(t, (struct str){ TEXT, sizeof TEXT - 1 }, flags, &ids, &err) || err.message[0]);
    }
    for (size_t i = 0; i < ids.n; i++)
        CHECK(ids.ids[i] < tokenizer_n_tokens(t));
    CHECK(tokenizer_decode(t, &ids, true, &out) || out.failed);
    token_ids_free(&ids);
    tokenizer_free(t);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64);
    struct model_file *file;

    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    if (model_file_open_memory(&file, copy, size, "fuzz", NULL)) {
        use(file);
        model_file_close(file);
    }
    mem_free_aligned(copy);
    return 0;
}
