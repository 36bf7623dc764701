// shuffle: out[o][(dy * s + dx) * n_cols + c] = in[outputs[o] + dy * n_across + dx][c]      dy, dx below s
//
// Pixel shuffle (space to depth): squares of s by s neighbouring rows of a grid become one row. The step's
// outputs name the row at each square's upper left corner. The rows of a grid are contiguous in the step,
// line by line, n_across in a line. Limits: s * s * n_cols at most 1 << 20; the engine has checked that every
// square is inside its grid.
#pragma once
#include "base/lang.h"

struct shuffle_args {
    u32 n_cols; // of in
    u32 side;   // s
    u32 n_across;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct shuffle_args) == 16);

enum { SHUFFLE_IN, SHUFFLE_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct shuffle {
    struct tensor out; // [outputs, side * side * n_cols]
    struct tensor in;  // [rows, n_cols]
    uint32_t side, n_across;
};
void op_shuffle(struct tape *t, struct shuffle s);
#endif
