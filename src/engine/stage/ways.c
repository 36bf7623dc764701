// ways.c - see ways.h. Sizes alone decide: nothing is loaded or measured. Each way is the largest, or the
// least, number for which the layers fit, found by bisection. Layers of several devices fit by rough sums, as
// the planner has them.
#include "engine/stage/ways.h"
#include <math.h>
#include <stdarg.h>
#include "base/err.h"
#include "models/arch.h"

enum { MOST_WAYS = 3, LEAST_PAGES = 16 }; // a context of fewer pages is no way out
static const double LEAST_BITS = 1.5;     // of a weight: no format has fewer

struct ways {
    const struct ways_request *r;
    char *to;
    size_t at;
    uint32_t n;
};

static uint64_t sum_bytes(const struct place_memory *m)
{
    return m->weights + m->pages + m->scratch;
}

static uint64_t range_bytes(const struct ways_request *r, const struct stage_shape *shape,
                            struct layer_range layers)
{
    struct place_memory need = place_range_memory(r->model, shape, layers);

    return sum_bytes(&need);
}

// The layers from `first` on that a device holds end there.
static uint32_t end_of(const struct ways_request *r, const struct stage_shape *shape, uint32_t device,
                       uint32_t first)
{
    uint32_t holds = first, too_many = r->model->config.n_layers + 1;

    while (too_many - holds > 1) {
        uint32_t last = holds + (too_many - holds) / 2;
        if (range_bytes(r, shape, (struct layer_range){ first, last }) <= r->room[device])
            holds = last;
        else
            too_many = last;
    }
    return holds;
}

// An outline of experts elsewhere needs their device.
static struct place_memory whole_need(const struct ways_request *r, const struct stage_shape *shape)
{
    struct place_memory need = place_memory(r->model, shape, r->outline ? r->outline->devices->at[0] : NULL);
    struct outline found;
    struct err unused;

    if (!r->outline || (shape->n_away && !r->outline->devices->experts))
        return need;
    struct outline_request o = *r->outline;
    o.shape = shape;
    if (!outline_stages(&o, &found, &unused))
        return need;
    need.scratch = need.tower_scratch;
    for (uint32_t i = 0; i < o.placement->n; i++)
        need.scratch += found.scratch[i];
    return need;
}

// Each device takes all that it can: if that is not enough, nothing is.
static bool fits(const struct ways_request *r, const struct stage_shape *shape)
{
    uint32_t first = 0;

    if (r->n_devices == 1) {
        struct place_memory whole = whole_need(r, shape);
        return sum_bytes(&whole) <= r->room[0];
    }
    for (uint32_t d = 0; d < r->n_devices && first < r->model->config.n_layers; d++)
        first = end_of(r, shape, d, first);
    return first == r->model->config.n_layers;
}

static void resize(const struct ways_request *r, struct stage_shape *shape, uint32_t n_slots,
                   uint32_t n_pages) // of each slot
{
    uint32_t n_tokens = n_pages * PAGE_TOKENS;

    shape->n_slots = n_slots;
    shape->max_pages = n_pages;
    shape->history_stride = n_tokens < shape->history_stride ? n_tokens : shape->history_stride;
    shape->n_pages = n_slots * n_pages;
    if (shape->n_windows)
        shape->n_windows = place_windows(r->model, shape, true);
}

// The most pages of a sequence, up to those asked for.
static uint32_t most_pages(const struct ways_request *r, struct stage_shape shape, uint32_t n_slots)
{
    uint32_t fit = 0, too_many = shape.max_pages + 1;

    while (too_many - fit > 1) {
        uint32_t n = fit + (too_many - fit) / 2;
        struct stage_shape shorter = shape;
        resize(r, &shorter, n_slots, n);
        if (fits(r, &shorter))
            fit = n;
        else
            too_many = n;
    }
    return fit;
}

static void add(struct ways *w, const char *format, ...) PRINTF_LIKE(2, 3);
static void add(struct ways *w, const char *format, ...)
{
    va_list args;

    if (w->n == MOST_WAYS || w->at >= WAYS_BYTES)
        return;
    w->at += (size_t)snprintf(w->to + w->at, WAYS_BYTES - w->at, "%s", w->n++ ? "; or " : "");
    va_start(args, format);
    if (w->at < WAYS_BYTES)
        w->at += (size_t)vsnprintf(w->to + w->at, WAYS_BYTES - w->at, format, args);
    va_end(args);
}

