// fuzz_gguf.c - any bytes as a GGUF image: opened and walked, or refused with a message.
#include <string.h>
#include "base/mem.h"
#include "format/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(const struct model_file *file)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < model_file_n_metas(file); i++) {
        const struct meta *m = model_file_meta_at(file, i);
        for (uint64_t j = 0; m->type == META_ARRAY && j < m->n && j < 1000; j++) {
            struct meta e = meta_at(m, j);
            sum += e.type == META_STRING && e.s.n ? (unsigned char)e.s.at[e.s.n - 1] : e.u;
        }
    }
    for (size_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        sum += t->data[0] + t->data[t->bytes - 1];
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    struct model_file *file;
    struct err err = { 0 };
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64); // aligned, and exactly as long

    if (size)
        memcpy(copy, data, size);
    if (model_file_open_memory(&file, copy, size, "fuzz", &err))
        sink = walk(file), (void)sink;
    else
        CHECK(err.code != ERR_NONE && err.message[0]);
    model_file_close(file);
    mem_free_aligned(copy);
    return 0;
}
