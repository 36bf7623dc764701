// fuzz_tokenizer_gguf.c - any bytes as a GGUF image whose tokeniser is loaded and used, or refused with a
// message.
#include <string.h>
#include "base/mem.h"
#include "format/model_file.h"
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64);
    struct model_file *file;
    struct tokenizer *t;
    struct err err = { 0 };

    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    if (model_file_open_memory(&file, copy, size, "fuzz", NULL)) {
        if (tokenizer_load(&t, file, &err))
            use_tokenizer(t);
        else
            CHECK(err.code != ERR_NONE && err.message[0] && !t);
        model_file_close(file);
    }
    mem_free_aligned(copy);
    return 0;
}