static void add_smaller_pages(struct ways *w)
{
    struct stage_shape shape = *w->r->shape;
    struct page_shape pages = { 1, w->r->model->config.head_dim, 1, (u16)KV_Q8_0, (u16)KV_Q8_0 };
    bool smaller = shape.k_format != KV_Q8_0 || shape.v_format != KV_Q8_0;

    shape.k_format = shape.v_format = KV_Q8_0;
    if (!smaller || !page_fits(&pages))
        return;
    uint32_t n = most_pages(w->r, shape, shape.n_slots);
    if (n == shape.max_pages)
        add(w, "%s q8_0 %s q8_0", err_option("cache_type_k"), err_option("cache_type_v"));
    else if (n >= LEAST_PAGES)
        add(w, "%s q8_0 %s q8_0 %s %u", err_option("cache_type_k"), err_option("cache_type_v"),
            err_option("n_context"), n * PAGE_TOKENS);
}

static void add_fewer_sequences(struct ways *w)
{
    struct stage_shape shape = *w->r->shape;
    uint32_t n = shape.n_slots;

    do
        resize(w->r, &shape, --n, shape.max_pages);
    while (n > 0 && !fits(w->r, &shape));
    if (n > 0)
        add(w, "%u sequence%s", n, str_plural(n));
}

static void add_shorter_context(struct ways *w)
{
    uint32_t n = most_pages(w->r, *w->r->shape, w->r->shape->n_slots);

    if (n >= LEAST_PAGES && n < w->r->shape->max_pages)
        add(w, "%s %u", err_option("n_context"), n * PAGE_TOKENS);
}

static bool fits_away(const struct ways_request *r, uint32_t n_away)
{
    struct stage_shape shape = *r->shape;

    shape.n_away = n_away;
    struct place_memory away =
        place_experts_memory(r->model, &shape, (struct layer_range){ 0, r->model->config.n_layers });
    return sum_bytes(&away) <= r->host_bytes && fits(r, &shape);
}

uint32_t ways_fewest_away(const struct ways_request *r)
{
    uint32_t n_layers = r->model->config.n_layers;
    bool can_leave = r->model->n_experts > 0 && r->model->arch->experts && r->host_bytes > 0;

    for (uint32_t n = r->shape->n_away + 1; can_leave && n <= n_layers; n++)
        if (fits_away(r, n))
            return n;
    return 0;
}

static void add_experts(struct ways *w)
{
    uint32_t n = ways_fewest_away(w->r);

    if (n)
        add(w, "%s cpu:%u", err_option("experts"), n);
}

// What weights may take beside the rest, and the bits that this leaves for each.
static void add_smaller_format(struct ways *w)
{
    struct place_memory need = whole_need(w->r, w->r->shape);
    uint64_t room = 0, rest = need.pages + w->r->n_devices * need.scratch;

    for (uint32_t d = 0; d < w->r->n_devices; d++)
        room += w->r->room[d];
    if (room <= rest || need.weights == 0)
        return;
    double now = 8.0 * (double)w->r->model->weight_bytes / (double)w->r->model->n_parameters,
           bits = now * (double)(room - rest) / (double)need.weights;
    bits = floor(10 * bits) / 10;
    if (bits >= LEAST_BITS && bits < now)
        add(w, "a format of at most %.1f bits a weight (this one has %.1f)", bits, now);
}

bool ways_fit(const struct ways_request *r)
{
    return fits(r, r->shape);
}

void ways_out(const struct ways_request *r, char to[WAYS_BYTES])
{
    struct ways w = { r, to, 0, 0 };

    to[0] = 0;
    add_smaller_pages(&w);
    add_fewer_sequences(&w);
    add_shorter_context(&w);
    add_experts(&w);
    add_smaller_format(&w);
}

struct ways_request ways_request_of(const struct devices *d, const struct model *m,
                                    const struct stage_shape *shape, uint64_t room[MAX_DEVICES])
{
    for (uint32_t i = 0; i < d->n; i++) {
        bool again = false; // the memory of a device before it, which takes all that it can
        for (uint32_t k = 0; k < i; k++)
            again |= devices_share_memory(d->at[k], d->at[i]);
        room[i] = again ? 0 : place_room(d->at[i], shape->memory_share);
    }
    return (struct ways_request){ m, shape, room, d->n, devices_host_bytes(d), NULL };
}
