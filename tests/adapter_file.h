// adapter_file.h - LoRA adapters for tests: a GGUF image with random matrices, right or wrong.
#pragma once
#include <stdio.h>
#include "gguf_builder.h"
#include "testing.h"

struct adapter_matrix { // of a model: [rows, cols]
    const char *name;
    uint32_t rows, cols;
};

// salt: other ones, other numbers. Free with mem_free().
static inline float *adapter_numbers(size_t n, uint32_t salt)
{
    float *numbers = mem_alloc_array(n + 1, sizeof *numbers);
    uint32_t x = salt * 2654435761u + 12345;

    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        numbers[i] = ((float)(x >> 8) * 0x1p-24f - 0.5f) * 0.6f;
    }
    return numbers;
}

// A tensor [rows, cols] of fp32.
static inline void adapter_tensor(struct gguf_builder *g, const char *name, uint32_t rows, uint32_t cols,
                                  uint32_t salt)
{
    size_t n = (size_t)rows * cols;
    float *numbers = adapter_numbers(n, salt);

    gguf_tensor(g, name, 0, 2, (uint64_t[]){ cols, rows }, numbers, n * sizeof *numbers);
    mem_free(numbers);
}

// Both halves for one matrix.
static inline void adapter_pair(struct gguf_builder *g, const struct adapter_matrix *m, uint32_t rank,
                                uint32_t salt)
{
    char name[128];

    snprintf(name, sizeof name, "%s.lora_a", m->name);
    adapter_tensor(g, name, rank, m->cols, salt);
    snprintf(name, sizeof name, "%s.lora_b", m->name);
    adapter_tensor(g, name, m->rows, rank, salt + 1);
}

static inline void adapter_head(struct gguf_builder *g, const char *arch)
{
    gguf_meta_str(g, "general.type", "adapter");
    gguf_meta_str(g, "general.architecture", arch);
    gguf_meta_str(g, "adapter.type", "lora");
    gguf_meta_f32(g, "adapter.lora.alpha", 6);
}

static inline void adapter_write(struct gguf_builder *g, const char *path)
{
    gguf_image(g);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(g->image, 1, g->n, f), g->n);
    assert_int_equal(fclose(f), 0);
    gguf_builder_free(g);
}

// For the model that ships inside, every matrix of every layer.
static inline void adapter_write_builtin(const char *path, uint32_t salt)
{
    static const struct adapter_matrix parts[] = {
        { "attn_q", 256, 256 },      { "attn_k", 128, 256 },   { "attn_v", 128, 256 },
        { "attn_output", 256, 256 }, { "ffn_gate", 768, 256 }, { "ffn_up", 768, 256 },
        { "ffn_down", 256, 768 },
    };
    struct gguf_builder g = { .version = 3 };

    adapter_head(&g, "llama");
    for (uint32_t l = 0; l < 8; l++)
        for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, parts[i].name);
            adapter_pair(&g, &(struct adapter_matrix){ name, parts[i].rows, parts[i].cols }, 4,
                         salt + 100 * l + 10 * i);
        }
    adapter_write(&g, path);
}
