// latent_block: a layer's latent attention in one operation, of the residual stream x
//
//   first, kv = n Wqa^T, n Wkva^T              n = rmsnorm(x) * norm         matmul_normed
//   q         = rmsnorm(first) * q_norm Wqb^T                                matmul_normed
//   absorbed  = q through Wuk, rotated; kv's key to its page                 latent_qk
//   attended  = softmax(scale * absorbed . keys) latents                     latent_attend
//   values    = attended through Wuv                                         latent_project
//   x         = x + values Wo^T                                              matmul
//
// The definition is the operations in turn, each as its own header has it. What they hand on stays in the
// operation, so that a device may do without their launches. It is recorded for steps of one row where the
// device has it; else its parts are (models/latent_attention.c).
#pragma once
#include "ops/latent/latent.h"
#include "ops/matmul/matmul.h"

struct latent_block_args {
    struct latent_store_args store;
    struct latent_project_args absorb; // by Wuk
    u32 n_cols, q_latent, n_value;     // of x; of first; of a head's values
    f32 eps, q_eps, scale;             // of x's norm, of first's; of scores
};
STATIC_ASSERT(sizeof(struct latent_block_args) == 88);

// Operand numbers, for the kernels. From FIRST to WORK: what the parts hand on, and their workspace.
enum {
    LATENT_BLOCK_IN,
    LATENT_BLOCK_NORM,
    LATENT_BLOCK_Q_A,
    LATENT_BLOCK_KV_A,
    LATENT_BLOCK_Q_NORM,
    LATENT_BLOCK_Q_B,
    LATENT_BLOCK_KV_NORM,
    LATENT_BLOCK_ANGLES,
    LATENT_BLOCK_PAGES,
    LATENT_BLOCK_TABLE,
    LATENT_BLOCK_K_B,
    LATENT_BLOCK_V_B,
    LATENT_BLOCK_O,
    LATENT_BLOCK_FIRST,
    LATENT_BLOCK_KV,
    LATENT_BLOCK_Q,
    LATENT_BLOCK_ABSORBED,
    LATENT_BLOCK_ATTENDED,
    LATENT_BLOCK_VALUES,
    LATENT_BLOCK_WORK,
    LATENT_BLOCK_OUT
};

#ifdef HOST_C
#include "device/tape.h"

// The parts as they would be recorded: each reads what the one before it writes, and out.out, out.add and
// down.in are one tensor.
struct latent_block {
    struct matmul_normed down, up; // to the latents; from first to the queries
    struct latent_store store;
    struct latent_project absorb, expand;
    struct latent_attend attend;
    struct matmul out;
};
// Records the operation and returns true. False: this tape takes the parts.
bool op_latent_block(struct tape *t, const struct latent_block *b);

// The commands of the parts, for devices that play them one by one.
enum {
    LATENT_BLOCK_DOWN,
    LATENT_BLOCK_UP,
    LATENT_BLOCK_QK,
    LATENT_BLOCK_ATTEND,
    LATENT_BLOCK_EXPAND,
    LATENT_BLOCK_MATMUL,
    LATENT_BLOCK_N_PARTS
};
void latent_block_parts(const struct command *c, struct command parts[LATENT_BLOCK_N_PARTS]);
#endif
