// embed: out[r] = table[token of r] * scale, or pool[row] where the token is STEP_TOKEN_POOLED with a row. Of
// an encoder's other tables: out[r] += table[position of r], or += table[0].
//
// The token comes from the step, or from the token history where the step says STEP_TOKEN_HISTORY. Rows of
// the pool (embeddings of pictures) are copied as they are. One row at a time. Limits: the engine has checked
// that every token is below the table's number of rows, and every row below the pool's.
#pragma once
#include "base/lang.h"

struct embed_args {
    u32 n_cols, n_tokens; // of the table
    u32 history_stride;
    f32 scale;    // 1 where rows are added
    u32 n_pooled; // rows of the pool; 0: there is none
    u32 by;       // enum embed_by
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct embed_args) == 32);

enum embed_by { EMBED_TOKEN, EMBED_POSITION, EMBED_FIRST }; // but for the first they add

// Operand numbers, for the kernels.
enum { EMBED_TABLE, EMBED_HISTORY, EMBED_POOL, EMBED_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct embed {
    struct tensor out;            // [rows, n_cols]
    const struct weight *table;   // [n_tokens, n_cols], any format, layout 0
    const struct buffer *history; // [n_slots, history_stride] u32
    uint32_t history_stride;
    const struct buffer *pool; // [n, n_cols] fp32, or NULL
    float scale;               // of a token's row
    enum embed_by by;
};
void op_embed(struct tape *t, struct embed e);
#endif
