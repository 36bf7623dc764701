// lora_families.h - a LoRA adapter on every matrix of a golden model, and the same model with the products
// added to its weights, whose logits must be those.
//
// golden_lora.h has references that are not ours, for few architectures. Here it is ours on merged weights: a
// matrix that an architecture forgets to adapt, or adapts twice, shows.
#pragma once
#include <unistd.h>
#include "adapter_file.h"
#include "base/file.h"
#include "models/golden_lora.h"

enum { LORA_RANK = 2 };
#define LORA_ALPHA 6.0f // of adapter_head()

// Whose GGUF files and checkpoints do not share adapters.
static const char lora_own_format[] = "granitehybrid granitehybrid-moe nemotronh nemotronh-moe";

static char lora_merged[32], lora_adapter[32]; // paths, of lora_families_begin()

// Layers' own matrices. Not routers, experts and what they share, convolutions, embeddings.
static inline bool takes_an_adapter(const struct file_tensor *t)
{
    static const char *const names[] = {
        ".attn_q.",   ".attn_k.",        ".attn_v.",   ".attn_output.",       ".attn_q_a.",
        ".attn_q_b.", ".attn_kv_a_mqa.", ".attn_qkv.", ".attn_gate.",         ".ffn_gate.",
        ".ffn_up.",   ".ffn_down.",      ".ssm_in.",   ".ssm_out.",           ".ssm_alpha.",
        ".ssm_beta.", ".inp_gate.",      ".proj.",     ".shortconv.in_proj.", ".shortconv.out_proj."
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (t->n_dims == 2 && str_find(t->name, str_from(names[i])) != SIZE_MAX)
            return true;
    return false;
}

// W [rows, cols] += LORA_ALPHA / LORA_RANK * B A
static inline void lora_add(float *w, const struct adapter_matrix *m, const float *a, const float *b)
{
    for (size_t r = 0; r < m->rows; r++)
        for (size_t c = 0; c < m->cols; c++)
            for (size_t k = 0; k < LORA_RANK; k++)
                w[r * m->cols + c] += LORA_ALPHA / LORA_RANK * b[r * LORA_RANK + k] * a[k * m->cols + c];
}

// The numbers are those of the adapter's file.
static inline void lora_merge(float *w, const struct file_tensor *t, const struct model_file *adapter)
{
    char name[128];
    const struct file_tensor *ab[2];

    for (int half = 0; half < 2; half++) {
        snprintf(name, sizeof name, "%.*s.lora_%c", STR_ARG(t->name), "ab"[half]);
        ab[half] = model_file_tensor(adapter, name);
        assert_non_null(ab[half]);
    }
    lora_add(w, &(struct adapter_matrix){ .rows = (uint32_t)t->dims[0], .cols = (uint32_t)t->dims[1] },
             (const float *)ab[0]->data, (const float *)ab[1]->data);
}

static inline void write_adapter(const struct model_file *model)
{
    struct gguf_builder g = { .version = 3 };
    struct err err = { 0 };
    struct str arch;
    char name[64];
    uint32_t n = 0;

    assert_ok(model_file_string(model, "general.architecture", &arch, &err), &err);
    snprintf(name, sizeof name, "%.*s", STR_ARG(arch));
    adapter_head(&g, name);
    for (size_t i = 0; i < model_file_n_tensors(model); i++) {
        const struct file_tensor *t = model_file_tensor_at(model, i);
        char matrix[96];
        if (!takes_an_adapter(t))
            continue;
        snprintf(matrix, sizeof matrix, "%.*s", STR_ARG(t->name));
        adapter_pair(&g, &(struct adapter_matrix){ matrix, (uint32_t)t->dims[0], (uint32_t)t->dims[1] },
                     LORA_RANK, ++n * 2);
    }
    assert_true(n > 0);
    adapter_write(&g, lora_adapter);
}

static inline void write_merged(const char *path, const struct model_file *model)
{
    struct buf bytes = { 0 };
    struct model_file *file, *adapter;
    struct err err = { 0 };

    assert_ok(file_read(&bytes, path, 1 << 24, &err), &err);
    assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "merged", &err), &err);
    assert_ok(model_file_open_adapter(&adapter, lora_adapter, &err), &err);
    for (size_t i = 0; i < model_file_n_tensors(model); i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        if (takes_an_adapter(t))
            lora_merge((float *)(bytes.at + ((const char *)t->data - bytes.at)), t, adapter);
    }
    FILE *f = fopen(lora_merged, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.at, 1, bytes.n, f), bytes.n);
    assert_int_equal(fclose(f), 0);
    model_file_close(adapter);
    model_file_close(file);
    buf_free(&bytes);
}

// The adapter on this device, exact, in chunks; what is merged on the CPU. file: "/model.gguf", or "" for the
// checkpoint.
static inline void check_family_in(const char *file, const char *variant, const char *device)
{
    struct ingot_adapter adapter = { lora_adapter, "it", 1 };
    struct ingot_adapter_use use = { "it", 1 };
    struct ingot_engine_options o = ingot_engine_defaults();
    struct model_file *model;
    struct golden g;
    struct err err = { 0 };
    char path[512];

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", variant);
    assert_ok(model_file_open(&model, path, &err), &err);
    write_adapter(model);
    write_merged(path, model);
    model_file_close(model);
    golden_open(&g, variant);
    o.device = "cpu";
    o.exact = true;
    o.model = lora_merged;
    float *wanted = run_logits(&o, &g);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", variant, file);
    o.device = device;
    o.model = path;
    o.adapters = &adapter;
    o.n_adapters = 1;
    o.n_batch = 7;
    struct ingot_engine *engine = open_or_fail(&o);
    float *ours = run_adapted(engine, &g, &use, 1);
    struct closeness plain = compare_logits(&g, ours);
    struct golden reference = { .logits = wanted, .n = g.n, .n_vocab = g.n_vocab };
    struct closeness c = compare_logits(&reference, ours);
    print_message("%-18s squared error %.1e; beside no adapter %.1e\n", variant, c.worst_error,
                  plain.worst_error);
    if (!(c.worst_error <= 1e-9) || !(plain.worst_error > 1e-4))
        fail_msg("%s: squared error %g, want at most 1e-9; without an adapter %g", variant, c.worst_error,
                 plain.worst_error);
    free(wanted);
    free(ours);
    ingot_engine_close(engine);
    model_file_close(g.file);
}

static inline void check_family(const char *variant, const char *device)
{
    check_family_in("/model.gguf", variant, device);
}

// Before and behind all checks.
static inline int lora_families_begin(void **state)
{
    (void)state;
    snprintf(lora_merged, sizeof lora_merged, "/tmp/ingot-merged-XXXXXX");
    snprintf(lora_adapter, sizeof lora_adapter, "/tmp/ingot-adapter-XXXXXX");
    close(mkstemp(lora_merged));
    close(mkstemp(lora_adapter));
    return 0;
}
static inline int lora_families_end(void **state)
{
    (void)state;
    unlink(lora_merged);
    unlink(lora_adapter);
    return 0;
}
