// step_rows.h - the rows of a step that tests of attention play: which sequences, at which positions.
#pragma once
#include "op_harness.h"

enum { SLOTS = 4, MAX_PAGES = 140 };

struct rows { // which rows the step holds
    uint32_t n;
    uint32_t slot[64], position[64];
};

static inline void fill_step(struct bench *b, const struct rows *rows)
{
    struct step *s = bench_step(b);

    s->n_rows = rows->n;
    for (uint32_t r = 0; r < rows->n; r++) {
        ((uint32_t *)step_positions(s))[r] = rows->position[r];
        ((uint32_t *)step_slots(s))[r] = rows->slot[r];
    }
}

static inline void fill_rows(float *x, uint32_t n_cols, const struct rows *rows)
{
    for (uint32_t r = 0; r < rows->n; r++) {
        bench_seed(7 + rows->slot[r] * 1000 + rows->position[r]);
        for (uint32_t c = 0; c < n_cols; c++)
            x[r * n_cols + c] = bench_normal();
    }
}

static inline struct rows rows_of_a_chunk(uint32_t slot, uint32_t first, uint32_t n)
{
    struct rows rows = { .n = n };
    for (uint32_t r = 0; r < n; r++) {
        rows.slot[r] = slot;
        rows.position[r] = first + r;
    }
    return rows;
}

static inline struct rows mixed_rows(void)
{
    static const uint32_t slot[] = { 2, 0, 0, 0, 0, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3 };
    static const uint32_t position[] = { 300, 0, 1, 2, 3,  255, 256, 17, 4,   5,
                                         6,   7, 8, 9, 10, 11,  12,  13, 257, 18 };
    struct rows rows = { .n = 20 };
    memcpy(rows.slot, slot, sizeof slot);
    memcpy(rows.position, position, sizeof position);
    return rows;
}
