// model_config.c - reads a model's sizes by its architecture's table; see model_config.h.
#include "models/binding/model_config.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "models/binding/layer_config.h"
#include "models/binding/model_names.h"

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

bool model_lacks(const struct model *m, const char *key, struct err *err)
{
    const struct meta *value = model_file_meta(m->file, key);

    if (!value || !((value->type == META_BOOL && value->b) || (value->type == META_UINT && value->u > 0) ||
                    (value->type == META_FLOAT && value->f != 0)))
        return true;
    return err_set(err, ERR_UNSUPPORTED, "%s: %s is there; ingot runs %s models without it",
                   model_file_path(m->file), key, m->arch->name);
}

bool model_read_rotated(struct model *m, double part, struct err *err)
{
    if (!model_file_f64(m->file, "partial_rotary_factor", 0, 1, &part, err) ||
        !model_file_f64(m->file, "rope_parameters.partial_rotary_factor", 0, 1, &part, err))
        return false;
    m->config.rope[0].n_dims = (uint32_t)(m->config.head_dim * part);
    return m->config.rope[0].n_dims >= 2 ||
           err_set(err, ERR_INPUT, "%s: %u of a head's %u numbers are rotated; want 2 or more",
                   model_file_path(m->file), m->config.rope[0].n_dims, m->config.head_dim);
}

static double config_get(const struct model_config *c, size_t offset)
{
    uint32_t v;
    memcpy(&v, (const char *)c + offset, sizeof v);
    return v;
}

static void config_put(struct model *m, const struct config_key *k, double value)
{
    uint32_t u = (uint32_t)value;
    float f = (float)value;
    memcpy((k->is_own ? (char *)m->own : (char *)&m->config) + k->offset,
           k->is_float ? (void *)&f : (void *)&u, 4);
}

static bool config_default(struct model *m, const struct config_key *k, const char *key, double *value,
                           struct err *err)
{
    char name[128];

    if (k->otherwise == CONFIG_DEFAULT)
        *value = k->value;
    else if (k->otherwise == CONFIG_SAME_AS)
        *value = config_get(&m->config, k->other);
    else if (k->otherwise == CONFIG_RATIO)
        *value = (double)((uint32_t)config_get(&m->config, k->other) /
                          (uint32_t)config_get(&m->config, k->divisor));
    else if (k->otherwise == CONFIG_FROM_EMBED) {
        // the tables begin with the embedding
        const struct file_tensor *embed = model_names_find(m, &m->arch->weights[0], 0, name);
        *value = embed && embed->dims[0] <= 1 << 24 ? (double)embed->dims[0] : 0;
    }
    if (k->otherwise == CONFIG_REQUIRED || (k->otherwise == CONFIG_FROM_EMBED && *value == 0))
        return err_set(err, ERR_INPUT, "%s: %s is missing; %s models need it", model_file_path(m->file), key,
                       m->arch->name);
    return true;
}

// A boolean key as a number. Absent: *u is unchanged.
static bool read_bool(const struct model *m, const char *key, uint64_t *u, struct err *err)
{
    bool b = false;

    if (!model_file_bool(m->file, key, &b, err))
        return false;
    *u = model_file_meta(m->file, key) ? b : *u;
    return true;
}

static bool read_size(const struct model *m, const char *key, const struct config_key *k, uint64_t *u,
                      struct err *err)
{
    const struct meta *size = model_file_meta(m->file, key);

    if (k->layer && size && size->type == META_ARRAY)
        return layer_config_largest(m, key, k, u, err);
    if (k->is_period && size && size->type == META_ARRAY)
        return layer_config_period(m, key, u, err);
    return model_file_u64(m->file, key, (uint64_t)k->min, (uint64_t)k->max, u, err);
}

// The key's number. Absent: UINT64_MAX or NaN is left in place.
static bool config_read(struct model *m, const struct config_key *k, struct err *err)
{
    char key[128];
    uint64_t u = UINT64_MAX;
    double f = -1, value;

    if (!layer_config_key(m, k, key)) {
        config_put(m, k, k->value);
        return true;
    }
    if (!(k->is_bool    ? read_bool(m, key, &u, err)
          : k->is_float ? model_file_f64(m->file, key, k->min, k->max, &f, err)
                        : read_size(m, key, k, &u, err)))
        return false;
    bool absent = k->is_float ? f < 0 : u == UINT64_MAX;
    value = k->is_float ? f : (double)u;
    if (absent && !config_default(m, k, key, &value, err))
        return false;
    if (value < k->min || value > k->max)
        return err_set(err, ERR_INPUT, "%s: %s would be %g; want %g to %g", model_file_path(m->file), key,
                       value, k->min, k->max);
    config_put(m, k, value);
    return true;
}

// GGUF's number of layers includes draft layers.
static bool drop_draft_layers(struct model *m, struct err *err)
{
    struct model_config *c = &m->config;

    if (!is_gguf(m) || c->n_draft == 0)
        return true;
    if (c->n_draft >= c->n_layers)
        return err_set(err, ERR_INPUT, "%s: %u draft layers of %u layers in all; want fewer",
                       model_file_path(m->file), c->n_draft, c->n_layers);
    c->n_layers -= c->n_draft;
    return true;
}

bool model_config_read(struct model *m, struct err *err)
{
    char key[128];
    uint64_t n_dims;

    if (m->arch->own_config_bytes && !(m->own = mem_alloc(m->arch->own_config_bytes)))
        return err_memory(err, "the model's sizes");
    for (uint32_t i = 0; i < m->arch->n_config; i++)
        if (!config_read(m, &m->arch->config[i], err))
            return false;
    if (!drop_draft_layers(m, err) || (m->arch->complete && !m->arch->complete(m, err)))
        return false;
    struct rope_config *rope = &m->config.rope[0];
    n_dims = rope->n_dims ? rope->n_dims : m->config.head_dim;
    snprintf(key, sizeof key, "%s.rope.dimension_count", m->arch->name);
    if (!model_file_u64(m->file, key, 2, 1024, &n_dims, err))
        return false;
    rope->n_dims = (uint32_t)n_dims;
    rope->original_context = m->config.n_context;
    if (!rope_config_read(rope, &(struct rope_source){ m->file, m->arch->name, m->arch->rope_part }, err) ||
        !layer_config_make(m, err) || !layer_config_check(m, err) ||
        (m->arch->check && !m->arch->check(m, err)))
        return false;
    m->factors = (struct model_factors){ 1, 1 / sqrtf((float)m->config.head_dim), 1, m->config.norm_eps, 0 };
    if (m->arch->factors)
        m->arch->factors(m);
    return true;
}
