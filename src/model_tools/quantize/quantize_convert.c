// quantize_convert.c - a safetensors model as GGUF: tensors under their GGUF names, sizes under their GGUF
// keys.
//
// Nothing about an architecture is written here: the tables in models/ hold both spellings and the rows that
// GGUF keeps in another order. Tensors that only GGUF has (the divisors of Llama 3's RoPE) are made from the
// bound model.
#include <math.h>
#include "base/log.h"
#include "base/mem.h"
#include "model_tools/quantize/quantize_plan.h"
#include "models/arch.h"
#include "models/binding/joined.h"
#include "models/binding/model_rope.h"
#include "models/draft/draft_layer.h"
#include "models/trellis_tensor.h"
#include "text/tokenizer/tokenizer_write.h"

struct convert {
    struct quantize_plan *plan;
    struct gguf_writer *w;
    struct model model;
    struct err *err;
};

static const char *key_of(const struct convert *c, const char *part, char key[128])
{
    snprintf(key, 128, "%s.%s", c->model.arch->name, part);
    return key;
}

static uint32_t layer_size(const struct convert *c, const struct config_key *k, uint32_t l)
{
    uint32_t size;

    memcpy(&size, (const char *)&c->model.layer_configs[l] + k->layer - 1, sizeof size);
    bool of_pages = k->layer == 1 + offsetof(struct layer_config, n_kv_heads);
    return of_pages && c->model.layer_configs[l].state_words ? 0 : size; // recurrent layers have none
}

// An array where the layers differ. false: they do not.
static bool write_layers(struct convert *c, const struct config_key *k)
{
    uint32_t n = c->model.config.n_layers, n_equal = 0;
    int32_t *sizes = k->layer && k->gguf ? arena_alloc_array(c->plan->arena, n, sizeof *sizes) : NULL;
    char key[128];

    for (uint32_t l = 0; sizes && l < n; l++) {
        sizes[l] = (int32_t)layer_size(c, k, l);
        n_equal += sizes[l] == sizes[0];
    }
    if (!sizes || n_equal == n)
        return false;
    gguf_write_i32s(c->w, key_of(c, k->gguf + 3, key), sizes, n);
    return true;
}

static void write_sizes(struct convert *c)
{
    const struct arch *arch = c->model.arch;
    char key[128];

    for (uint32_t i = 0; i < arch->n_config; i++) {
        const struct config_key *k = &arch->config[i];
        const char *field =
            (k->is_own ? (const char *)c->model.own : (const char *)&c->model.config) + k->offset;
        uint32_t u;
        float f;
        memcpy(&u, field, sizeof u);
        memcpy(&f, field, sizeof f);
        if (!k->is_own && k->offset == offsetof(struct model_config, n_draft))
            u = c->model.drafts;
        if (!k->is_own && k->offset == offsetof(struct model_config, n_layers))
            u += c->model.drafts;
        // 0: does not apply
        if (write_layers(c, k) || !k->gguf || strncmp(k->gguf, "%s.", 3) != 0 ||
            (!k->is_float && !k->is_bool && u == 0))
            continue;
        if (k->is_bool)
            gguf_write_bool(c->w, key_of(c, k->gguf + 3, key), u != 0);
        else if (k->is_float)
            gguf_write_f32(c->w, key_of(c, k->gguf + 3, key), f);
        else
            gguf_write_u32(c->w, key_of(c, k->gguf + 3, key), u);
    }
    if (c->model.embedder.pooling != POOLING_NONE)
        gguf_write_u32(c->w, key_of(c, "pooling_type", key), c->model.embedder.pooling);
    if (c->model.config.latent_dims == 0) // else it is among the sizes
        gguf_write_u32(c->w, key_of(c, "attention.value_length", key), c->model.config.head_dim);
}

