// fuse.h - which command writes the next one's packed input, and what packed rows are.
//
// A product reads its activations packed: as int8 with scales, or as tiles of bf16. The command before, whose
// result they are, often can write them beside its fp32 rows, or in their stead, which saves a launch and a
// round through memory. The device's table names the pairs of operations; tape_seal gives such commands one
// more operand, which the first writes and the others read. A product without it packs for itself.
#pragma once
#include "device/tape.h"

// A packing of rows of activations, with its plain definition.
struct packed_rows {
    float *rows; // [n_rows, n_cols]
    // [n_cols]: the rows are multiplied by it and their sums of squares are packed too; or NULL
    const float *norm;
    uint32_t n_rows, n_cols;
};
struct tape_packing {
    const char *name;
    uint64_t (*bytes)(uint32_t max_rows, uint32_t n_cols, bool norm);
    void (*pack)(const struct packed_rows *from, void *packed);
    void (*unpack)(const void *packed, const struct packed_rows *to); // with a norm: normalised
};

// What becomes of the fp32 rows beside the packed ones: they are written too; they are left out where all
// readers take them packed; or the writer has one form, and is fused only where all readers take that. The
// last is the second for a result with the step's outputs for rows.
enum fuse_rows { FUSE_ROWS_TOO, FUSE_ROWS_IF_READ, FUSE_NO_ROWS, FUSE_OUTPUTS_IF_READ };

// Where operand `out` of operation `from` is operand `in` of operation `to`, the first may write it packed
// too, once for all its readers that want the same form. A device's rules end with a packing of NULL.
struct tape_fusion {
    uint16_t from, out, to, in;
    uint16_t norm; // the operand of `to` that scales its input, or 0
    // The packing that `to` reads and `from` can write, or NULL.
    const struct tape_packing *(*packing)(struct device *d, const struct tape_limits *limits,
                                          const struct command *from, const struct command *to);
    enum fuse_rows rows;
};

// Adds the packed operands that the device's rules allow.
void fuse_commands(struct tape *t);
// The first packed operand that the command writes, or reads; NULL: none.
const struct operand *fuse_packed(const struct command *c, bool writes);
// The packed form of the command's input `in`; NULL: it reads fp32 rows.
const struct operand *fuse_packed_input(const struct command *c, uint32_t in);
// The packed form of the command's result `out`; NULL: it writes fp32 rows alone.
const struct operand *fuse_packed_result(const struct command *c, uint32_t out);
