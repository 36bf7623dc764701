// layer_config.c - see layer_config.h.
#include "models/binding/layer_config.h"
#include "base/mem.h"

bool layer_config_key(const struct model *m, const struct config_key *k, char key[128])
{
    const char *format = model_file_format(m->file) == MODEL_GGUF ? k->gguf : k->json;
    bool named = format && strncmp(format, "%s", 2) == 0;

    if (format)
        snprintf(key, 128, "%s%s", named ? m->arch->name : "", named ? format + 2 : format);
    return format != NULL;
}

static bool is_number(const struct meta *n, uint64_t *value)
{
    *value = n->type == META_UINT ? n->u : (uint64_t)n->i;
    return n->type == META_UINT || (n->type == META_INT && n->i >= 0);
}

bool layer_config_largest(const struct model *m, const char *key, const struct config_key *k,
                          uint64_t *largest, struct err *err)
{
    const struct meta *array = model_file_meta(m->file, key);

    *largest = 0;
    for (uint64_t i = 0; i < array->n; i++) {
        struct meta n = meta_at(array, i);
        uint64_t value;
        if (!is_number(&n, &value) || (value != 0 && value < (uint64_t)k->min) || value > (uint64_t)k->max)
            return err_set(err, ERR_INPUT, "%s: %s[%llu] is no number from %g to %g",
                           model_file_path(m->file), key, (unsigned long long)i, k->min, k->max);
        *largest = value > *largest ? value : *largest;
    }
    return true;
}

// A number for each layer, which layer_config_largest has checked.
static bool take_array(struct model *m, const struct config_key *k, struct err *err)
{
    char key[128];
    const struct meta *array = layer_config_key(m, k, key) ? model_file_meta(m->file, key) : NULL;

    if (!array || array->type != META_ARRAY)
        return true;
    if (array->n < m->config.n_layers)
        return err_set(err, ERR_INPUT, "%s: %s has %llu numbers; want one for each of %u layers",
                       model_file_path(m->file), key, (unsigned long long)array->n, m->config.n_layers);
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        struct meta n = meta_at(array, l);
        uint64_t value;
        CHECK(is_number(&n, &value));
        uint32_t size = (uint32_t)value;
        memcpy((char *)&m->layer_configs[l] + k->layer - 1, &size, sizeof size);
    }
    return true;
}

bool layer_config_make(struct model *m, struct err *err)
{
    const struct model_config *c = &m->config;

    m->layer_configs = mem_alloc_array((size_t)c->n_layers + 1, sizeof *m->layer_configs);
    if (!m->layer_configs)
        return err_memory(err, "the model's layers");
    for (uint32_t l = 0; l < c->n_layers; l++)
        m->layer_configs[l] = (struct layer_config){ c->n_heads, c->n_kv_heads, c->head_dim,  c->n_ffn,
                                                     c->window,  .rope = 0,     .pages_of = l };
    for (uint32_t i = 0; i < m->arch->n_config; i++)
        if (m->arch->config[i].layer && !take_array(m, &m->arch->config[i], err))
            return false;
    return !m->arch->layers || m->arch->layers(m, err);
}

// false: it says something else.
static bool has_window(const struct meta *type, bool *window)
{
    *window = type->type == META_BOOL     ? type->b
              : type->type == META_STRING ? str_is(type->s, "sliding_attention")
                                          : type->u == 1;
    return type->type == META_BOOL || (type->type == META_UINT && type->u <= 1) ||
           (type->type == META_INT && (type->i == 0 || type->i == 1)) ||
           (type->type == META_STRING && (*window || str_is(type->s, "full_attention")));
}

bool layer_config_period(const struct model *m, const char *key, uint64_t *period, struct err *err)
{
    const struct meta *types = model_file_meta(m->file, key);
    uint32_t n = m->config.n_layers;
    bool window = false;

    *period = 0;
    for (uint32_t l = 0; l < n && l < types->n; l++) {
        struct meta type = meta_at(types, l);
        if (!has_window(&type, &window))
            return err_set(err, ERR_UNSUPPORTED, "%s: %s[%u] names no window and no full attention",
                           model_file_path(m->file), key, l);
        if (*period == 0 && !window)
            *period = l + 1;
        if (*period && window != ((l + 1) % *period != 0))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: %s[%u] breaks the pattern; want every %llu-th layer to see all",
                           model_file_path(m->file), key, l, (unsigned long long)*period);
    }
    if (types->n < n)
        return err_set(err, ERR_INPUT, "%s: %s has %llu values; want one for each of %u layers",
                       model_file_path(m->file), key, (unsigned long long)types->n, n);
    *period = *period ? *period : n + 1;
    return true;
}

