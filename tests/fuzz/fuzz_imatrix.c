// fuzz_imatrix.c - any bytes as an importance matrix, GGUF or the older form: refused with a message, or all
// of it can be used.
#include "base/mem.h"
#include "model_tools/imatrix_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct imatrix_entry *e)
{
    float *means = mem_alloc_array(e->n_sums, sizeof *means);

    CHECK(!means || imatrix_means(e, (uint64_t[]){ e->n_counts, e->n_sums / e->n_counts }, means));
    for (uint64_t i = 0; means && i < e->n_sums; i++)
        CHECK(means[i] >= 0);
    mem_free(means);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64); // aligned, and exactly as long
    struct imatrix m;
    struct err err = { 0 };

    if (size)
        memcpy(copy, data, size);
    if (imatrix_file_parse(&m, (struct str){ (const char *)copy, size }, "fuzz", &err)) {
        for (size_t i = 0; i < m.n; i++)
            use(&m.entries[i]);
        imatrix_free(&m);
    } else {
        CHECK(err.code != ERR_NONE && err.message[0]);
    }
    mem_free_aligned(copy);
    return 0;
}
