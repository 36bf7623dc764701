// moments.c - see moments.h.
#include "model_tools/moments.h"
#include "base/mem.h"

bool moments_create(struct moments *m, struct err *err)
{
    *m = (struct moments){ .arena = arena_create((size_t)1 << 38) };
    return m->arena || err_memory(err, "sums of products of activations");
}

void moments_free(struct moments *m)
{
    mem_free(m->entries);
    arena_destroy(m->arena);
    *m = (struct moments){ 0 };
}

const struct moments_entry *moments_find(const struct moments *m, struct str name)
{
    for (size_t i = 0; i < m->n; i++)
        if (str_eq(m->entries[i].name, name))
            return &m->entries[i];
    return NULL;
}

static bool append(struct moments *m, struct str name, uint32_t n, double *sums)
{
    if (m->n == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 256;
        struct moments_entry *entries = mem_realloc(m->entries, capacity * sizeof *entries);
        if (!entries)
            return false;
        m->entries = entries;
        m->capacity = capacity;
    }
    m->entries[m->n] = (struct moments_entry){ arena_str(m->arena, name), n, sums };
    return m->entries[m->n++].name.at != NULL;
}

static double *sums_of(struct moments *m, const struct str *names, uint32_t n_names, uint32_t n)
{
    const struct moments_entry *e = moments_find(m, names[0]);
    double *sums = e ? e->sums : arena_alloc_array(m->arena, (size_t)n * n, sizeof *sums);

    for (uint32_t i = 0; i < n_names && !e && sums; i++)
        if (!append(m, names[i], n, sums))
            return NULL;
    return sums;
}

bool moments_add(struct moments *m, const struct str *names, uint32_t n_names, const float *rows,
                 const uint32_t sizes[2], struct err *err)
{
    const uint32_t n_rows = sizes[0], n = sizes[1];
    double *sums = n_names ? sums_of(m, names, n_names, n) : NULL;

    if (n_names && !sums)
        return err_memory(err, "sums of products of activations");
    for (uint32_t r = 0; r < n_rows && sums; r++, rows += n)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++)
                sums[(size_t)i * n + j] += (double)rows[i] * (double)rows[j];
    m->n_rows += sums ? n_rows : 0;
    return true;
}
