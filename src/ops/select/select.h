// select: out[i] = in[outputs[i]]: the rows that need logits, so that the LM head runs on these only.
#pragma once
#include "base/lang.h"

struct select_args {
    u32 n_cols;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct select_args) == 8);

#ifdef HOST_C
#include "device/tape.h"

struct select {
    struct tensor out; // [outputs, n_cols]
    struct tensor in;  // [rows, n_cols]
};
void op_select(struct tape *t, struct select s);
#endif