bool layer_config_types(const struct model *m, uint32_t *period, struct err *err)
{
    const struct meta *types = model_file_meta(m->file, "layer_types");
    uint64_t found = 0;

    if (!types)
        return true;
    if (types->type != META_ARRAY)
        return err_set(err, ERR_INPUT, "%s: layer_types is no list", model_file_path(m->file));
    if (!layer_config_period(m, "layer_types", &found, err))
        return false;
    *period = (uint32_t)found;
    return true;
}

// false: it says something else.
static bool is_recurrent(const struct meta *type, bool *recurrent)
{
    *recurrent = type->type == META_STRING ? str_is(type->s, "linear_attention") || str_is(type->s, "conv") ||
                                                 str_is(type->s, "mamba")
                 : type->type == META_BOOL ? type->b
                                           : type->u == 1;
    return type->type == META_BOOL ||
           (type->type == META_STRING &&
            (str_is(type->s, "full_attention") || str_is(type->s, "attention"))) ||
           *recurrent || ((type->type == META_UINT || type->type == META_INT) && type->u == 0);
}

bool layer_config_recurrent(const struct model *m, const char *format, uint32_t l, bool *recurrent,
                            struct err *err)
{
    const char *rest = strncmp(format, "%s", 2) == 0 ? format + 2 : NULL;
    char key[128];

    snprintf(key, sizeof key, "%s%s", rest ? m->arch->name : "", rest ? rest : format);
    const struct meta *types = model_file_meta(m->file, key);
    if (!types)
        return true;
    if (types->type != META_ARRAY || types->n < m->config.n_layers)
        return err_set(err, ERR_INPUT, "%s: %s is no list with a word for each of %u layers",
                       model_file_path(m->file), key, m->config.n_layers);
    struct meta type = meta_at(types, l);
    return is_recurrent(&type, recurrent) ||
           err_set(err, ERR_UNSUPPORTED, "%s: %s[%u] names no recurrent layer and no full attention",
                   model_file_path(m->file), key, l);
}

void layer_config_windows(struct model *m, uint32_t period, uint32_t rope)
{
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        bool all = (l + 1) % period == 0;
        m->layer_configs[l].window = all ? 0 : m->config.window;
        m->layer_configs[l].rope = all ? 0 : rope;
    }
}

uint64_t layer_config_window_bytes(const struct model *m, uint32_t first, uint32_t last, enum kv_format k,
                                   enum kv_format v)
{
    uint64_t bytes = 0;

    for (uint32_t l = first; l < last; l++)
        bytes += m->layer_configs[l].window ? model_pages_bytes(m, l, l + 1, k, v) : 0;
    return bytes;
}

uint32_t layer_config_window(const struct model *m)
{
    bool any = layer_config_window_bytes(m, 0, m->config.n_layers, KV_F16, KV_F16) > 0;
    return any ? m->config.window : 0;
}

static bool check_layer(const struct model *m, uint32_t l, struct err *err)
{
    const struct layer_config *c = &m->layer_configs[l];
    const char *path = model_file_path(m->file);
    uint32_t rotated = m->config.rope[c->rope].n_dims;

    if (c->n_kv_heads == 0 || c->n_heads % c->n_kv_heads != 0)
        return err_set(err, ERR_INPUT, "%s: %u heads are no multiple of %u KV heads", path, c->n_heads,
                       c->n_kv_heads);
    if (c->head_dim == 0 || c->head_dim % 2 != 0 || rotated % 2 != 0 || rotated > c->head_dim)
        return err_set(err, ERR_INPUT,
                       "%s: heads of %u dimensions, %u of them rotated; want even numbers, at most all", path,
                       c->head_dim, rotated);
    if ((uint64_t)c->n_heads * c->head_dim > 1 << 20)
        return err_set(err, ERR_INPUT, "%s: %u heads of %u dimensions; want at most %u in all", path,
                       c->n_heads, c->head_dim, 1u << 20);
    return c->n_ffn > 0 ||
           err_set(err, ERR_INPUT, "%s: layer %u has a feed-forward block of 0 numbers; want 1 or more", path,
                   l);
}

bool layer_config_check(const struct model *m, struct err *err)
{
    for (uint32_t l = 0; l < m->config.n_layers; l++)
        if (!check_layer(m, l, err))
            return false;
    return true;
}
