// direct.c - see direct.h.
#include "engine/group/direct.h"
#include "base/log.h"
#include "device/communicator.h"
#include "device/tape_exchange.h"

uint32_t direct_most_rows = UINT32_MAX;

// By the most rows of a step, for up to so many ranks: the fastest (measured for two ranks:
// bench/results/2026-11-28-nccl.md). Where GPUs do not reach each other's memory, or direct_most_rows forbids
// it, a communicator takes its place, and the host's memory where there is none.
static const struct {
    uint32_t most_ranks, most_rows;
    enum exchange_kind kind;
} kinds[] = {
    { EXCHANGE_RANKS, UINT32_MAX, EXCHANGE_DEVICE },
};

enum exchange_kind direct_kind_of(uint32_t n_ranks, uint32_t max_rows, bool has_communicator)
{
    enum exchange_kind kind = EXCHANGE_DEVICE;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && has_communicator; i++)
        if (n_ranks <= kinds[i].most_ranks && max_rows <= kinds[i].most_rows) {
            kind = kinds[i].kind;
            break;
        }
    if (kind == EXCHANGE_DEVICE && max_rows > direct_most_rows)
        kind = has_communicator ? EXCHANGE_COMMUNICATOR : EXCHANGE_HOST;
    return kind;
}

// The most rows that devices add up, of the sizes that tapes have.
static uint32_t most_rows_of(const struct stage *s, uint32_t n_ranks, bool has_communicator)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < N_BUCKETS; i++)
        if (direct_kind_of(n_ranks, s->buckets[i].max_rows, has_communicator) == EXCHANGE_DEVICE)
            most = s->buckets[i].max_rows;
    return most;
}

// What -v says.
static void tell(const struct direct *x, uint32_t n, const struct communicator *c)
{
    uint32_t most_rows = x->ranks.n ? x->ranks.of[0].most_rows : 0;

    if (x->ranks.n && c)
        log_line(LOG_INFO, "group", "%u ranks exchange on their devices, of more than %u rows by %s", n,
                 most_rows, c->name);
    else
        log_line(LOG_INFO, "group", "%u ranks exchange %s%s", n,
                 x->ranks.n ? "on their devices"
                 : c        ? "by "
                            : "through the host",
                 !x->ranks.n && c ? c->name : "");
}

bool direct_open(struct direct *x, struct stage *const *ranks, uint32_t n,
                 const struct communicator *communicator, struct err *err)
{
    const struct stage *first = ranks[0];
    struct exchange_shape shape = { .n = n,
                                    .most_rows = most_rows_of(first, n, communicator != NULL),
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
    tell(x, n, communicator);
    return true;
}

void direct_close(struct direct *x)
{
    exchange_close(&x->ranks);
}

bool direct_ready(struct direct *x, struct stage *const *ranks, struct step *step, bool *at_once,
                  struct err *err)
{
    *at_once = true;
    step->reserved[STEP_EXCHANGED] = x->n_exchanged;
    for (uint32_t i = 0; i < x->ranks.n; i++) {
        struct bucket *b = stage_bucket(ranks[i], step->n_rows, step->n_outputs, err);
        bool one = false;
        if (!b || !tape_prepare(b->tape, &ranks[i]->step, &one, err))
            return err_prefix(err, "rank %u of %u", i, x->ranks.n);
        *at_once &= one && tape_n_segments(b->tape) == 1;
    }
    return true;
}

bool direct_play(struct direct *x, struct stage *const *ranks, const struct step *step, bool first,
                 struct err *err)
{
    // rank 0 is the last to begin, as it is the one that may be watched, command by command
    for (uint32_t i = x->ranks.n; i-- > !first;)
        if (!stage_step_write(ranks[i], step, err) ||
            !stage_play_segment(ranks[i], stage_bucket(ranks[i], step->n_rows, step->n_outputs, err), 0, err))
            return err_prefix(err, "rank %u of %u", i, x->ranks.n);
    return true;
}

void direct_count(struct direct *x, const struct tape *played)
{
    x->n_exchanged += tape_n_exchanges(played);
}

uint64_t direct_bytes(const struct direct *x)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < x->ranks.n; i++)
        bytes += x->ranks.inboxes[i].bytes;
    return bytes;
}
