// golden_embed.h - embedding models and rerankers against vectors of a second implementation: what the tests
// of devices share; see tools/golden/make_embedder_golden.py.
//
// Vectors: 1 - cosine at most 1e-5, exact 1e-9. Scores: a difference of at most 1e-3, exact 1e-5.
#pragma once
#include <math.h>
#include "open_engine.h"
#include "format/model_file.h"

enum { MOST_NUMBERS = 256 };

struct vectors {
    struct model_file *file;
    const uint32_t *tokens, *lengths;
    const float *at; // [n, n_numbers]
    uint32_t n, n_numbers;
};

static inline void vectors_open(struct vectors *v, const char *folder)
{
    char path[512];
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/golden.safetensors", folder);
    assert_ok(model_file_open(&v->file, path, &err), &err);
    const struct file_tensor *at = model_file_tensor(v->file, "vectors");
    assert_non_null(at);
    v->tokens = (const uint32_t *)(const void *)model_file_tensor(v->file, "tokens")->data;
    v->lengths = (const uint32_t *)(const void *)model_file_tensor(v->file, "lengths")->data;
    v->at = (const float *)(const void *)at->data;
    v->n = (uint32_t)at->dims[0];
    v->n_numbers = (uint32_t)at->dims[1];
    assert_true(v->n > 3 && v->n_numbers <= MOST_NUMBERS);
}

struct taken {
    float numbers[MOST_NUMBERS];
    size_t n;
};

static inline bool take(void *arg, const struct ingot_event *event)
{
    struct taken *t = arg;

    if (event->done && event->embedding) {
        t->n = event->n_numbers;
        assert_true(t->n <= MOST_NUMBERS);
        memcpy(t->numbers, event->embedding, t->n * sizeof *t->numbers);
    }
    return true;
}

static inline struct taken embed(struct ingot_engine *engine, const struct ingot_request_options *r)
{
    struct taken t = { .n = 0 };
    struct ingot_error error = { 0 };

    if (!ingot_generate(engine, r, take, &t, NULL, &error))
        fail_msg("%s", error.message);
    return t;
}

static inline double distance(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;

    if (n == 1)
        return fabs((double)a[0] - b[0]);
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return 1 - ab / sqrt(aa * bb);
}

struct embed_way {
    const char *file, *device;
    bool exact;
};

static inline void check_embed(const char *folder, const struct embed_way *way, enum ingot_embed kind)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_engine_info info;
    struct vectors v;
    char path[512];
    double worst = 0, most;
    const uint32_t *tokens;

    vectors_open(&v, folder);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", folder, way->file);
    o.model = path;
    o.device = way->device;
    o.exact = way->exact;
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &info);
    assert_true(v.n_numbers == 1 ? info.ranks : info.n_vector == v.n_numbers);
    tokens = v.tokens;
    r.embed = kind;
    for (uint32_t i = 0; i < v.n; tokens += v.lengths[i++]) {
        r.tokens = tokens;
        r.n_tokens = v.lengths[i];
        struct taken t = embed(engine, &r);
        assert_int_equal(t.n, v.n_numbers);
        worst = fmax(worst, distance(t.numbers, v.at + (size_t)i * v.n_numbers, v.n_numbers));
    }
    most = v.n_numbers == 1 ? (way->exact ? 1e-5 : 1e-3) : way->exact ? 1e-9 : 1e-5;
    print_message("%-13s %-12s %-9s %s %.1e\n", folder, *way->file ? way->file : "safetensors", way->device,
                  way->exact ? "exact" : "", worst);
    if (!(worst <= most))
        fail_msg("%s%s on %s: %g, want at most %g", folder, way->file, way->device, worst, most);
    ingot_engine_close(engine);
    model_file_close(v.file);
}
