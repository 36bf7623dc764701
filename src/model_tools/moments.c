// moments.c - see moments.h.
#include "model_tools/moments.h"
#include <stdatomic.h>
#include "base/mem.h"
#include "model_tools/rank_update.h"

// Rows are added so many at a time: their panels stay in a processor's cache.
enum { WIDTH = RANK_UPDATE_WIDTH, ROWS = 128 };

bool moments_create(struct moments *m, const struct moments_limits *limits, struct err *err)
{
    *m = (struct moments){ .arena = arena_create((size_t)1 << 38), .limits = *limits };
    return m->arena || err_memory(err, "sums of products of activations");
}

void moments_free(struct moments *m)
{
    mem_free(m->entries);
    mem_free_aligned(m->panels);
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

static double *sums_of(struct moments *m, const struct moments_rows *rows)
{
    const struct moments_entry *e = moments_find(m, rows->names[0]);
    const size_t n = rows->n_cols;
    double *sums = e ? e->sums : arena_alloc_array(m->arena, n * (n + 1) / 2, sizeof *sums);

    for (uint32_t i = 0; i < rows->n_names && !e && sums; i++)
        if (!append(m, rows->names[i], rows->n_cols, sums))
            return NULL;
    return sums;
}

// ---- adding

struct pack_work {
    const struct moments_rows *rows;
    double *panels;
    atomic_uint next;
};

static void pack_panel(const struct moments_rows *rows, uint32_t panel, double (*to)[WIDTH])
{
    const uint32_t first = panel * WIDTH, left = rows->n_cols - first, n = left < WIDTH ? left : WIDTH;

    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t i = 0; i < WIDTH; i++)
            to[r][i] = i < n ? (double)rows->at[(size_t)r * rows->n_cols + first + i] : 0;
}

static void pack_panels(void *arg, unsigned thread)
{
    struct pack_work *w = arg;
    const uint32_t n = rank_update_panels(w->rows->n_cols);

    (void)thread;
    for (uint32_t at; (at = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < n;)
        pack_panel(w->rows, at, (double(*)[WIDTH])(w->panels + (size_t)at * w->rows->n * WIDTH));
}

static bool reserve_panels(struct moments *m, uint32_t n_cols)
{
    const size_t n = rank_update_panels(n_cols);

    if (n > m->n_panels) {
        mem_free_aligned(m->panels);
        m->panels = mem_alloc_aligned(n * ROWS * WIDTH * sizeof *m->panels, 64);
        m->n_panels = m->panels ? n : 0;
    }
    return m->panels != NULL;
}

// False where sums for these rows are neither there nor have room: the layers end before theirs.
static bool has_room(struct moments *m, const struct moments_rows *rows)
{
    struct moments_limits *l = &m->limits;
    const uint64_t bytes = (uint64_t)rows->n_cols * (rows->n_cols + 1) / 2 * sizeof(double);

    if (rows->layer < l->first || rows->layer >= l->last)
        return false;
    if (moments_find(m, rows->names[0]))
        return true;
    if (bytes > l->bytes && rows->layer > l->first)
        return l->last = rows->layer, false;
    l->bytes -= bytes < l->bytes ? bytes : l->bytes;
    return true;
}

bool moments_add(struct moments *m, const struct moments_rows *rows, struct err *err)
{
    if (!has_room(m, rows))
        return true;
    double *sums = sums_of(m, rows);

    if (!sums || !reserve_panels(m, rows->n_cols))
        return err_memory(err, "sums of products of activations");
    for (uint32_t first = 0; first < rows->n; first += ROWS) {
        struct moments_rows some = *rows;
        some.at += (size_t)first * rows->n_cols;
        some.n = rows->n - first < ROWS ? rows->n - first : ROWS;
        thread_pool_run(m->limits.pool, pack_panels,
                        &(struct pack_work){ .rows = &some, .panels = m->panels });
        rank_update(
            &(struct rank_update){ .c = sums, .p = m->panels, .n = rows->n_cols, .k = some.n, .sign = 1 },
            m->limits.pool);
    }
    return true;
}
