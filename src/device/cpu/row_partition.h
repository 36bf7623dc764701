// row_partition.h - splits a step of many sequences over the threads by rows: each thread plays the tape for
// its own sequences, without a barrier.
//
// The other schedule splits every command's tiles over all threads and needs one or two barriers a command:
// a fifth of a step in a small model. A thread that loses its CPU for a moment then delays all others. With a
// row partition every thread reads all weights, so they have to fit into the cache that CPUs share. The bits
// are the same, since a row's result does not depend on other rows. Measured:
// bench/results/2026-11-22-cpu-kernel-choices.md.
#pragma once
#include "device/cpu/cpu.h"
#include "device/tape_internal.h"

// One thread's part of a step: its rows as a step of their own, scratch of its own, and commands that point
// there.
struct row_part {
    uint32_t first, end; // rows of the whole step
    struct step *step;
    struct command *commands; // [n_commands]
    struct buffer scratch;
    uint32_t first_row, first_output; // the ones that `commands` were made for
};

struct row_partition {
    struct row_part *parts; // [n], one per thread
    uint32_t n;             // 0: steps of this tape are not split by rows
    uint32_t n_commands;    // the tape's first commands, which can be split; the others play as usual
};

// Decides by the tape's rows, its weights and the shared cache. False without memory.
bool row_partition_open(struct row_partition *p, const struct tape *t, const struct cpu_op *const *ops,
                        uint32_t n_threads);
void row_partition_close(struct row_partition *p);
// Assigns each thread its rows of the step. A sequence's rows stay together. False when the parts would be
// too uneven.
bool row_partition_assign(struct row_partition *p, const struct step *step);
// Prepares and returns a thread's part. Called by that thread.
const struct row_part *row_partition_take(struct row_partition *p, const struct tape *t,
                                          const struct step *step, uint32_t thread);
