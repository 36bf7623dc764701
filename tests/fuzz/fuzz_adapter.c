// fuzz_adapter.c - any bytes as a LoRA adapter of a small model: as a GGUF file, or after a first byte of '#'
// as PEFT's adapter_config.json, a NUL and adapter_model.safetensors. It is bound and every matrix read, or
// refused with a message.
#include <math.h>
#include <string.h>
#include "../gguf_builder.h"
#include "base/log.h"
#include "format/json_values.h"
#include "format/safetensors.h"
#include "models/binding/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COLS = 72, KV = 12, FFN = 84, VOCAB = 257, LAYERS = 2 };

static void add_matrix(struct gguf_builder *g, const char *name, uint32_t layer, uint32_t rows, uint32_t cols)
{
    char text[64];

    if (layer < LAYERS)
        snprintf(text, sizeof text, "blk.%u.%s.weight", layer, name);
    else
        snprintf(text, sizeof text, "%s.weight", name);
    gguf_tensor(g, text, 0, rows > 1 ? 2 : 1, (uint64_t[]){ cols, rows }, NULL, (size_t)rows * cols * 4);
}

static void add_layer(struct gguf_builder *g, uint32_t l)
{
    add_matrix(g, "attn_norm", l, 1, COLS);
    add_matrix(g, "attn_q", l, COLS, COLS);
    add_matrix(g, "attn_k", l, KV, COLS);
    add_matrix(g, "attn_v", l, KV, COLS);
    add_matrix(g, "attn_output", l, COLS, COLS);
    add_matrix(g, "ffn_norm", l, 1, COLS);
    add_matrix(g, "ffn_gate", l, FFN, COLS);
    add_matrix(g, "ffn_up", l, FFN, COLS);
    add_matrix(g, "ffn_down", l, COLS, FFN);
}

// The sizes of tests/golden/tinyllama, whose adapters are in the corpus.
static const struct model *small_model(void)
{
    static struct model m;
    static struct gguf_builder g = { .version = 3 };
    struct model_file *file;
    struct err err = { 0 };

    if (m.arch)
        return &m;
    log_level_set(LOG_ERROR);
    gguf_meta_str(&g, "general.architecture", "llama");
    gguf_meta_u32(&g, "llama.block_count", LAYERS);
    gguf_meta_u32(&g, "llama.embedding_length", COLS);
    gguf_meta_u32(&g, "llama.feed_forward_length", FFN);
    gguf_meta_u32(&g, "llama.attention.head_count", 6);
    gguf_meta_u32(&g, "llama.attention.head_count_kv", 1);
    gguf_meta_f32(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_matrix(&g, "token_embd", LAYERS, VOCAB, COLS);
    add_matrix(&g, "output_norm", LAYERS, 1, COLS);
    add_matrix(&g, "output", LAYERS, VOCAB, COLS);
    for (uint32_t l = 0; l < LAYERS; l++)
        add_layer(&g, l);
    gguf_image(&g);
    CHECK(model_file_open_memory(&file, g.image, g.n, "model", &err) && model_bind(&m, file, &err));
    return &m;
}

static void read_part(const struct adapter *a, const struct adapter_part *p)
{
    size_t n_down = (size_t)p->rank * adapter_cols(a, p), n_up = (size_t)p->rank * adapter_rows(a, p);
    float *down = mem_alloc_array(n_down, sizeof *down), *up = mem_alloc_array(n_up, sizeof *up);
    struct err err = { 0 };

    CHECK(adapter_read(a, p, down, up, &err));
    for (size_t i = 0; i < n_down; i++)
        CHECK(isfinite(down[i]));
    for (size_t i = 0; i < n_up; i++)
        CHECK(isfinite(up[i]));
    mem_free(down);
    mem_free(up);
}

static bool open_peft(struct model_file **file, struct str bytes, struct err *err)
{
    size_t nul = str_find(bytes, (struct str){ "", 1 });

    *file = directory_create(MODEL_SAFETENSORS, "fuzz", err);
    return nul != SIZE_MAX && json_values_add(*file, str_from_to(bytes, 1, nul), "", "fuzz", err) &&
           safetensors_read(*file, str_from_to(bytes, nul + 1, bytes.n), (struct safetensors_visit){ 0 },
                            err) &&
           directory_index(*file, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model *m = small_model();
    struct model_file *file = NULL;
    struct adapter a = { 0 };
    struct err err = { 0 };
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64); // aligned, and exactly as long

    if (size)
        memcpy(copy, data, size);
    struct str bytes = { (const char *)copy, size };
    bool ok = size && copy[0] == '#' ? open_peft(&file, bytes, &err)
                                     : model_file_open_memory(&file, copy, size, "fuzz", &err);
    if (ok) {
        ok = adapter_bind(&a, m, file, &err);
        CHECK(ok || (err.code != ERR_NONE && err.message[0] && !strchr(err.message, '\n')));
        for (uint32_t i = 0; ok && i < a.n_parts; i++)
            read_part(&a, &a.parts[i]);
        adapter_close(&a);
    } else {
        model_file_close(file);
    }
    mem_free_aligned(copy);
    return 0;
}
