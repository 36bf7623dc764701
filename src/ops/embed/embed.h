// embed: out[r] = table[token of r] * scale.
//
// The token comes from the step, or from the log where the step says STEP_TOKEN_LOGGED. One row at a time.
// Limits: the engine has checked that every token is below the table's number of rows.
#pragma once
#include "base/lang.h"

struct embed_args {
    u32 n_cols, n_tokens; // of the table
    u32 log_stride;
    f32 scale;
};
STATIC_ASSERT(sizeof(struct embed_args) == 16);

#ifdef HOST_C
#include "device/tape.h"

struct embed {
    struct tensor out;          // [rows, n_cols]
    const struct weight *table; // [n_tokens, n_cols], any format, layout 0
    const struct buffer *log;   // [n_slots, log_stride] u32
    uint32_t log_stride;
    float scale;
};
void op_embed(struct tape *t, struct embed e);
#endif
