// lora: what adapters of low rank (Hu et al., 2021) add to products that read the same rows.
//
//   h[r][j] = s * sum over k of in[r][k] * a[j][k],  s = scales[slot of r][owners[j]]
//   out[r][n] += sum over j of h[r][j] * b[j][n]
// for each of up to three targets (a, b, owners, out). The ranks of all adapters of a matrix lie one behind
// the other, and owners says whose each is. Where s is 0 the rank is left out: a row without adapters keeps
// its bits, and what other adapters there are changes none. The sums' order depends on n_cols and on the
// row's own ranks alone. What is scaled by alpha over the rank is b, when it is loaded.
#pragma once
#include "base/lang.h"

enum { LORA_TARGETS = 3 };

struct lora_args { // shared by C, CUDA and MSL
    u32 n_cols;    // of in
    u32 rows;      // enum tensor_rows
    u32 n_adapters, n_targets;
    u32 n_ranks[LORA_TARGETS], n_out[LORA_TARGETS]; // 0 behind the last target
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct lora_args) == 48);

enum { LORA_IN, LORA_SCALES, LORA_WORK, LORA_A, LORA_B, LORA_OWNERS, LORA_OUT, LORA_OPERANDS = 4 };

// Where a target's ranks begin among those of all, which are a row of the workspace.
SHARED_INLINE u32 lora_first_rank(const u32 n_ranks[LORA_TARGETS], u32 target)
{
    return (target > 0 ? n_ranks[0] : 0) + (target > 1 ? n_ranks[1] : 0);
}

// The same in one command with the products, whose matrices are the targets: matmul_adapted, qkv_adapted,
// gate_up_adapted. These arguments and operands stand behind the product's own; in is the (normalised) row.
struct adapted_args {
    u32 n_ranks[LORA_TARGETS]; // 0: nothing is added to that matrix
    u32 n_adapters;
};
STATIC_ASSERT(sizeof(struct adapted_args) == 16);

enum { ADAPTED_SCALES, ADAPTED_WORK, ADAPTED_A, ADAPTED_B, ADAPTED_OWNERS, ADAPTED_OPERANDS = 3 };
enum { ADAPTED_MOST_RANKS = 1024, ADAPTED_MOST_COLS = 32768 }; // of a command

#ifdef HOST_C
#include "device/tape.h"

// Of n_ranks or n_out: a grid is as wide as the widest target.
static inline u32 lora_most(const u32 n[LORA_TARGETS])
{
    u32 most = n[0];

    for (u32 i = 1; i < LORA_TARGETS; i++)
        most = n[i] > most ? n[i] : most;
    return most;
}

// What the adapters of an engine add to one matrix: struct weight points to it.
struct lora_weight {
    struct weight a, b;          // fp32 [n_ranks, cols of the matrix], [n_ranks, rows of the matrix]
    struct buffer owners;        // [n_ranks] u32: of which adapter
    const struct buffer *scales; // [slots, n_adapters] fp32: of each sequence; 0: without that adapter
    uint32_t n_ranks, n_adapters;
};

struct lora {
    struct tensor in; // [rows, n_cols]
    struct lora_target {
        struct tensor out;              // [rows, n_out]
        const struct lora_weight *lora; // NULL: nothing is added
    } targets[LORA_TARGETS];
};
// Records nothing where no target has adapters.
void op_lora(struct tape *t, struct lora l);

// Whether some target has adapters, and whether `op` takes them along: where the device has it, and one row.
bool lora_adds(const struct lora *l);
bool lora_fuses(const struct tape *t, uint32_t op, const struct lora *l);
// For such a command: its arguments' last part, and its last operands. A target's `out` need have no id.
struct adapted_args lora_adapted_args(const struct lora *l);
void lora_add_operands(struct tape *t, struct command *c, const struct lora *l);
#endif
