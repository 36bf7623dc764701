// ranks_rig.h - ranks on GPUs that exchange without a model: by their communicator or in the host's memory.
// For tests and benches.
#pragma once
#include <string.h>
#include "base/thread_pool.h"
#include "device/communicator.h"
#include "device/cuda/nccl.h"
#include "device/tape.h"
#include "engine/group/collective.h"
#include "ops/cuda_table.h"

struct ranks_rig {
    uint32_t n, n_cols, n_vocab, most_rows; // set before ranks_rig_open
    uint32_t n_sums;                        // of an exchange; 0: one, and the logits
    struct device *devices[EXCHANGE_RANKS];
    struct stage stages[EXCHANGE_RANKS], *at[EXCHANGE_RANKS];
    struct model model;
    struct weight heads[EXCHANGE_RANKS];
    struct tape *tapes[EXCHANGE_RANKS]; // an all-reduce, and a gather
    struct thread_pool *threads;
    struct collective collective;
    struct step step;
    bool ok[EXCHANGE_RANKS];
    struct err errs[EXCHANGE_RANKS];
};

static inline bool ranks_rig_record(struct ranks_rig *r, uint32_t i, struct err *err)
{
    struct stage *s = r->at[i];
    struct tape *t = r->tapes[i] =
        tape_create(s->device, (struct tape_limits){ .max_rows = r->most_rows, .max_outputs = r->most_rows });
    struct tensor none = { 0 };

    if (!t)
        return err_memory(err, "a tape");
    tape_all_reduce(t, tape_tensor_bound(t, r->n_cols, ROWS_STEP, &s->sums));
    struct tensor part = tape_tensor_bound(t, r->heads[i].n_rows, ROWS_OUTPUT, &s->head_part);
    tape_all_gather(t, part, i ? none : tape_tensor_bound(t, r->n_vocab, ROWS_OUTPUT, &s->logits));
    return tape_seal(t, err);
}

static inline bool ranks_rig_rank(struct ranks_rig *r, uint32_t i, struct err *err)
{
    struct stage *s = r->at[i] = &r->stages[i];
    uint64_t rows_bytes = r->most_rows * sizeof(float);

    s->device = r->devices[i] = cuda_open(i, &cuda_table, err);
    r->heads[i].n_rows = r->n_vocab * (i + 1) / r->n - r->n_vocab * i / r->n;
    s->shape.max_rows = r->most_rows;
    s->parts.model = &r->model;
    s->parts.weights.head = &r->heads[i];
    return s->device && buffer_alloc(s->device, rows_bytes * r->n_cols, &s->sums, err) &&
           buffer_alloc(s->device, rows_bytes * r->heads[i].n_rows, &s->head_part, err) &&
           (i > 0 || buffer_alloc(s->device, rows_bytes * r->n_vocab, &s->logits, err)) &&
           ranks_rig_record(r, i, err);
}

static inline bool ranks_rig_open(struct ranks_rig *r, bool by_nccl, struct err *err)
{
    struct communicator_shape shape = { .n = r->n, .max_rows = r->most_rows };

    r->model.config.n_cols = r->n_cols;
    r->model.config.n_vocab = r->n_vocab;
    for (uint32_t i = 0; i < r->n; i++)
        if (!ranks_rig_rank(r, i, err))
            return false;
    for (uint32_t i = 0; i < r->n; i++)
        shape.part_cols[i] = r->heads[i].n_rows;
    if (!(r->threads = thread_pool_create(r->n)))
        return err_memory(err, "threads");
    r->collective = (struct collective){ .ranks = r->at, .n = r->n, .threads = r->threads };
    return (!by_nccl || (r->collective.communicator = nccl_open(r->devices, &shape, err))) &&
           collective_create(&r->collective, err);
}

static inline void ranks_rig_close(struct ranks_rig *r)
{
    struct communicator *by = r->collective.communicator;

    collective_release(&r->collective);
    if (by)
        by->ops->close(by);
    thread_pool_destroy(r->threads);
    for (uint32_t i = 0; i < r->n; i++) {
        tape_destroy(r->tapes[i]);
        buffer_release(&r->stages[i].sums);
        buffer_release(&r->stages[i].head_part);
        buffer_release(&r->stages[i].logits);
        device_close(r->devices[i]);
    }
}

static inline void ranks_rig_one(void *arg, unsigned rank)
{
    struct ranks_rig *r = arg;
    uint32_t n = r->n_sums ? r->n_sums : 2;

    r->ok[rank] = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segment = r->n_sums ? 0 : i;
        struct collective_call at = { rank, r->tapes[rank], tape_segment_border(r->tapes[rank], segment),
                                      &r->step };
        if (!collective_run(&r->collective, &at, &r->ok[rank], &r->errs[rank]))
            return;
    }
    r->ok[rank] = r->ok[rank] && r->devices[rank]->ops->wait(r->devices[rank], &r->errs[rank]);
}

// Exchanges, a thread for each rank, and waits for it.
static inline void ranks_rig_exchange(struct ranks_rig *r, uint32_t n_rows, uint32_t n_outputs)
{
    r->step.n_rows = n_rows;
    r->step.n_outputs = n_outputs;
    collective_begin(&r->collective);
    thread_pool_run(r->threads, ranks_rig_one, r);
}
