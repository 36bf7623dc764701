// shares.h - a step of many sequences dealt to threads by rows: each plays the tape for its own sequences,
// without a barrier.
//
// The other way, the tiles of every command dealt to all threads, costs a barrier or two a command: in a
// small model a fifth of a step. And a thread that must give up its processor for a moment holds up all
// others. By rows every thread reads all weights, so they have to fit into the cache that processors share.
// The bits are the same, since a row's result does not depend on other rows.
#pragma once
#include "device/cpu/cpu.h"
#include "device/tape_internal.h"

// One thread's part of a step: its rows as a step of their own, tensors in memory of its own, and commands
// that know of both.
struct share {
    uint32_t first, end; // rows of the step
    struct step *step;
    struct command *commands; // [n_commands]
    struct buffer scratch;
    uint32_t first_row, first_output; // that the commands know of
};

struct shares {
    struct share *of;    // [n], one for each thread
    uint32_t n;          // 0: this tape's steps are not dealt by rows
    uint32_t n_commands; // the first ones, which may be; the others follow as usual
};

// Decides by the tape's rows, its weights and their cache. False without memory.
bool shares_open(struct shares *s, const struct tape *t, const struct cpu_op *const *ops, uint32_t n_threads);
void shares_close(struct shares *s);
// Gives each thread its rows of the step. False when they cannot be dealt about evenly: a sequence's rows
// stay together.
bool shares_deal(struct shares *s, const struct step *step);
// What a thread plays: its part of the step. By that thread itself.
const struct share *share_take(struct shares *s, const struct tape *t, const struct step *step,
                               uint32_t thread);
