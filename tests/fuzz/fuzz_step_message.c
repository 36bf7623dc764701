// fuzz_step_message.c - a step or results from another rank: every number is checked before it is used.
#include <stdint.h>
#include <string.h>
#include "base/mem.h"
#include "engine/ranks/agree.h"
#include "engine/stage/step_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct step_limits limits = { .max_rows = 8,
                                           .max_outputs = 4,
                                           .n_slots = 2,
                                           .max_pages = 4,
                                           .n_pages = 8,
                                           .n_states = 3,
                                           .history_stride = 64,
                                           .n_vocab = 70,
                                           .n_cols = 2,
                                           .n_windows = 6 };

// Everything that is accepted is within the limits, and all of it can be read.
static void walk(const struct step_view *v, struct batch *b)
{
    size_t at = 0;
    uint64_t sum = 0;

    step_view_fill(v, b);
    for (uint32_t i = 0; i < b->n_rows; i++)
        CHECK(b->rows[i].slot < limits.n_slots && b->rows[i].position < limits.history_stride);
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        struct step_constraint c = step_view_constraint(v, i, &at, &limits);
        CHECK(b->outputs[i].row < b->n_rows);
        for (uint32_t k = 0; k < 2 * c.n_biases; k++)
            sum += c.biases[k];
        for (uint32_t k = 0; c.mask && k < (limits.n_vocab + 63) / 64 * 2; k++)
            sum += c.mask[k];
    }
    for (at = 0; at < v->n_news; at += 4 + v->news[at + 3])
        for (uint32_t k = 0; k < v->news[at + 3]; k++)
            sum += v->news[at + 4 + k];
    CHECK(at == v->n_news && sum < UINT64_MAX);
    CHECK(b->n_rows <= limits.max_rows && b->n_outputs <= limits.max_outputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err err = { 0 };
    struct step_view v;
    struct step_result r;
    struct batch *b = NULL;
    unsigned char *copy = mem_alloc(n + 1); // aligned, and no longer than what came

    if (!copy)
        return 0;
    if (n > 0)
        memcpy(copy, data, n);
    if (batch_create(&b, limits.max_rows, limits.max_outputs, &err)) {
        if (step_message_read(copy, n, &limits, &v, &err))
            walk(&v, b);
        if (step_result_read(copy, n, &limits, &r, &err))
            for (uint32_t i = 0; i < r.n_outputs; i++)
                CHECK(r.ids[i] < limits.n_vocab || r.ids[i] == STEP_TOKEN_INVALID);
    }
    copy[n] = 0;
    agree_facts("a: 1\nb: 2", (const char *)copy, &err);
    batch_free(b);
    mem_free(copy);
    return 0;
}
