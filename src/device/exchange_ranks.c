// exchange_ranks.c - the ranks' inboxes, and whether exchanging by themselves works on these devices; see
// exchange_ranks.h.
//
// It is tried with two sums of known numbers, as some machines announce access to a peer's memory and store
// wrongly.
#include "device/exchange_ranks.h"
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "device/tape_exchange.h"

enum { TRIAL_COLS = 1000, TRIAL_SUMS = 2 };

static bool can_play(const struct device *d)
{
    return d->queue && d->queue->prepare && d->queue->connect && d->queue->pin;
}

static bool connect_all(struct device *const *devices, uint32_t n, bool *direct, struct err *err)
{
    *direct = true;
    for (uint32_t i = 0; i < n && *direct; i++)
        *direct = can_play(devices[i]) && device_can_send(devices[0], devices[i]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && *direct; k++)
            if (!devices[i]->queue->connect(devices[i], devices[k], direct, err))
                return false;
    return true;
}

static uint64_t whole_fours(uint64_t words)
{
    return (words + 3) / 4 * 4;
}

static struct exchange exchange_of(const struct exchange_shape *shape, uint32_t rank)
{
    struct exchange x = { .rank = rank, .n = shape->n, .most_rows = shape->most_rows };
    uint64_t words = (uint64_t)shape->most_rows * shape->n_cols;
    uint32_t most_cols = 0;

    for (uint32_t r = 0; r < shape->n; r++) {
        x.part_cols[r] = shape->part_cols[r];
        most_cols = x.part_cols[r] > most_cols ? x.part_cols[r] : most_cols;
    }
    x.sum_words = whole_fours(words > TRIAL_COLS ? words : TRIAL_COLS);
    x.part_words = whole_fours((uint64_t)shape->max_outputs * most_cols);
    x.token_words = whole_fours(shape->max_outputs);
    return x;
}

uint64_t exchange_inbox_bytes(const struct exchange_shape *shape, uint32_t rank)
{
    struct exchange x = exchange_of(shape, rank);

    return 4 * exchange_words(&x, rank);
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

static bool make_inboxes(struct exchange_ranks *x, struct device *const *devices,
                         const struct exchange_shape *shape, struct err *err)
{
    uint32_t n = shape->n;

    x->pinned_by = devices[0];
    x->errors = devices[0]->queue->pin(devices[0], n * sizeof *x->errors);
    if (!x->errors)
        return err_memory(err, "what ranks exchange");
    memset(x->errors, 0, n * sizeof *x->errors);
    for (uint32_t i = 0; i < n; i++) {
        x->of[i] = exchange_of(shape, i);
        x->of[i].inbox = &x->inboxes[i];
        x->of[i].error = (uint64_t)(uintptr_t)&x->errors[i];
        if (!buffer_alloc_local(devices[i], exchange_inbox_bytes(shape, i), &x->inboxes[i], err) ||
            !make_empty(&x->inboxes[i], err))
            return err_prefix(err, "what rank %u is sent", i);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
            x->of[i].inboxes[k] = (uint64_t)(uintptr_t)x->inboxes[k].native;
    return true;
}

// ---- a trial: two sums of known numbers

struct sum_trial {
    struct tape *tape;
    struct buffer numbers, step;
};

static float trial_number(uint32_t rank, uint32_t i)
{
    return (float)((rank + 1) * (i % 97 + 1)) - 40;
}

static bool trial_make(struct sum_trial *t, const struct exchange *x, struct device *d, struct err *err)
{
    struct step step = { .n_rows = 1, .max_rows = 1, .max_outputs = 1 };
    float numbers[TRIAL_COLS];
    bool at_once;

    for (uint32_t i = 0; i < TRIAL_COLS; i++)
        numbers[i] = trial_number(x->rank, i);
    if (!(t->tape = tape_create(d, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 })))
        return err_memory(err, "a tape");
    if (!buffer_alloc(d, sizeof numbers, &t->numbers, err) ||
        !buffer_alloc(d, step_bytes(1, 1), &t->step, err))
        return false;
    tape_exchange_on_device(t->tape, x);
    tape_label(t->tape, "trial");
    struct tensor v = tape_tensor_bound(t->tape, TRIAL_COLS, ROWS_STEP, &t->numbers);
    for (uint32_t i = 0; i < TRIAL_SUMS; i++)
        tape_all_reduce(t->tape, v);
    return tape_seal(t->tape, err) && buffer_write(&t->numbers, 0, numbers, sizeof numbers, err) &&
           buffer_write(&t->step, 0, &step, sizeof step, err) &&
           tape_prepare(t->tape, &t->step, &at_once, err) && d->ops->wait(d, err);
}

static bool trial_is_right(const struct sum_trial *t, uint32_t n, bool *right, struct err *err)
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

static bool try_all(struct exchange_ranks *x, uint32_t n, bool *right, struct err *err)
{
    struct sum_trial trials[EXCHANGE_RANKS] = { { 0 } };
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

bool exchange_open(struct exchange_ranks *x, struct device *const *devices,
                   const struct exchange_shape *shape, struct err *err)
{
    bool direct = false, right = true;

    *x = (struct exchange_ranks){ 0 };
    if (!connect_all(devices, shape->n, &direct, err))
        return false;
    if (direct && (!make_inboxes(x, devices, shape, err) || !try_all(x, shape->n, &right, err))) {
        exchange_close(x);
        return false;
    }
    if (direct && right)
        x->n = shape->n;
    else
        exchange_close(x);
    if (!right)
        log_line(LOG_WARN, "exchange",
                 "%s and the others send each other wrong numbers; ranks exchange through the host",
                 devices[0]->name);
    return true;
}

void exchange_close(struct exchange_ranks *x)
{
    for (uint32_t i = 0; i < EXCHANGE_RANKS; i++)
        buffer_release(&x->inboxes[i]);
    if (x->errors)
        x->pinned_by->queue->unpin(x->pinned_by, x->errors);
    *x = (struct exchange_ranks){ 0 };
}

bool exchange_check(const struct exchange_ranks *x, struct err *err)
{
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t late = *(volatile uint32_t *)&x->errors[i];
        if (late)
            return err_set(err, ERR_DEVICE, "rank %u of %u (%s) did not answer rank %u (%s) within 2 s",
                           late - 1, x->n, x->inboxes[late - 1].device->name, i, x->inboxes[i].device->name);
    }
    return true;
}
