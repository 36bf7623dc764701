// fuzz_safetensors.c - any bytes as a safetensors file, or after a first byte of '#' as a config.json.
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "format/json_values.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(const struct model_file *file)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < file->n_tensors; i++)
        sum += file->tensors[i].data[0] + file->tensors[i].data[file->tensors[i].bytes - 1];
    for (size_t i = 0; i < file->n_metas; i++)
        for (uint64_t j = 0; file->metas[i].type == META_ARRAY && j < file->metas[i].n; j++)
            sum += meta_at(&file->metas[i], j).u;
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    struct err err = { 0 };
    log_level_set(LOG_ERROR);
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64);
    struct model_file *file = directory_create(MODEL_SAFETENSORS, "fuzz", &err);
    struct str bytes = { (const char *)copy, size };

    if (size)
        memcpy(copy, data, size);
    bool json = size && data[0] == '#';
    bool ok = json ? json_values_add(file, str_from_to(bytes, 1, size), "", "fuzz", &err)
                   : safetensors_read(file, bytes, (struct safetensors_visit){ 0 }, &err);
    if (ok && directory_index(file, &err))
        sink = walk(file), (void)sink;
    else
        CHECK(err.code != ERR_NONE && err.message[0]);
    directory_destroy(file);
    mem_free_aligned(copy);
    return 0;
}
