// place_ranks.c - see place_ranks.h: dynamic programming over the ranges' ends. Every rank computes it for
// itself and gets the same; among equals the earliest borders win.
#include "engine/stage/place_ranks.h"
#include "base/mem.h"

// least[r][j]: the largest share when the first r + 1 ranks have the layers below j; from[r][j]: where rank
// r begins then. UINT64_MAX: it cannot be.
struct shares_table {
    uint64_t *sum;   // [n_layers + 1]
    uint64_t *least; // [n_ranks][n_layers + 1]
    uint32_t *from;
};

static void fill_table(const struct rank_shares *s, struct shares_table *t)
{
    size_t row = (size_t)s->n_layers + 1;

    for (uint32_t j = 0; j < s->n_layers; j++)
        t->sum[j + 1] = t->sum[j] + s->bytes[j];
    for (uint32_t r = 0; r < s->n_ranks; r++)
        for (uint32_t j = 0; j <= s->n_layers; j++) {
            uint64_t *least = &t->least[r * row + j];
            *least = r == 0 && j > 0 ? t->sum[j] : UINT64_MAX;
            for (uint32_t i = r; i < j && r > 0; i++) {
                uint64_t before = t->least[(r - 1) * row + i], own = t->sum[j] - t->sum[i];
                uint64_t most = before > own ? before : own;
                if (!s->may_begin[i] || before == UINT64_MAX || most >= *least)
                    continue;
                *least = most;
                t->from[r * row + j] = i;
            }
        }
}

static bool take_ranges(const struct rank_shares *s, const struct shares_table *t, struct placement *p)
{
    size_t row = (size_t)s->n_layers + 1;
    uint32_t last = s->n_layers;

    if (t->least[(s->n_ranks - 1) * row + last] == UINT64_MAX)
        return false;
    p->n = s->n_ranks;
    for (uint32_t r = s->n_ranks; r-- > 0;) {
        p->layers[r] = (struct layer_range){ r > 0 ? t->from[r * row + last] : 0, last };
        last = p->layers[r].first;
    }
    return true;
}

bool place_ranks_evenly(const struct rank_shares *shares, struct placement *p, struct err *err)
{
    size_t row = (size_t)shares->n_layers + 1, n = shares->n_ranks * row;
    struct shares_table t = { mem_alloc_array(row, sizeof *t.sum), mem_alloc_array(n, sizeof *t.least),
                              mem_alloc_array(n, sizeof *t.from) };
    bool ok = t.sum && t.least && t.from;

    *p = (struct placement){ 0 };
    if (ok)
        fill_table(shares, &t);
    else
        err_memory(err, "the ranks' layers");
    if (ok && !take_ranges(shares, &t, p))
        ok = err_set(err, ERR_INPUT, "the model's %u layer%s cannot be cut into ranges for %u ranks",
                     shares->n_layers, str_plural(shares->n_layers), shares->n_ranks);
    mem_free(t.sum);
    mem_free(t.least);
    mem_free(t.from);
    return ok;
}

// A layer that reads K and V of another one is on that one's rank.
static bool may_begin(const struct model *m, uint32_t border)
{
    for (uint32_t l = border; l < m->config.n_layers; l++)
        if (m->layer_configs[l].pages_of < border)
            return false;
    return true;
}

static bool place_by_bytes(struct placement *p, const struct model *m, const struct stage_shape *shape,
                           uint32_t n_ranks, struct err *err)
{
    uint32_t n = m->config.n_layers;
    uint64_t *bytes = mem_alloc_array(n, sizeof *bytes);
    bool *begins = mem_alloc_array(n, sizeof *begins);
    bool ok = (bytes && begins) || err_memory(err, "the ranks' layers");

    for (uint32_t l = 0; l < n && ok; l++) {
        struct place_memory need = place_range_memory(m, shape, (struct layer_range){ l, l + 1 });
        bytes[l] = need.weights + need.pages;
        begins[l] = may_begin(m, l);
    }
    ok = ok && place_ranks_evenly(&(struct rank_shares){ bytes, begins, n, n_ranks }, p, err);
    mem_free(bytes);
    mem_free(begins);
    return ok;
}

bool place_ranks(struct placement *p, const char *borders, const struct model *m,
                 const struct stage_shape *shape, uint32_t n_ranks, struct err *err)
{
    bool ok = borders && *borders ? place_stages(p, borders, m->config.n_layers, 1, err)
                                  : place_by_bytes(p, m, shape, n_ranks, err);

    if (ok && p->n != n_ranks)
        return err_set(err, ERR_INPUT, "stages \"%s\" are %u, and there are %u ranks; want a stage for each",
                       borders, p->n, n_ranks);
    return ok && place_borders_fit(p, m, err);
}
