// model_rope.c - see model_rope.h.
//
// Lists of divisors are the first table's: a tensor of GGUF files, or for long contexts one of two lists.
// Which of these is chosen once, by the context that the engine has: it must not change between the steps of
// a sequence.
#include "models/binding/model_rope.h"
#include "base/mem.h"

static bool take_tensor(const struct file_tensor *t, float **list, uint32_t n)
{
    *list = mem_alloc_array(n, sizeof **list);
    if (*list)
        quant_info(t->format)->decode(t->data, *list, n);
    return *list != NULL;
}

static const struct meta *find_list(const struct model *m, bool is_long)
{
    const struct meta *list =
        model_file_meta(m->file, is_long ? "rope_parameters.long_factor" : "rope_parameters.short_factor");

    return list
               ? list
               : model_file_meta(m->file, is_long ? "rope_scaling.long_factor" : "rope_scaling.short_factor");
}

bool model_rope_list(const struct model *m, bool is_long, float **list, struct err *err)
{
    uint32_t n = m->config.rope[0].n_dims / 2;
    const struct meta *found = find_list(m, is_long);

    if (!found || found->type != META_ARRAY || found->n != n)
        return err_set(err, ERR_INPUT, "%s: RoPE's %s_factor is no list of %u numbers",
                       model_file_path(m->file), is_long ? "long" : "short", n);
    if (!(*list = mem_alloc_array(n, sizeof **list)))
        return err_memory(err, "rotation frequencies");
    for (uint32_t i = 0; i < n; i++) {
        struct meta v = meta_at(found, i);
        (*list)[i] = v.type == META_FLOAT ? (float)v.f : v.type == META_UINT ? (float)v.u : 0;
    }
    return true;
}

// The divisors of the table's frequencies; NULL: there are none.
static bool read_divisors(const struct model *m, uint32_t table, uint32_t n_context, float **list,
                          struct err *err)
{
    const struct rope_config *r = &m->config.rope[table];
    bool is_long = n_context > r->original_context;
    const struct file_tensor *t = MODEL_TENSOR(m, rope_divisors);

    *list = NULL;
    if (r->type == ROPE_LONG) {
        t = is_long ? MODEL_TENSOR(m, rope_long) : MODEL_TENSOR(m, rope_short);
        if (!t)
            return model_rope_list(m, is_long, list, err);
    }
    return table > 0 || !t || take_tensor(t, list, r->n_dims / 2) || err_memory(err, "rotation frequencies");
}

static bool check_divisors(const struct model *m, const float *list, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; list && i < n; i++)
        if (!(list[i] > 0))
            return err_set(err, ERR_INPUT, "%s: RoPE's divisor %u is %g; want numbers above 0",
                           model_file_path(m->file), i, (double)list[i]);
    return true;
}

static bool make_table(struct model *m, uint32_t table, uint32_t n_context, struct err *err)
{
    const struct rope_config *r = &m->config.rope[table];
    float *list;
    bool ok = read_divisors(m, table, n_context, &list, err) && check_divisors(m, list, r->n_dims / 2, err);

    if (ok)
        rope_frequencies(r, list, m->frequencies[table], &m->angle_scale[table]);
    mem_free(list);
    return ok;
}

bool model_rope_make(struct model *m, struct err *err)
{
    for (uint32_t i = 0; i < MODEL_ROPES; i++) {
        if (m->config.rope[i].n_dims == 0)
            continue;
        m->frequencies[i] = mem_alloc_array(m->config.rope[i].n_dims / 2, sizeof(float));
        if (!m->frequencies[i])
            return err_memory(err, "rotation frequencies");
        if (!make_table(m, i, m->config.n_context, err))
            return false;
    }
    return true;
}

bool model_context_set(struct model *m, uint32_t n_context, struct err *err)
{
    for (uint32_t i = 0; i < MODEL_ROPES; i++)
        if (m->config.rope[i].type == ROPE_LONG && m->config.rope[i].n_dims &&
            !make_table(m, i, n_context, err))
            return false;
    return true;
}
