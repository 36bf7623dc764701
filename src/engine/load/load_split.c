// load_split.c - see load_split.h.
#include "engine/load/load_split.h"
#include <string.h>
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/communicator.h"
#include "device/exchange_ranks.h"
#include "engine/group/direct.h"
#include "engine/group/group.h"
#include "engine/stage/place.h"
#include "models/split/model_part.h"

STATIC_ASSERT((int)EXCHANGE_RANKS <= (int)MAX_DEVICES); // each rank is a device

bool load_split_is_asked(const struct ingot_engine_options *options)
{
    return options->n_tensor_parallel > 1;
}

static bool is_given(const char *option)
{
    return option && *option;
}

static bool check_options(const struct engine_loaded *l, struct err *err)
{
    const struct ingot_engine_options *o = &l->options;
    const char *what = l->remote                                                 ? "mpirun"
                       : is_given(o->stages)                                     ? err_option("stages")
                       : is_given(o->experts) && strcmp(o->experts, "none") != 0 ? err_option("experts")
                                                                                 : NULL;

    if (what)
        return err_set(err, ERR_UNSUPPORTED, "%s does not work with %s yet; leave out one of them",
                       err_option("n_tensor_parallel"), what);
    return o->n_tensor_parallel <= EXCHANGE_RANKS ||
           err_set(err, ERR_INPUT, "%s is %u; want at most %d", err_option("n_tensor_parallel"),
                   o->n_tensor_parallel, EXCHANGE_RANKS);
}

bool load_split_make(struct engine_loaded *l, struct err *err)
{
    uint32_t n = l->options.n_tensor_parallel;

    if (!load_split_is_asked(&l->options))
        return true;
    if (!check_options(l, err))
        return false;
    l->parts = mem_alloc_array(n, sizeof *l->parts);
    if (!l->parts)
        return err_memory(err, "the ranks' parts of the model");
    for (; l->n_parts < n; l->n_parts++)
        if (!model_part_make(&l->parts[l->n_parts], &l->model, l->n_parts, n, err))
            return false;
    return true;
}

bool load_split_check_devices(const struct engine_loaded *l, struct err *err)
{
    const struct devices *d = &l->devices;

    if (!l->n_parts)
        return true;
    CHECK(d->n == l->n_parts);
    for (uint32_t i = 1; i < d->n; i++)
        if (!devices_are_alike(d->at[0], d->at[i]))
            return err_set(err, ERR_INPUT,
                           "%s %u on %s and %s, which are not alike; want devices of one kind",
                           err_option("n_tensor_parallel"), l->n_parts, d->at[0]->name, d->at[i]->name);
    return true;
}

struct stage_shape load_split_shape(const struct engine_loaded *l, const struct stage_shape *shape,
                                    uint32_t i)
{
    struct stage_shape own = *shape;

    own.adapter_bytes = adapters_bytes(&l->adapters, &l->parts[i]);
    if (i > 0) { // the tower is the first rank's
        own.eyes_weights = 0;
        own.eyes_scratch = shape->eyes_pool;
    }
    return own;
}

static bool exchanges_by_itself(const struct devices *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (!d->at[i]->queue || !d->at[i]->queue->prepare ||
            (i > 0 && strcmp(d->at[i]->name, d->at[0]->name) == 0))
            return false;
    return true;
}

uint64_t load_split_inbox(const struct engine_loaded *l, const struct stage_shape *shape, uint32_t i)
{
    struct exchange_shape x = { .n = l->n_parts,
                                .most_rows = shape->max_rows,
                                .n_cols = l->model.config.n_cols,
                                .max_outputs = shape->max_outputs };

    for (uint32_t r = 0; r < l->n_parts; r++)
        x.part_cols[r] = (uint32_t)MODEL_TENSOR(&l->parts[r], head)->dims[0];
    return exchanges_by_itself(&l->devices) ? exchange_inbox_bytes(&x, i) : 0;
}

uint64_t load_split_weights(const struct engine_loaded *l, const struct stage_shape *shape)
{
    struct layer_range all = { 0, l->model.config.n_layers };
    uint64_t sum = 0;

    for (uint32_t i = 0; i < l->n_parts; i++) {
        struct stage_shape own = load_split_shape(l, shape, i);
        sum += place_range_memory(&l->parts[i], &own, all).weights;
    }
    return sum;
}

// The columns of the logits that each rank has.
static struct communicator_shape communicator_shape(const struct engine_loaded *l)
{
    struct communicator_shape shape = { .n = l->n_parts, .max_rows = l->max_outputs };

    for (uint32_t i = 0; i < l->n_parts; i++)
        shape.part_cols[i] = (uint32_t)MODEL_TENSOR(&l->parts[i], head)->dims[0];
    return shape;
}

// A row's bits depend on no other row: of more than two ranks a communicator does not promise that.
static bool keeps_rows_apart(const struct engine_loaded *l, struct err *err)
{
    return !l->options.invariant || l->n_parts <= 2 ||
           err_set(err, ERR_UNSUPPORTED, "%s, and more than two ranks", err_option("invariant"));
}

static bool all_reach_each_other(struct device *const *ranks, uint32_t n)
{
    bool direct = device_can_send(ranks[0], ranks[0]);

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && direct; k++)
            direct = ranks[i]->queue->connect(ranks[i], ranks[k], &direct, NULL) && direct;
    return direct;
}

// A communicator takes memory of every device.
static bool wants_communicator(const struct engine_loaded *l)
{
    return !all_reach_each_other(l->devices.at, l->n_parts) ||
           direct_kind_of(l->n_parts, l->max_rows, true) == EXCHANGE_COMMUNICATOR;
}

void load_split_connect(struct engine_loaded *l)
{
    struct device *const *ranks = l->devices.at;
    const struct device_queue *queue = ranks[0]->queue;
    struct err why = { 0 };

    if (!l->n_parts || !queue || !queue->communicator || !wants_communicator(l))
        return;
    struct communicator_shape shape = communicator_shape(l);
    if (keeps_rows_apart(l, &why))
        l->devices.communicator = queue->communicator(ranks, &shape, &why);
    if (!l->devices.communicator)
        log_line(why.code == ERR_UNSUPPORTED ? LOG_INFO : LOG_WARN, "group", "the ranks do without NCCL: %s",
                 why.message);
}

bool load_split_stages(struct engine_loaded *l, const struct stage_shape *shape, const struct buffer *pool,
                       struct stage_progress *progress, struct err *err)
{
    struct group_plan plan = { .parts = l->parts,
                               .devices = l->devices.at,
                               .n = l->n_parts,
                               .shape = shape,
                               .pool = pool,
                               .adapters = &l->adapters,
                               .communicator = l->devices.communicator };

    return l->n_parts == 0 || group_create(&l->group, &l->stages[0], &plan, progress, err);
}

void load_split_release(struct engine_loaded *l)
{
    for (uint32_t i = 0; i < l->n_parts; i++)
        model_part_release(&l->parts[i]);
    mem_free(l->parts);
    l->parts = NULL;
    l->n_parts = 0;
}
