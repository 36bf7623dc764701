// collective.c - see collective.h.
#include "engine/group/collective.h"
#include <string.h>
#include "base/mem.h"
#include "base/thread_pool.h"
#include "device/communicator.h"

enum { LINE = 16 }; // numbers of a cache line, which two ranks do not share

static uint64_t copy_numbers(const struct stage *s)
{
    uint64_t sums = (uint64_t)s->shape.max_rows * s->parts.model->config.n_cols,
             head = s->head_part.bytes / sizeof(float);

    return sums > head ? sums : head;
}

static bool is_seen(const struct stage *s)
{
    return s->block.host && s->sums.host && s->head_part.host;
}

bool collective_create(struct collective *x, struct err *err)
{
    const struct buffer *logits = &x->ranks[0]->logits;

    if (x->communicator)
        return true;
    x->copies = mem_alloc_array(x->n, sizeof *x->copies);
    x->parts = mem_alloc_array(x->n, sizeof *x->parts);
    x->failed = mem_alloc_array(x->n, sizeof *x->failed);
    bool ok = x->copies && x->parts && x->failed;
    for (uint32_t i = 0; ok && i < x->n; i++)
        ok = is_seen(x->ranks[i]) ||
             (x->copies[i] = mem_alloc_array(copy_numbers(x->ranks[i]), sizeof(float)));
    if (ok && !logits->host)
        ok = (x->whole_copy = mem_alloc(logits->bytes)) != NULL;
    return ok || err_memory(err, "what ranks exchange");
}

void collective_release(struct collective *x)
{
    for (uint32_t i = 0; x->copies && i < x->n; i++)
        mem_free(x->copies[i]);
    mem_free(x->copies);
    mem_free(x->parts);
    mem_free(x->failed);
    mem_free(x->whole_copy);
    *x = (struct collective){ 0 };
}

void collective_begin(struct collective *x)
{
    if (x->failed)
        memset(x->failed, 0, x->n * sizeof *x->failed);
}

static bool any_failed(const struct collective *x)
{
    bool any = false;

    for (uint32_t i = 0; i < x->n; i++)
        any |= x->failed[i];
    return any;
}

// The rank's numbers, once its device has computed them, in memory that all ranks see.
static bool show(struct collective *x, uint32_t rank, const struct buffer *b, uint64_t bytes, struct err *err)
{
    struct device *d = b->device;

    x->parts[rank] = b->host ? b->host : x->copies[rank];
    return b->host ? d->ops->wait(d, err) : bytes == 0 || buffer_read(b, 0, x->copies[rank], bytes, err);
}

// [first, last) of the numbers: added up in the first rank's memory, then copied to the others'.
static void add_up(const struct collective *x, uint64_t first, uint64_t last)
{
    float *sum = x->parts[0];

    if (first >= last)
        return;
    for (uint32_t r = 1; r < x->n; r++) {
        const float *part = x->parts[r];
        for (uint64_t i = first; i < last; i++)
            sum[i] += part[i];
    }
    for (uint32_t r = 1; r < x->n; r++)
        memcpy(x->parts[r] + first, sum + first, (last - first) * sizeof *sum);
}

static void add_share(const struct collective *x, uint32_t rank, uint64_t n)
{
    uint64_t lines = (n + LINE - 1) / LINE, last = lines * (rank + 1) / x->n * LINE;

    add_up(x, lines * rank / x->n * LINE, last < n ? last : n);
}

static bool all_reduce(struct collective *x, const struct collective_call *at, bool *ok, struct err *err)
{
    const struct operand *o = &at->border->operands[0];
    uint64_t bytes = tape_operand_rows(at->tape, o, at->step) * o->row_bytes;
    struct buffer *b = (struct buffer *)(uintptr_t)o->buffer; // the stage's own

    *ok = *ok && show(x, at->rank, b, bytes, err);
    x->failed[at->rank] = !*ok;
    thread_pool_barrier(x->threads, at->rank);
    if (any_failed(x))
        return false;
    add_share(x, at->rank, bytes / sizeof(float));
    thread_pool_barrier(x->threads, at->rank);
    *ok = b->host || bytes == 0 || buffer_write(b, 0, x->copies[at->rank], bytes, err);
    return true;
}

// The rank's columns of every row.
static void put_columns(const struct collective *x, uint32_t rank, uint32_t n_rows)
{
    uint64_t n = x->ranks[rank]->parts.weights.head->n_rows, all = 0, before = 0;

    for (uint32_t r = 0; r < x->n; r++) {
        before = r == rank ? all : before;
        all += x->ranks[r]->parts.weights.head->n_rows;
    }
    for (uint32_t i = 0; i < n_rows; i++)
        memcpy(x->whole + i * all + before, x->parts[rank] + i * n, n * sizeof(float));
}

static bool all_gather(struct collective *x, const struct collective_call *at, bool *ok, struct err *err)
{
    const struct operand *o = &at->border->operands[0];
    uint32_t n_rows = tape_operand_rows(at->tape, o, at->step);
    struct buffer *logits = &x->ranks[0]->logits;

    *ok = *ok && show(x, at->rank, o->buffer, n_rows * o->row_bytes, err);
    if (at->rank == 0)
        x->whole = logits->host ? logits->host : x->whole_copy;
    x->failed[at->rank] = !*ok;
    thread_pool_barrier(x->threads, at->rank);
    if (any_failed(x))
        return false;
    put_columns(x, at->rank, n_rows);
    thread_pool_barrier(x->threads, at->rank);
    uint64_t bytes = (uint64_t)n_rows * x->ranks[0]->parts.model->config.n_vocab * sizeof(float);
    *ok = at->rank > 0 || logits->host || bytes == 0 || buffer_write(logits, 0, x->whole, bytes, err);
    return true;
}

// Queued on the rank's device.
static bool queue(struct collective *x, const struct collective_call *at, struct err *err)
{
    const struct operand *o = &at->border->operands[0];
    uint32_t n_rows = tape_operand_rows(at->tape, o, at->step);
    struct buffer *b = (struct buffer *)(uintptr_t)o->buffer; // the stage's own
    struct communicator_gather gather = { b, at->rank == 0 ? &x->ranks[0]->logits : NULL, n_rows };

    return at->border->op == TAPE_ALL_REDUCE
               ? x->communicator->ops->all_reduce(x->communicator, at->rank, b,
                                                  n_rows * o->row_bytes / sizeof(float), err)
               : x->communicator->ops->gather(x->communicator, at->rank, &gather, err);
}

bool collective_run(struct collective *x, const struct collective_call *at, bool *ok, struct err *err)
{
    if (x->communicator) {
        bool goes_on = *ok && queue(x, at, err);
        if (!goes_on)
            collective_stop(x);
        return goes_on;
    }
    return at->border->op == TAPE_ALL_REDUCE ? all_reduce(x, at, ok, err) : all_gather(x, at, ok, err);
}

void collective_stop(struct collective *x)
{
    if (x->communicator)
        x->communicator->ops->stop(x->communicator);
}

bool collective_check(const struct collective *x, struct err *err)
{
    return !x->communicator || x->communicator->ops->check(x->communicator, err);
}
