// attend_all: out[r][h] = sum over j of softmax over j(q[r][h] . k[j][h] * scale) * v[j][h]      j: all rows
// of r's slot
//
// Bidirectional attention without pages or a mask, as in encoders. The rows of a slot are contiguous in the
// step and complete, and their positions count from 0. Slots may have different numbers of rows. A row's
// result depends on the rows of its slot alone. Limits: head_dim at most 1,024.
#pragma once
#include "base/lang.h"

struct attend_all_args {
    u32 n_heads, head_dim;
    f32 scale;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct attend_all_args) == 16);

enum { ATTEND_ALL_Q, ATTEND_ALL_K, ATTEND_ALL_V, ATTEND_ALL_OUT };

#ifdef HOST_C
#include "device/step.h"
#include "device/tape.h"

struct attend_all {
    struct tensor out, q, k, v; // [rows, n_heads * head_dim]
    uint32_t n_heads;
    float scale;
};
void op_attend_all(struct tape *t, struct attend_all a);

// The end of r's slot: the row after its last one.
static inline uint32_t attend_all_end(const struct step *s, uint32_t r)
{
    uint32_t slot = step_slots(s)[r];

    while (r < s->n_rows && step_slots(s)[r] == slot)
        r++;
    return r;
}
#endif
