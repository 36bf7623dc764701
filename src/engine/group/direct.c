// direct.c - see direct.h.
#include "engine/group/direct.h"
#include <string.h>
#include "base/log.h"
#include "base/mem.h"

uint32_t direct_most_rows = UINT32_MAX;

// By the most rows of a step, for up to so many ranks.
static const struct {
    uint32_t most_ranks, most_rows;
    enum exchange_kind kind;
} kinds[] = {
    { EXCHANGE_RANKS, UINT32_MAX, EXCHANGE_DEVICE },
};

enum exchange_kind exchange_kind_of(uint32_t n_ranks, uint32_t max_rows)
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
        if (exchange_kind_of(n_ranks, s->buckets[i].max_rows) == EXCHANGE_DEVICE)
            most = s->buckets[i].max_rows;
    return most;
}

// ---- the devices

static bool can_play(const struct device *d)
{
    return d->queue && d->queue->prepare && d->queue->connect && d->queue->pin;
}

static bool connect_all(struct stage *const *ranks, uint32_t n, bool *direct, struct err *err)
{
    *direct = true;
    for (uint32_t i = 0; i < n && *direct; i++)
        *direct = can_play(ranks[i]->device) && device_can_send(ranks[0]->device, ranks[i]->device);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && *direct; k++)
            if (!ranks[i]->device->queue->connect(ranks[i]->device, ranks[k]->device, direct, err))
                return false;
    return true;
}

static uint64_t whole_fours(uint64_t words)
{
    return (words + 3) / 4 * 4;
}

enum { TRIAL_COLS = 1000, TRIAL_SUMS = 2 };

static struct exchange exchange_of(struct stage *const *ranks, uint32_t n, uint32_t rank)
{
    const struct stage *s = ranks[0];
    struct exchange x = { .rank = rank, .n = n, .most_rows = most_rows_of(s, n) };
    uint32_t most_cols = 0;

    for (uint32_t r = 0; r < n; r++) {
        x.part_cols[r] = ranks[r]->parts.weights.head->n_rows;
        most_cols = x.part_cols[r] > most_cols ? x.part_cols[r] : most_cols;
    }
    uint64_t words = (uint64_t)x.most_rows * s->parts.model->config.n_cols;
    x.sum_words = whole_fours(words > TRIAL_COLS ? words : TRIAL_COLS);
    x.part_words = whole_fours((uint64_t)s->shape.max_outputs * most_cols);
    x.token_words = whole_fours(s->shape.max_outputs);
    return x;
}

static bool make_empty(struct buffer *b, struct err *err)
{
    enum { PIECE = 1 << 20 };
    uint32_t *words = mem_alloc(PIECE);
    bool ok = words || err_memory(err, "an inbox");

    for (size_t i = 0; ok && i < PIECE / sizeof *words; i++)
        words[i] = EXCHANGE_EMPTY;
    for (uint64_t at = 0; ok && at < b->bytes; at += PIECE)
        ok = buffer_write(b, at, words, b->bytes - at < PIECE ? b->bytes - at : PIECE, err);
    mem_free(words);
    return ok && b->device->ops->wait(b->device, err);
}

static bool make_inboxes(struct direct *x, struct stage *const *ranks, uint32_t n, struct err *err)
{
    struct device *first = ranks[0]->device;

    x->errors = first->queue->pin(first, n * sizeof *x->errors);
    x->pinned_by = first;
    if (!x->errors)
        return err_memory(err, "what ranks exchange");
    memset(x->errors, 0, n * sizeof *x->errors);
    for (uint32_t i = 0; i < n; i++) {
        x->of[i] = exchange_of(ranks, n, i);
        x->of[i].inbox = &x->inboxes[i];
        x->of[i].error = (uint64_t)(uintptr_t)&x->errors[i];
        if (!buffer_alloc_local(ranks[i]->device, 4 * exchange_words(&x->of[i], i), &x->inboxes[i], err) ||
            !make_empty(&x->inboxes[i], err))
            return err_prefix(err, "what rank %u is sent", i);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            x->of[i].inboxes[k] = (uint64_t)(uintptr_t)x->inboxes[k].native;
    return true;
}

// ---- a trial: two sums of known numbers

struct trial {
    struct tape *tape;
    struct buffer numbers, step;
};

static float trial_number(uint32_t rank, uint32_t i)
{
    return (float)((rank + 1) * (i % 97 + 1)) - 40;
}

static bool trial_make(struct trial *t, const struct exchange *x, struct device *d, struct err *err)
{
    struct step step = { .n_rows = 1, .max_rows = 1, .max_outputs = 1 };
    float numbers[TRIAL_COLS];

    for (uint32_t i = 0; i < TRIAL_COLS; i++)
        numbers[i] = trial_number(x->rank, i);
    if (!(t->tape = tape_create(d, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 })))
        return err_memory(err, "a tape");
    if (!buffer_alloc(d, sizeof numbers, &t->numbers, err) || !buffer_alloc(d, step_bytes(1, 1), &t->step, err))
        return false;
    tape_exchange_on_device(t->tape, x);
    tape_label(t->tape, "trial");
    struct tensor v = tape_tensor_bound(t->tape, TRIAL_COLS, ROWS_STEP, &t->numbers);
    for (uint32_t i = 0; i < TRIAL_SUMS; i++)
        tape_all_reduce(t->tape, v);
    return tape_seal(t->tape, err) && buffer_write(&t->numbers, 0, numbers, sizeof numbers, err) &&
           buffer_write(&t->step, 0, &step, sizeof step, err) && tape_prepare(t->tape, &t->step, err) &&
           d->ops->wait(d, err);
}

