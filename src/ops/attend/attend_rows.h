// attend_rows.h - runs and splits of a step's rows, for CPU kernels that divide them into tiles.
#pragma once
#include "device/step.h"
#include "ops/attend/attend.h"

// Number of splits of the longest past.
static inline uint32_t attend_splits(const struct step *s)
{
    uint32_t n = 1;

    for (uint32_t r = 0; r < s->n_rows; r++) {
        uint32_t wanted = step_positions(s)[r] / ATTEND_SPLIT + 1;
        n = wanted > n ? wanted : n;
    }
    return n;
}

// Number of the rows [r, end) that follow each other in one sequence.
static inline uint32_t attend_run_length(const struct step *s, uint32_t r, uint32_t end)
{
    uint32_t n = 1;

    while (r + n < end && step_slots(s)[r + n] == step_slots(s)[r] &&
           step_positions(s)[r + n] == step_positions(s)[r] + n)
        n++;
    return n;
}

static inline uint32_t attend_longest_run(const struct step *s)
{
    uint32_t longest = 1;

    for (uint32_t r = 0, n; r < s->n_rows; r += n) {
        n = attend_run_length(s, r, s->n_rows);
        longest = n > longest ? n : longest;
    }
    return longest;
}