static void write_rope(struct convert *c)
{
    const struct rope_config *r = &c->model.config.rope[0];
    char key[128];

    gguf_write_u32(c->w, key_of(c, "rope.dimension_count", key), r->n_dims);
    gguf_write_f32(c->w, key_of(c, "rope.freq_base", key), r->base);
    if (r->type == ROPE_LONG) {
        gguf_write_u32(c->w, key_of(c, "rope.scaling.original_context_length", key), r->original_context);
        gguf_write_f32(c->w, key_of(c, "rope.scaling.attn_factor", key), c->model.angle_scale[0]);
    }
    if (r->type != ROPE_LINEAR && r->type != ROPE_YARN)
        return;
    gguf_write_str(c->w, key_of(c, "rope.scaling.type", key),
                   r->type == ROPE_YARN ? STR("yarn") : STR("linear"));
    gguf_write_f32(c->w, key_of(c, "rope.scaling.factor", key), r->factor);
    gguf_write_u32(c->w, key_of(c, "rope.scaling.original_context_length", key), r->original_context);
    if (r->type != ROPE_YARN)
        return;
    gguf_write_f32(c->w, key_of(c, "rope.scaling.yarn_beta_fast", key), r->beta_fast);
    gguf_write_f32(c->w, key_of(c, "rope.scaling.yarn_beta_slow", key), r->beta_slow);
    if (r->mscale_all > 0)
        gguf_write_f32(c->w, key_of(c, "rope.scaling.yarn_log_multiplier", key), 0.1f * r->mscale_all);
    // config.json's factor on cosine and sine replaces the usual one; GGUF's multiplies it.
    float usual = r->mscale_all > 0 ? 1 : rope_yarn_factor(r, 1), factor = c->model.angle_scale[0] / usual;
    if (fabsf(factor - 1) > 1e-6f)
        gguf_write_f32(c->w, key_of(c, "rope.scaling.attn_factor", key), factor);
}

static uint32_t heads_of(const struct layer_config *config, const struct weight_key *k)
{
    bool q = k->rows == DIM_Q || k->cols == DIM_Q;
    return k->flags & WEIGHT_ROPE_PAIRED ? q ? config->n_heads : config->n_kv_heads : 0;
}

// The list of parts must outlive the model.
static bool keep_parts(struct convert *c, const struct file_tensor *t, struct quantize_entry *entry)
{
    const struct joined_tensor *from = (const struct joined_tensor *)t;
    struct joined_tensor *kept = arena_alloc(c->plan->arena, sizeof *kept);
    const struct file_tensor **parts = arena_alloc_array(c->plan->arena, from->n_parts, sizeof *parts);

    struct trellis *trellis =
        from->trellis ? arena_alloc_array(c->plan->arena, from->n_parts, sizeof *trellis) : NULL;

    if (!kept || !parts || (from->trellis && !trellis))
        return err_memory(c->err, "names of tensors");
    if (trellis)
        memcpy(trellis, from->trellis, from->n_parts * sizeof *trellis);
    memcpy(parts, from->parts, from->n_parts * sizeof *parts);
    *kept = *from;
    kept->parts = parts;
    kept->trellis = trellis;
    kept->next = NULL;
    entry->joined = kept;
    return true;
}

static bool add_tensor(struct convert *c, const struct weight_key *k, uint32_t layer)
{
    const struct model *m = &c->model;
    const struct file_tensor *t = k->per_layer ? model_layer(m, layer)[k->place] : m->tensors[k->place];
    const char *mark = strstr(k->gguf, "%u");

    if (!t || ((k->flags & WEIGHT_TIED) && m->tied) || (k->part && k->part->index > 0) || k->col_half == 2)
        return true;
    if (k->part || k->col_half) // all parts at once
        t = ((const struct joined_tensor *)t)->parts[0];
    char *name =
        mark ? arena_printf(c->plan->arena, "%.*s%u%s", (int)(mark - k->gguf), k->gguf, layer, mark + 2)
             : arena_printf(c->plan->arena, "%s", k->gguf);
    if (!name)
        return err_memory(c->err, "names of tensors");
    struct quantize_entry entry = { .from = *t,
                                    .name = str_from(name),
                                    .paired_heads = heads_of(&m->layer_configs[layer], k) };
    if (k->flags & WEIGHT_DEPTHWISE) { // [rows, 1, cols] here
        entry.from.n_dims = 2;
        memcpy(entry.from.dims, (uint64_t[TENSOR_MAX_DIMS]){ t->dims[0], t->dims[2], 1, 1 },
               sizeof entry.from.dims);
    }
    if (k->rows == DIM_ONE && t->n_dims == 2 && t->dims[0] == 1) { // a matrix of one row is a vector in GGUF
        entry.from.n_dims = 1;
        memcpy(entry.from.dims, (uint64_t[TENSOR_MAX_DIMS]){ t->dims[1], 1, 1, 1 }, sizeof entry.from.dims);
    }
    return (t->data || keep_parts(c, t, &entry)) && quantize_plan_add(c->plan, &entry, c->err);
}

static bool add_list(struct convert *c, const char *name, const float *list, uint64_t n)
{
    float *kept = arena_alloc_array(c->plan->arena, n, sizeof *kept);

    if (!kept)
        return err_memory(c->err, "rotation frequencies");
    memcpy(kept, list, n * sizeof *kept);
    struct quantize_entry entry = { .name = str_from(name) };
    entry.from =
        (struct file_tensor){ entry.name,      QUANT_F32, 1, { n, 1, 1, 1 }, (const unsigned char *)kept,
                              n * sizeof *kept };
    return quantize_plan_add(c->plan, &entry, c->err);
}

