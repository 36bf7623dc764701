// experts_up, experts_down: the feed-forward blocks of the experts that `route` has chosen for each row, and
// of the shared expert.
//
//   experts_up:   h[r][j] = act(n Wgate[e]^T + bgate[e], n Wup[e]^T + bup[e])  for each slot j, e = ids[r][j]
//                 h[r][n_slots] = act(n Sgate^T, n Sup^T)                      the shared expert, if any
//   experts_down: out[r] = add[r] + sum over j of weights[r][j] (h[r][j] Wdown[e]^T + bdown[e])
//                          + weights[r][n_slots] h[r][n_slots] Sdown^T
//   act(g, u) = f(g) u, f an enum activation; with limit > 0 (gpt-oss): (u + 1) g / (1 + exp(-1.702 g)),
//               g = min(g, limit), u = clamp(u, -limit, limit)
//
// The sum is fp32: the slots in their order, then the shared expert, then add, all by one owner, so that no
// batch changes a bit. Experts of a kind are one matrix: expert e has rows [e n_ffn, (e + 1) n_ffn) of gate
// and up, [e n_cols, (e + 1) n_cols) of down; biases are one vector likewise. Models that store gate and up
// in one tensor, stacked or interleaved, are split when they are loaded. Products and `exact` as in matmul:
// an output is summed in an order that depends on columns and format alone. hidden: one row for each row of
// the step, the slots' n_ffn numbers one after the other, then the shared expert's n_shared. add and out may
// be the same tensor. A weight that is NaN makes the row NaN.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"

struct experts_args { // of both
    u32 n_cols;       // of the residual stream
    u32 n_ffn;        // hidden numbers of an expert
    u32 n_shared;     // of the shared expert; 0: there is none
    u32 n_experts, n_slots;
    u32 activation; // enum activation
    f32 limit;      // 0: none
    u32 exact;
};
STATIC_ASSERT(sizeof(struct experts_args) == 32);

// Operand numbers, for the kernels. Biases, the shared expert's weights and ADD may be absent.
enum {
    EXPERTS_UP_IN, // normed
    EXPERTS_UP_IDS,
    EXPERTS_UP_GATE,
    EXPERTS_UP_UP,
    EXPERTS_UP_GATE_BIAS,
    EXPERTS_UP_UP_BIAS,
    EXPERTS_UP_SHARED_GATE,
    EXPERTS_UP_SHARED_UP,
    EXPERTS_UP_WORK,
    EXPERTS_UP_OUT, // hidden
};
enum {
    EXPERTS_DOWN_IN, // hidden
    EXPERTS_DOWN_IDS,
    EXPERTS_DOWN_WEIGHTS,
    EXPERTS_DOWN_DOWN,
    EXPERTS_DOWN_BIAS,
    EXPERTS_DOWN_SHARED,
    EXPERTS_DOWN_ADD,
    EXPERTS_DOWN_WORK,
    EXPERTS_DOWN_OUT,
};

// Columns (of 4 bytes) of hidden, and of workspace per row: a packed row for each slot and the shared expert;
// for down also what each of them adds to the sum.
SHARED_INLINE u32 experts_hidden_cols(u32 n_slots, u32 n_ffn, u32 n_shared)
{
    return n_slots * n_ffn + n_shared;
}
SHARED_INLINE u32 experts_up_work_cols(u32 n_slots, u32 n_cols)
{
    return (n_slots + 1) * (2 * n_cols + 64);
}
SHARED_INLINE u32 experts_down_work_cols(u32 n_slots, u32 n_ffn, u32 n_shared, u32 n_cols)
{
    return n_slots * (n_ffn + 64) + n_shared + 64 + (n_slots + 1) * n_cols;
}

#ifdef HOST_C
#include "device/tape.h"

struct experts_up {
    struct tensor out;                            // [rows, experts_hidden_cols]
    struct tensor in;                             // [rows, n_cols]: route's normed
    struct tensor ids;                            // [rows, n_slots]: route's
    const struct weight *gate, *up;               // [n_experts n_ffn, n_cols]
    const struct weight *gate_bias, *up_bias;     // [n_experts n_ffn] fp32, both or neither
    const struct weight *shared_gate, *shared_up; // [n_shared, n_cols], both or neither
    uint32_t n_experts;
    enum activation activation;
    float limit;
};
void op_experts_up(struct tape *t, struct experts_up x);
// The operation's arguments, if shapes fit; else false and the tape's error.
bool experts_up_check(struct tape *t, const struct experts_up *x, struct experts_args *args);

struct experts_down {
    struct tensor out;           // [rows, n_cols]
    struct tensor in;            // [rows, experts_hidden_cols]
    struct tensor ids, weights;  // [rows, n_slots], [rows, n_slots + 1]: route's
    const struct weight *down;   // [n_experts n_cols, n_ffn]
    const struct weight *bias;   // [n_experts n_cols] fp32, or NULL
    const struct weight *shared; // [n_cols, n_shared], or NULL
    struct tensor add;           // [rows, n_cols], or id 0: 0
    uint32_t n_experts;
};
void op_experts_down(struct tape *t, struct experts_down x);
bool experts_down_check(struct tape *t, const struct experts_down *x, struct experts_args *args); // the same
#endif
