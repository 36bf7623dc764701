// imatrix.c - see imatrix.h. Sums are doubles, since a text has many rows.
#include "model_tools/imatrix.h"
#include "base/mem.h"

bool imatrix_create(struct imatrix *m, struct err *err)
{
    *m = (struct imatrix){ .arena = arena_create((size_t)1 << 34) };
    return m->arena || err_memory(err, "an importance matrix");
}

void imatrix_free(struct imatrix *m)
{
    mem_free(m->entries);
    arena_destroy(m->arena);
    *m = (struct imatrix){ 0 };
}

static struct imatrix_entry *find(const struct imatrix *m, struct str name)
{
    for (size_t i = 0; i < m->n; i++)
        if (str_eq(m->entries[i].name, name))
            return &m->entries[i];
    return NULL;
}

const struct imatrix_entry *imatrix_find(const struct imatrix *m, struct str name)
{
    return find(m, name);
}

static struct imatrix_entry *append(struct imatrix *m, const struct imatrix_entry *sizes, struct err *err)
{
    struct imatrix_entry e = *sizes;

    if (m->n == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 256;
        struct imatrix_entry *entries = mem_realloc(m->entries, capacity * sizeof *entries);
        m->entries = entries ? entries : m->entries;
        m->capacity = entries ? capacity : m->capacity;
    }
    e.name = arena_str(m->arena, e.name);
    e.sums = arena_alloc_array(m->arena, e.n_sums, sizeof *e.sums);
    e.counts = arena_alloc_array(m->arena, e.n_counts, sizeof *e.counts);
    if (m->n == m->capacity || !e.name.at || !e.sums || !e.counts) {
        err_memory(err, "an importance matrix");
        return NULL;
    }
    m->entries[m->n] = e;
    return &m->entries[m->n++];
}

struct imatrix_entry *imatrix_add(struct imatrix *m, const struct imatrix_entry *like, struct err *err)
{
    struct imatrix_entry *e = find(m, like->name);

    if (!e)
        return append(m, like, err);
    if (e->n_sums == like->n_sums && e->n_counts == like->n_counts)
        return e;
    err_set(err, ERR_INPUT, "%.*s: %llu sums and %u counts, and before %llu and %u", STR_ARG(e->name),
            (unsigned long long)like->n_sums, like->n_counts, (unsigned long long)e->n_sums, e->n_counts);
    return NULL;
}

bool imatrix_means(const struct imatrix_entry *e, const uint64_t sizes[2], float *means)
{
    uint64_t n_matrices = sizes[0], n_cols = sizes[1];

    if ((e->n_sums != n_cols && e->n_sums / n_cols != n_matrices) || e->n_sums % n_cols != 0 ||
        (e->n_counts != 1 && e->n_counts != n_matrices))
        return false;
    for (uint64_t i = 0; i < n_matrices * n_cols; i++) {
        double count = e->counts[e->n_counts > 1 ? i / n_cols : 0];
        double sum = e->sums[e->n_sums == n_cols ? i % n_cols : i]; // one row may stand for all matrices
        means[i] = count > 0 ? (float)(sum / count) : 1;
    }
    return true;
}
