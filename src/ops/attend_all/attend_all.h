// attend_all: out[r][h] = sum over j of softmax over j(q[r][h] . k[j][g] * scale) * v[j][g]      j: all rows
// of r's slot, or those at most `reach` away
//
// Bidirectional attention without pages, as in encoders. Heads h share K and V head g = h / (n_heads /
// n_kv_heads). The rows of a slot are contiguous in the step and complete, and their positions count from 0.
// Slots may have different numbers of rows. A row's result depends on the rows of its slot alone. Limits:
// head_dim at most 1,024.
#pragma once
#include "base/lang.h"

struct attend_all_args {
    u32 n_heads, head_dim;
    f32 scale;
    u32 n_kv_heads;
    u32 reach; // 0: all rows
    u32 half;  // 1: q, k, v and the weights may be rounded to bf16 wherever that is faster
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct attend_all_args) == 32);

enum { ATTEND_ALL_Q, ATTEND_ALL_K, ATTEND_ALL_V, ATTEND_ALL_OUT };

#ifdef HOST_C
#include "device/step.h"
#include "device/tape.h"

struct attend_all {
    struct tensor out, q; // [rows, n_heads * head_dim]
    struct tensor k, v;   // [rows, n_kv_heads * head_dim]
    uint32_t n_heads;
    float scale;
    uint32_t reach; // 0: all rows of the slot
    // Unless the tape is exact, GPUs always round to bf16, which is many times faster there. Others only with
    // this: pictures can afford it, vectors of texts are compared more closely.
    bool half;
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
