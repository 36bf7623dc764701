// scatter: pool[places[o]] = in[o]
//
// Copies output rows to the rows of a pool that `places` names; the pool outlives the step. Limits: the
// engine has checked that places are distinct and below the pool's rows.
#pragma once
#include "base/lang.h"

struct scatter_args {
    u32 n_cols;
    u32 n_rows; // of the pool
};
STATIC_ASSERT(sizeof(struct scatter_args) == 8);

enum { SCATTER_IN, SCATTER_PLACES, SCATTER_POOL };

#ifdef HOST_C
#include "device/tape.h"

struct scatter {
    struct tensor in;            // [outputs, n_cols]
    const struct buffer *places; // [max_outputs] u32
    const struct buffer *pool;   // [n_rows, n_cols] fp32
};
void op_scatter(struct tape *t, struct scatter s);
#endif
