// random_tower.c - see random_tower.h.
#include "model_tools/random/random_tower.h"
#include "base/mem.h"
#include "model_tools/quantize/quantize_encode.h"
#include "model_tools/quantize/quantize_eyes.h"
#include "model_tools/random/random_model.h"

// The towers of those that take pictures.
static const struct {
    const char *name;
    struct random_tower_shape shape;
} towers[] = {
    { "smolvlm-256m", { 12, 768, 12, 3072, 16, 512, 2048, 4 } },
    { "smolvlm-500m", { 12, 768, 12, 3072, 16, 512, 2048, 4 } },
    { "smolvlm-2.2b", { 27, 1152, 16, 4304, 14, 384, 1536, 3 } },
    { "internvl3-1b", { 24, 1024, 16, 4096, 14, 448, 0, 2 } },
    { "internvl3-2b", { 24, 1024, 16, 4096, 14, 448, 0, 2 } },
    { "internvl3-8b", { 24, 1024, 16, 4096, 14, 448, 0, 2 } },
    { "internvl3-14b", { 24, 1024, 16, 4096, 14, 448, 0, 2 } },
    { "toy-vlm", { 2, 128, 2, 256, 16, 64, 256, 2 } },
    { "toy-internvl", { 2, 128, 2, 256, 14, 56, 0, 2 } },
};

const struct random_tower_shape *random_tower_find(const char *name)
{
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (strcmp(towers[i].name, name) == 0)
            return &towers[i].shape;
    return NULL;
}

enum { POOL_NUMBERS = 1 << 20 }; // drawn once and repeated

struct random_tower {
    const struct random_tower_shape *shape;
    struct gguf_writer w;
    uint32_t n_out;
    enum quant matrices; // the format of matrices whose rows are whole blocks
    // [POOL_NUMBERS] in the formats that tensors have
    void *pool[N_WEIGHT_QUANTS];
    bool writes; // else tensors are described
    bool hollow;
};

static void put(struct random_tower *t, const char *name, enum quant format, const uint64_t *dims,
                uint32_t n_dims)
{
    const struct quant_info *info = quant_info(format);
    uint64_t n = 1;

    if (!t->writes) {
        gguf_write_tensor(&t->w, str_from(name), format, dims, n_dims);
        return;
    }
    for (uint32_t i = 0; i < n_dims; i++)
        n *= dims[i];
    if (t->hollow) {
        gguf_write_data(&t->w, NULL, n / info->block_elements * info->block_bytes);
        return;
    }
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < POOL_NUMBERS ? n - at : POOL_NUMBERS;
        gguf_write_data(&t->w, t->pool[format], some / info->block_elements * info->block_bytes);
    }
}

static void put_vector(struct random_tower *t, const char *name, uint64_t n)
{
    put(t, name, QUANT_F32, &n, 1);
}

static void put_matrix(struct random_tower *t, const char *name, uint64_t n_rows, uint64_t n_cols)
{
    bool whole = n_cols % quant_info(t->matrices)->block_elements == 0;

    put(t, name, whole ? t->matrices : QUANT_BF16, (const uint64_t[]){ n_rows, n_cols }, 2);
}

static bool is_internvl(const struct random_tower *t)
{
    return t->shape->longest_edge == 0;
}

static void put_product(struct random_tower *t, const char *part, uint64_t n_rows, uint64_t n_cols)
{
    char name[64];

    snprintf(name, sizeof name, "%s.weight", part);
    put_matrix(t, name, n_rows, n_cols);
    snprintf(name, sizeof name, "%s.bias", part);
    put_vector(t, name, n_rows);
}

// Scales of one, biases of any size.
static void put_norm(struct random_tower *t, const char *part, uint64_t n)
{
    const float one = 1;
    char name[64];

    snprintf(name, sizeof name, "%s.weight", part);
    for (uint64_t i = 0; t->writes && i < n; i++)
        gguf_write_data(&t->w, &one, sizeof one);
    if (!t->writes)
        put_vector(t, name, n);
    snprintf(name, sizeof name, "%s.bias", part);
    put_vector(t, name, n);
}

static const char *part_of(char name[32], uint32_t layer, const char *part)
{
    snprintf(name, 32, "v.blk.%u.%s", layer, part);
    return name;
}

static void put_layer(struct random_tower *t, uint32_t l)
{
    static const char *const products[] = { "attn_q", "attn_k", "attn_v", "attn_out" },
                             *const norms[] = { "ln1", "ln2" },
                             *const scales[] = { "ls1.weight", "ls2.weight" };
    const struct random_tower_shape *s = t->shape;
    char name[32];

    for (uint32_t i = 0; i < 2; i++)
        put_norm(t, part_of(name, l, norms[i]), s->n_cols);
    for (uint32_t i = 0; i < 2 && is_internvl(t); i++)
        put_vector(t, part_of(name, l, scales[i]), s->n_cols);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        put_product(t, part_of(name, l, products[i]), s->n_cols, s->n_cols);
    put_product(t, part_of(name, l, "ffn_up"), s->n_ffn, s->n_cols);
    put_product(t, part_of(name, l, "ffn_down"), s->n_cols, s->n_ffn);
}

