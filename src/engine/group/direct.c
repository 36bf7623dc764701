// direct.c - see direct.h.
#include "engine/group/direct.h"
#include "device/tape_exchange.h"
#include "base/log.h"

uint32_t direct_most_rows = UINT32_MAX;

// By the most rows of a step, for up to so many ranks.
static const struct {
    uint32_t most_ranks, most_rows;
    enum exchange_kind kind;
} kinds[] = {
    { EXCHANGE_RANKS, UINT32_MAX, EXCHANGE_DEVICE },
};

enum exchange_kind direct_kind_of(uint32_t n_ranks, uint32_t max_rows)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n_ranks <= kinds[i].most_ranks && max_rows <= kinds[i].most_rows)
            return max_rows <= direct_most_rows ? kinds[i].kind : EXCHANGE_HOST;
    return EXCHANGE_HOST;
}

// The most rows that devices add up, of the sizes that tapes have.
static uint32_t most_rows_of(const struct stage *s, uint32_t n_ranks)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < N_BUCKETS; i++)
        if (direct_kind_of(n_ranks, s->buckets[i].max_rows) == EXCHANGE_DEVICE)
            most = s->buckets[i].max_rows;
    return most;
}

bool direct_open(struct direct *x, struct stage *const *ranks, uint32_t n, struct err *err)
{
    const struct stage *first = ranks[0];
    struct exchange_shape shape = { .n = n,
                                    .most_rows = most_rows_of(first, n),
                                    .n_cols = first->parts.model->config.n_cols,
                                    .max_outputs = first->shape.max_outputs };
    struct device *devices[EXCHANGE_RANKS];

    *x = (struct direct){ 0 };
    for (uint32_t i = 0; i < n; i++) {
        devices[i] = ranks[i]->device;
        shape.part_cols[i] = ranks[i]->parts.weights.head->n_rows;
    }
    if (direct_most_rows > 0 && !exchange_open(&x->ranks, devices, &shape, err))
        return false;
    for (uint32_t i = 0; i < x->ranks.n; i++)
        ranks[i]->exchange = &x->ranks.of[i];
    log_line(LOG_INFO, "group", "%u ranks exchange %s", n,
             x->ranks.n ? "on their devices" : "through the host");
    return true;
}

void direct_close(struct direct *x)
{
    exchange_close(&x->ranks);
}

static struct bucket *get_ready(struct stage *s, const struct step *step, struct err *err)
{
    struct bucket *b = stage_bucket(s, step->n_rows, step->n_outputs, err);

    return b && stage_step_write(s, step, err) && tape_prepare(b->tape, &s->step, err) ? b : NULL;
}

bool direct_play_others(struct direct *x, struct stage *const *ranks, struct step *step, struct err *err)
{
    struct bucket *b[EXCHANGE_RANKS] = { NULL };

    step->reserved[STEP_EXCHANGED] = x->n_exchanged;
    for (uint32_t i = 1; i < x->ranks.n; i++)
        if (!(b[i] = get_ready(ranks[i], step, err)))
            return err_prefix(err, "rank %u of %u", i, x->ranks.n);
    for (uint32_t i = 1; i < x->ranks.n; i++)
        if (!stage_play_segment(ranks[i], b[i], 0, err))
            return err_prefix(err, "rank %u of %u", i, x->ranks.n);
    x->n_exchanged += tape_n_exchanges(b[1]->tape);
    return true;
}

// Rank 0 is the last to begin, as it is the one that may be watched, command by command.
bool direct_play(struct direct *x, struct stage *const *ranks, struct step *step, struct err *err)
{
    step->reserved[STEP_EXCHANGED] = x->n_exchanged;
    const struct bucket *b = get_ready(ranks[0], step, err);

    return b && direct_play_others(x, ranks, step, err) &&
           (stage_play_segment(ranks[0], b, 0, err) || err_prefix(err, "rank 0 of %u", x->ranks.n));
}

uint64_t direct_bytes(const struct direct *x)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < x->ranks.n; i++)
        bytes += x->ranks.inboxes[i].bytes;
    return bytes;
}