static bool trial_is_right(const struct trial *t, uint32_t n, bool *right, struct err *err)
{
    float got[TRIAL_COLS];

    if (!buffer_read(&t->numbers, 0, got, sizeof got, err))
        return false;
    for (uint32_t i = 0; i < TRIAL_COLS; i++) {
        float sum = trial_number(0, i);
        for (uint32_t r = 1; r < n; r++)
            sum += trial_number(r, i);
        *right &= got[i] == sum * (float)n; // n times, and again
    }
    return true;
}

static bool try_all(struct direct *x, uint32_t n, bool *right, struct err *err)
{
    struct trial trials[EXCHANGE_RANKS] = { { 0 } };
    bool ok = true;

    *right = true;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = trial_make(&trials[i], &x->of[i], x->inboxes[i].device, err);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = tape_play(trials[i].tape, &trials[i].step, err);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = trial_is_right(&trials[i], n, right, err);
    for (uint32_t i = 0; i < n; i++) {
        *right &= x->errors[i] == 0;
        tape_destroy(trials[i].tape);
        buffer_release(&trials[i].numbers);
        buffer_release(&trials[i].step);
    }
    return ok;
}

bool direct_open(struct direct *x, struct stage *const *ranks, uint32_t n, struct err *err)
{
    bool direct = false, right = true;

    *x = (struct direct){ 0 };
    if (direct_most_rows == 0 || !connect_all(ranks, n, &direct, err))
        return direct_most_rows == 0;
    if (direct && (!make_inboxes(x, ranks, n, err) || !try_all(x, n, &right, err))) {
        direct_close(x);
        return false;
    }
    if (direct && right) {
        x->n = n;
        for (uint32_t i = 0; i < n; i++)
            ranks[i]->exchange = &x->of[i];
    } else {
        direct_close(x);
    }
    log_line(right ? LOG_INFO : LOG_WARN, "group", "%u ranks exchange %s", n,
             !right   ? "through the host: on the devices it went wrong"
             : direct ? "on their devices"
                      : "through the host");
    return true;
}

void direct_close(struct direct *x)
{
    for (uint32_t i = 0; i < EXCHANGE_RANKS; i++)
        buffer_release(&x->inboxes[i]);
    if (x->pinned_by)
        x->pinned_by->queue->unpin(x->pinned_by, x->errors);
    *x = (struct direct){ 0 };
}

// ---- steps

// Rank 0 is the last to begin, as it is the one that may be watched, command by command.
bool direct_play(struct direct *x, struct stage *const *ranks, struct step *step, struct err *err)
{
    struct bucket *b = NULL;
    bool ok = true;

    step->reserved[STEP_EXCHANGED] = x->n_exchanged;
    for (uint32_t i = 0; i < x->n && ok; i++) {
        b = stage_bucket(ranks[i], step->n_rows, step->n_outputs, err);
        ok = b && stage_step_write(ranks[i], step, err) && tape_prepare(b->tape, &ranks[i]->step, err);
    }
    for (uint32_t i = x->n; i-- > 0 && ok;) {
        b = stage_bucket(ranks[i], step->n_rows, step->n_outputs, err);
        ok = stage_play_segment(ranks[i], b, 0, err) || err_prefix(err, "rank %u of %u", i, x->n);
    }
    if (ok)
        x->n_exchanged += tape_n_exchanges(b->tape);
    return ok;
}

bool direct_check(const struct direct *x, struct stage *const *ranks, struct err *err)
{
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t late = *(volatile uint32_t *)&x->errors[i];
        if (late)
            return err_set(err, ERR_DEVICE, "rank %u of %u (%s) did not answer rank %u (%s) within 2 s",
                           late - 1, x->n, ranks[late - 1]->device->name, i, ranks[i]->device->name);
    }
    return true;
}

uint64_t direct_bytes(const struct direct *x)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < x->n; i++)
        bytes += x->inboxes[i].bytes;
    return bytes;
}
