// place.c - see place.h.
#include "engine/stage/place.h"
#include "base/log.h"
#include "models/arch.h"

uint32_t place_stages(const char *text, uint32_t n_layers, struct layer_range ranges[MAX_STAGES],
                      struct err *err)
{
    struct str rest = str_from(text ? text : "");
    uint32_t n = 0, first = 0;

    while (rest.n > 0) {
        size_t comma = str_find(rest, STR(","));
        size_t end = comma == SIZE_MAX ? rest.n : comma;
        uint64_t at;
        if (!str_to_u64(str_from_to(rest, 0, end), &at) || at <= first || at >= n_layers ||
            n + 2 > MAX_STAGES) {
            err_set(err, ERR_INPUT,
                    "stages \"%s\": want up to %d rising layer numbers from 1 to %u, as in 4,8", text,
                    MAX_STAGES - 1, n_layers - 1);
            return 0;
        }
        ranges[n++] = (struct layer_range){ first, (uint32_t)at };
        first = (uint32_t)at;
        rest = str_from_to(rest, end + (comma != SIZE_MAX), rest.n);
    }
    ranges[n++] = (struct layer_range){ first, n_layers };
    return n;
}

struct place_memory place_memory(const struct model *m, const struct stage_shape *shape)
{
    const struct model_config *c = &m->config;
    uint64_t row = 8ull * c->n_cols + 3ull * c->n_ffn + 4ull * c->n_heads * c->head_dim +
                   4ull * c->n_kv_heads * c->head_dim;
    struct model_page page = model_page_bytes(c, shape->k_format, shape->v_format);

    if (m->arch->scratch_cols)
        row += m->arch->scratch_cols(m);
    return (struct place_memory){
        .weights = m->weight_bytes,
        .pages = (uint64_t)c->n_layers * shape->n_pages * (page.k + page.v),
        .scratch = 4 * (shape->max_rows * row + 4ull * shape->max_outputs * c->n_vocab),
    };
}

bool place_check(const struct place_memory *need, struct device *d, struct err *err)
{
    const double gib = 1 << 30;
    struct device_info info = { 0 };
    uint64_t total = need->weights + need->pages + need->scratch;

    d->ops->info(d, &info);
    uint64_t room =
        d->queue ? info.free_bytes : info.memory_bytes; // the host's free_bytes counts the page cache as used
    log_line(LOG_INFO, "place",
             "%s: weights %.2f GiB, pages %.2f GiB, scratch %.2f GiB; %.2f GiB free of %.2f", d->name,
             (double)need->weights / gib, (double)need->pages / gib, (double)need->scratch / gib,
             (double)info.free_bytes / gib, (double)info.memory_bytes / gib);
    if (total <= room)
        return true;
    return err_set(err, ERR_MEMORY,
                   "needs %.2f GiB (weights %.2f, KV pages %.2f, scratch %.2f) and %s has %.2f free of %.2f; "
                   "use a smaller "
                   "model, a shorter context or fewer sequences",
                   (double)total / gib, (double)need->weights / gib, (double)need->pages / gib,
                   (double)need->scratch / gib, d->name, (double)info.free_bytes / gib,
                   (double)info.memory_bytes / gib);
}
