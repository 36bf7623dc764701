// tape_internal.h - the tape's inside, for tape.c, hazard.c, tape_diff.c and the devices.
#pragma once
#include "device/tape_exchange.h"

struct tape_tensor_plan {
    uint32_t n_cols;
    enum tensor_rows rows;
    uint32_t first, last; // commands that touch it; UINT32_MAX, 0: none yet
    uint64_t offset, bytes;
    const struct buffer *bound;
};

struct tape_segment {
    uint32_t first, last; // commands [first, last)
};

struct tape {
    struct device *device;
    struct arena *arena;
    struct tape_limits limits;
    struct command *commands;
    uint32_t n_commands, commands_capacity;
    struct tape_tensor_plan *tensors; // [n_tensors], tensor id i is tensors[i - 1]
    uint32_t n_tensors, tensors_capacity;
    struct buffer scratch;
    struct tape_segment *segments; // [n_segments], made by sealing
    uint32_t n_segments;
    const struct exchange *exchange; // or NULL
    uint32_t n_exchanges;            // all-reduces that are no borders
    const char *label;
    struct err error;
    bool sealed, plays_at_once; // the second: as tape_prepare found
    void *native;               // made by the device's seal
};

// Arguments of the commands that exchange. index: of the all-reduces before it in its tape.
struct exchange_args {
    u32 index, n_cols, rows; // rows: enum tensor_rows
    u32 history_stride;
};

// The segment that begins and ends there, or UINT32_MAX.
uint32_t tape_segment_of(const struct tape *t, uint32_t first, uint32_t last);

// Plays one command and waits for it.
bool tape_play_one(struct tape *t, const struct buffer *step, uint32_t index, struct err *err);
struct operand *tape_operand_add(struct command *c);

// Whether both commands touch a common byte and at least one of them writes it.
bool hazard_between(const struct command *a, const struct command *b);
// Sets `barrier` on every command that conflicts with a command since the last barrier. Returns the number of
// barriers.
uint32_t hazard_mark(struct command *commands, uint32_t n);