static void put_connector(struct random_tower *t)
{
    uint64_t square = (uint64_t)t->shape->n_cols * t->shape->scale * t->shape->scale;

    if (!is_internvl(t)) {
        put_norm(t, "v.post_ln", t->shape->n_cols);
        put_matrix(t, "mm.model.fc.weight", t->n_out, square);
        return;
    }
    put_norm(t, "mm.model.mlp.0", square);
    put_product(t, "mm.model.mlp.1", t->n_out, square);
    put_product(t, "mm.model.mlp.3", t->n_out, t->n_out);
}

static void put_all(struct random_tower *t)
{
    const struct random_tower_shape *s = t->shape;
    uint64_t across = s->tile / s->patch, n_places = across * across + is_internvl(t);

    if (is_internvl(t))
        put_vector(t, "v.class_embd", s->n_cols);
    put(t, "v.patch_embd.weight", QUANT_F32, (const uint64_t[]){ s->n_cols, 3, s->patch, s->patch }, 4);
    put_vector(t, "v.patch_embd.bias", s->n_cols);
    put(t, "v.position_embd.weight", QUANT_F32, (const uint64_t[]){ n_places, s->n_cols }, 2);
    for (uint32_t l = 0; l < s->n_layers; l++)
        put_layer(t, l);
    put_connector(t);
}

static void put_keys(struct random_tower *t, const char *name)
{
    const struct random_tower_shape *s = t->shape;
    const struct image_processor by_edge = { .tiling = IMAGE_BY_EDGE,
                                             .longest_edge = s->longest_edge,
                                             .tile = s->tile,
                                             .mean = { 0.5f, 0.5f, 0.5f },
                                             .std = { 0.5f, 0.5f, 0.5f } },
                                 by_aspect = { .tiling = IMAGE_BY_ASPECT,
                                               .min_tiles = 1,
                                               .max_tiles = 12,
                                               .tile = s->tile,
                                               .mean = { 0.485f, 0.456f, 0.406f },
                                               .std = { 0.229f, 0.224f, 0.225f } };
    const struct tower_config c = { .n_layers = s->n_layers,
                                    .n_cols = s->n_cols,
                                    .n_heads = s->n_heads,
                                    .n_ffn = s->n_ffn,
                                    .patch = s->patch,
                                    .scale = s->scale,
                                    .n_out = t->n_out,
                                    .norm_eps = 1e-6f,
                                    .processor = is_internvl(t) ? by_aspect : by_edge };

    quantize_eyes_keys(&t->w, is_internvl(t) ? "internvl" : "idefics3", &c);
    gguf_write_str(&t->w, "general.name", str_from(name));
}

static bool fill_pools(struct random_tower *t, uint64_t *random, struct err *err)
{
    const enum quant formats[] = { QUANT_F32, QUANT_BF16, t->matrices };
    size_t bad;

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct quant_info *info = quant_info(formats[i]);
        if (!t->pool[formats[i]])
            t->pool[formats[i]] = mem_alloc((size_t)POOL_NUMBERS / info->block_elements * info->block_bytes);
        if (!t->pool[formats[i]])
            return err_memory(err, "random weights");
    }
    float *numbers = t->pool[QUANT_F32];
    for (uint32_t i = 0; i < POOL_NUMBERS; i++)
        numbers[i] = random_model_draw(random);
    const struct quantize_source source = { numbers, NULL, POOL_NUMBERS };
    return (quantize_encode(QUANT_BF16, &source, t->pool[QUANT_BF16], &bad) &&
            quantize_encode(t->matrices, &source, t->pool[t->matrices], &bad)) ||
           err_set(err, ERR_INPUT, "random weights as %s", quant_info(t->matrices)->name);
}

bool random_tower_file(const struct random_tower_shape *shape, const struct random_tower_file *file,
                       uint64_t *random, struct err *err)
{
    struct random_tower t = {
        .shape = shape, .n_out = file->n_out, .matrices = file->matrices, .hollow = file->hollow
    };
    bool ok = false;

    if (!fill_pools(&t, random, err))
        goto cleanup;
    if (!gguf_write_create(&t.w, file->path, err))
        goto cleanup;
    put_keys(&t, file->name);
    put_all(&t);
    gguf_write_begin(&t.w);
    t.writes = true;
    put_all(&t);
    ok = gguf_write_commit(&t.w, err);
cleanup:
    gguf_write_abort(&t.w);
    for (size_t i = 0; i < N_WEIGHT_QUANTS; i++)
        mem_free(t.pool[i]);
    return ok;
}
