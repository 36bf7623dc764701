// trellis_experts: the feed-forward blocks of the experts that `route` has chosen for each row, of matrices
// of EXL3 (quant/exl3.h), whose codes stay as they are:
//
//   out[r] = add[r] + sum over j of weights[r][j] down_e(act(gate_e(in[r]), up_e(in[r])))    e = ids[r][j]
//                   + weights[r][n_slots] shared[r]
//
// A product is that of ops/trellis: factors, transforms of 128, sums of decoded numbers. The stack of a kind
// has the matrices of all experts one behind the other, each padded to blocks of 128 with its own factors
// behind its codes. The parts of a mixture are those of ops/experts; they are one operation here, since what
// down's transform reads is 128 hidden numbers that gate's and up's have just made. The shared expert, whose
// matrices are no stack, is recorded as ordinary products before it.
//
// The sum is fp32: the slots in their order, then the shared expert, then add, all by one owner. exact keeps
// activations in fp32; else they may be rounded to fp16, or to 15 bits, with a scale for each 128. The order
// of a product's sum depends on the matrix alone where `invariant` asks for it. add and out may be the same
// tensor.
#pragma once
#include "ops/experts/experts.h"
#include "quant/exl3.h"

enum { TRELLIS_GATE, TRELLIS_UP, TRELLIS_DOWN, TRELLIS_STACKS };

struct trellis_experts_args {
    struct experts_args experts;  // first; n_shared and limit 0
    u32 bits[TRELLIS_STACKS];     // of all experts
    u32 codebook[TRELLIS_STACKS]; // enum exl3_codebook
};
STATIC_ASSERT(sizeof(struct trellis_experts_args) == 56);

// Operand numbers, for the kernels. SHARED and ADD may be absent.
enum {
    TRELLIS_EXPERTS_IN,  // normed
    TRELLIS_EXPERTS_IDS, // where experts_up has them
    TRELLIS_EXPERTS_WEIGHTS,
    TRELLIS_EXPERTS_GATE,
    TRELLIS_EXPERTS_UP,
    TRELLIS_EXPERTS_DOWN,
    TRELLIS_EXPERTS_SHARED,
    TRELLIS_EXPERTS_ADD,
    TRELLIS_EXPERTS_WORK,
    TRELLIS_EXPERTS_OUT
};

// The workspace: for all slots of all rows what gate and up multiply, then what down multiplies. A slot has
// twice as many numbers as it needs of the first kind for one of them; its result takes the place of both.
SHARED_INLINE u32 trellis_experts_work_cols(u32 n_slots, u32 n_cols, u32 n_ffn)
{
    return n_slots * (2 * exl3_padded(n_cols) + exl3_padded(n_ffn));
}

#ifdef HOST_C
// Records what experts_up and experts_down would be; up.out and down.in are not used. All matrices but the
// shared expert's hold codes, without biases or a limit.
void op_trellis_experts(struct tape *t, const struct experts_up *up, const struct experts_down *down);
#endif
