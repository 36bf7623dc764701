// exchange_rig.h - GPUs as ranks, each with a tape of all-reduces and what follows in a head, for the test of
// exchanges and their bench.
#pragma once
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "device/exchange_ranks.h"
#include "device/tape_exchange.h"
#include "ops/cuda_table.h"

enum { RIG_MOST = 4, RIG_STRIDE = 32 }; // ranks; tokens of a slot's history

struct exchange_rig {
    uint32_t n;
    struct device *devices[RIG_MOST];
    struct exchange_shape shape;
    struct exchange_ranks ranks;
    uint32_t n_exchanged;
};

struct rig_tape {
    struct tape_limits limits;
    uint32_t n_sums;
    bool has_head;
    struct tape *tapes[RIG_MOST];
    struct buffer v[RIG_MOST], parts[RIG_MOST], histories[RIG_MOST], steps[RIG_MOST], whole, results;
    struct step *step;
};

// As many GPUs as asked for. False: there are fewer.
static bool rig_open(struct exchange_rig *r, uint32_t n, const struct exchange_shape *shape, struct err *err)
{
    *r = (struct exchange_rig){ .shape = *shape };
    r->shape.n = n;
    for (; r->n < n; r->n++)
        if (!(r->devices[r->n] = cuda_open(r->n, &cuda_table, err)))
            return false;
    return exchange_open(&r->ranks, r->devices, &r->shape, err);
}

static void rig_close(struct exchange_rig *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        r->devices[i]->ops->wait(r->devices[i], NULL);
    exchange_close(&r->ranks);
    for (uint32_t i = 0; i < r->n; i++)
        device_close(r->devices[i]);
}

static bool rig_make_buffers(struct exchange_rig *r, struct rig_tape *t, uint32_t i, struct err *err)
{
    struct device *d = r->devices[i];
    uint64_t outputs = t->limits.max_outputs;
    uint32_t all = 0;

    for (uint32_t k = 0; k < r->n; k++)
        all += r->shape.part_cols[k];
    return buffer_alloc(d, (uint64_t)t->limits.max_rows * r->shape.n_cols * 4, &t->v[i], err) &&
           buffer_alloc(d, outputs * r->shape.part_cols[i] * 4, &t->parts[i], err) &&
           buffer_alloc(d, (uint64_t)t->limits.max_rows * RIG_STRIDE * 4, &t->histories[i], err) &&
           buffer_alloc(d, step_bytes(t->limits.max_rows, t->limits.max_outputs), &t->steps[i], err) &&
           (i > 0 || (buffer_alloc(d, outputs * all * 4, &t->whole, err) &&
                      buffer_alloc(d, outputs * 4, &t->results, err)));
}

static bool rig_record(struct exchange_rig *r, struct rig_tape *t, uint32_t i, struct err *err)
{
    struct tape *tape = t->tapes[i] = tape_create(r->devices[i], t->limits);
    uint32_t all = 0;

    if (!tape || !rig_make_buffers(r, t, i, err))
        return false;
    for (uint32_t k = 0; k < r->n; k++)
        all += r->shape.part_cols[k];
    tape_exchange_on_device(tape, r->ranks.n ? &r->ranks.of[i] : NULL);
    tape_label(tape, "sum");
    struct tensor v = tape_tensor_bound(tape, r->shape.n_cols, ROWS_STEP, &t->v[i]);
    for (uint32_t k = 0; k < t->n_sums; k++)
        tape_all_reduce(tape, v);
    if (t->has_head) {
        tape_label(tape, "head");
        struct tensor part = tape_tensor_bound(tape, r->shape.part_cols[i], ROWS_OUTPUT, &t->parts[i]);
        struct tensor whole = { 0 };
        if (i == 0)
            whole = tape_tensor_bound(tape, all, ROWS_OUTPUT, &t->whole);
        tape_all_gather(tape, part, whole);
        tape_tell(tape, i == 0 ? &t->results : NULL, &t->histories[i], RIG_STRIDE);
    }
    return tape_seal(tape, err);
}

static bool rig_tape_make(struct exchange_rig *r, struct rig_tape *t, struct err *err)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!rig_record(r, t, i, err))
            return false;
    t->step = mem_alloc(step_bytes(t->limits.max_rows, t->limits.max_outputs));
    *t->step = (struct step){ .max_rows = t->limits.max_rows, .max_outputs = t->limits.max_outputs };
    return true;
}

static void rig_tape_free(struct exchange_rig *r, struct rig_tape *t)
{
    for (uint32_t i = 0; i < r->n; i++) {
        tape_destroy(t->tapes[i]);
        buffer_release(&t->v[i]);
        buffer_release(&t->parts[i]);
        buffer_release(&t->histories[i]);
        buffer_release(&t->steps[i]);
    }
    buffer_release(&t->whole);
    buffer_release(&t->results);
    mem_free(t->step);
}

// Submits the step on the first n ranks.
static bool rig_play(struct exchange_rig *r, struct rig_tape *t, uint32_t n, struct err *err)
{
    bool at_once;

    t->step->reserved[STEP_EXCHANGED] = r->n_exchanged;
    for (uint32_t i = 0; i < r->n; i++)
        if (!buffer_write(&t->steps[i], 0, t->step, step_bytes(t->limits.max_rows, t->limits.max_outputs),
                          err) ||
            !tape_prepare(t->tapes[i], &t->steps[i], &at_once, err))
            return false;
    for (uint32_t i = 0; i < n; i++)
        if (!tape_play(t->tapes[i], &t->steps[i], err))
            return false;
    r->n_exchanged += tape_n_exchanges(t->tapes[0]);
    return true;
}

static bool rig_wait(struct exchange_rig *r, struct err *err)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->devices[i]->ops->wait(r->devices[i], err))
            return false;
    return exchange_check(&r->ranks, err);
}