// The two lists of a long context.
static bool add_factors(struct convert *c)
{
    static const char *const names[] = { "rope_factors_short.weight", "rope_factors_long.weight" };

    for (int is_long = 0; is_long < 2; is_long++) {
        float *list = NULL;
        bool ok = model_rope_list(&c->model, is_long, &list, c->err) &&
                  add_list(c, names[is_long], list, c->model.config.rope[0].n_dims / 2);
        mem_free(list);
        if (!ok)
            return false;
    }
    return true;
}

// Llama 3 divides each frequency by its own number, and Gemma 4 makes the last ones 0: GGUF files carry the
// divisors as a tensor.
static bool add_divisors(struct convert *c)
{
    const struct rope_config *r = &c->model.config.rope[0];
    float divisors[512]; // rope.dimension_count is at most 1024
    uint32_t n = r->n_dims / 2;

    if (r->type == ROPE_LONG)
        return add_factors(c);
    if (r->type != ROPE_LLAMA3 && !r->n_turning)
        return true;
    for (uint32_t i = 0; i < n; i++)
        divisors[i] =
            !r->n_turning
                ? (float)(pow((double)r->base, -2.0 * i / r->n_dims) / (double)c->model.frequencies[0][i])
            : i < r->n_turning ? 1
                               : 1e30f;
    return add_list(c, "rope_freqs.weight", divisors, n);
}

static bool add_tensors(struct convert *c)
{
    const struct arch *arch = c->model.arch;

    if (!add_divisors(c))
        return false;
    for (uint32_t i = 0; i < arch->n_weights; i++)
        if (!arch->weights[i].per_layer && !add_tensor(c, &arch->weights[i], 0))
            return false;
    for (uint32_t l = 0; l < c->model.config.n_layers + c->model.drafts; l++)
        for (uint32_t i = 0; i < arch->n_weights; i++)
            if (arch->weights[i].per_layer && !add_tensor(c, &arch->weights[i], l))
                return false;
    for (uint32_t i = 0; i < DRAFT_LAYER_KEYS && c->model.drafts; i++)
        if (!add_tensor(c, &draft_layer_keys(&c->model)[i], c->model.config.n_layers))
            return false;
    return true;
}

static bool write_tokenizer(struct convert *c)
{
    const struct model_file *file = c->model.file;
    struct tokenizer *t;

    if (!model_file_tokenizer_json(file).n) {
        log_line(LOG_WARN, "quantize", "%s has no tokenizer.json: the new file will have no tokeniser",
                 model_file_path(file));
        gguf_write_str(c->w, "tokenizer.ggml.model", STR("none"));
        return true;
    }
    if (!tokenizer_load(&t, file, c->err))
        return false;
    bool ok = tokenizer_write(t, c->model.config.n_vocab, c->w, c->err);
    tokenizer_free(t);
    return ok ? true : err_prefix(c->err, "%s", model_file_path(file));
}

// The folder's name.
static struct str model_name(const char *path)
{
    size_t end = strlen(path), begin;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    return (struct str){ path + begin, end - begin };
}

bool quantize_convert(struct quantize_plan *plan, struct gguf_writer *w, const struct model_file *file,
                      struct err *err)
{
    struct convert c = { .plan = plan, .w = w, .err = err };

    if (!model_bind(&c.model, file, err))
        return false;
    if (c.model.arch->gguf_differs) {
        err_set(err, ERR_UNSUPPORTED,
                "%s: ingot does not convert %s models, whose numbers GGUF files order "
                "otherwise; take a GGUF file",
                model_file_path(file), c.model.arch->name);
        model_release(&c.model);
        return false;
    }
    gguf_write_str(w, "general.architecture", str_from(c.model.arch->name));
    gguf_write_str(w, "general.name", model_name(model_file_path(file)));
    write_sizes(&c);
    write_rope(&c);
    size_t n_before = plan->n;
    bool ok = write_tokenizer(&c) && add_tensors(&c);
    if (ok && plan->n - n_before < model_file_n_tensors(file))
        log_line(LOG_INFO, "quantize", "%zu of %zu tensors are of no use to %s and were left out",
                 model_file_n_tensors(file) - (plan->n - n_before), model_file_n_tensors(file),
                 c.model.arch->name);
    model_release(&c.model);
    return ok;
}
