// latent_project, latent_store, latent_qk, latent_attend: attention in a latent space (MLA; DeepSeek-AI,
// 2024), with absorbed matrices.
//
// A page holds one vector per token for all heads, its key: [latent, rotated]. Its value is the latent, so
// there is no V.
//   latent_store:    key = [rmsnorm(l) * norm, rope(k)]    of a row's kv = [l, k]
//   latent_project:  out[h] = [W[h] x, rope(y)]            of a row's in[h] = [x, y]; y may be empty
//   latent_qk:       both, of a row's key and queries, which need nothing of each other; in parts the two
//   latent_attend:   s[h][j] = scale * q[h] . key[j]       for j = 0..position of the row
//                    out[h] = sum over j of softmax(s[h])[j] * latent[j]
// A layer projects its queries by Wuk (x is the part that does not rotate), attends, and projects the result
// by Wuv: queries and values of full size are never computed. W[h] is [n_rows, n_cols], one head's rows after
// the other's; products and `exact` as in matmul. The order of the sums is that of attend. Pairs rotate
// together as in rope_store; all of y and k rotates.
// Limits: one KV head; latent_dims and the rotated dims even; n_cols a multiple of the format's block.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"
#include "ops/attend/attend.h"

struct latent_store_args {
    struct page_shape pages; // head_dim: of the key
    u32 latent_dims;
    u32 pairs; // enum rope_pairs
    f32 eps;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct latent_store_args) == 32);

struct latent_project_args {
    u32 n_heads, n_rows, n_cols; // of a head's matrix
    u32 n_rotated;               // numbers of y; 0: there are none
    u32 pairs;                   // enum rope_pairs
    u32 exact;
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct latent_project_args) == 32);

struct latent_qk_args {
    struct latent_store_args store;
    struct latent_project_args project;
};
STATIC_ASSERT(sizeof(struct latent_qk_args) == 64);

// Operand numbers, for the kernels. latent_attend's arguments are struct attend_args with latent_dims.
enum { LATENT_STORE_IN, LATENT_STORE_NORM, LATENT_STORE_ANGLES, LATENT_STORE_PAGES, LATENT_STORE_TABLE };
enum { LATENT_PROJECT_IN, LATENT_PROJECT_W, LATENT_PROJECT_ANGLES, LATENT_PROJECT_WORK, LATENT_PROJECT_OUT };
enum { // the first are latent_store's
    LATENT_QK_Q = LATENT_STORE_TABLE + 1,
    LATENT_QK_W,
    LATENT_QK_WORK,
    LATENT_QK_OUT
};
enum { LATENT_ATTEND_Q, LATENT_ATTEND_PAGES, LATENT_ATTEND_TABLE, LATENT_ATTEND_OUT, LATENT_ATTEND_WORK };

// Columns (of 4 bytes) of workspace per row: each head's x, packed.
SHARED_INLINE u32 latent_project_work_cols(u32 n_heads, u32 n_cols)
{
    return n_heads * (n_cols + 64);
}

#ifdef HOST_C
struct latent_store {
    struct tensor in;          // [rows, latent_dims + rotated]
    const struct weight *norm; // [latent_dims] fp32
    struct tensor angles;      // [rows, rotated]
    struct pages pages;        // without V
    enum rope_pairs pairs;
    float eps;
};
void op_latent_store(struct tape *t, struct latent_store s);

struct latent_project {
    struct tensor out;      // [rows, n_heads * (n_rows + rotated)]
    struct tensor in;       // [rows, n_heads * (n_cols + rotated)]
    const struct weight *w; // [n_heads * n_rows, n_cols]
    struct tensor angles;   // [rows, rotated], or id 0
    uint32_t n_heads;
    enum rope_pairs pairs;
};
void op_latent_project(struct tape *t, struct latent_project p);

// p.angles are s.angles.
void op_latent_qk(struct tape *t, struct latent_store s, struct latent_project p);
// The commands of its parts, for devices that play them one by one.
enum { LATENT_QK_N_PARTS = 2 };
void latent_qk_parts(const struct command *c, struct command parts[LATENT_QK_N_PARTS]);

struct latent_attend {
    struct tensor out; // [rows, n_heads * latent_dims]
    struct tensor q;   // [rows, n_heads * key dims]
    struct pages pages;
    uint32_t latent_dims;
    float scale;
};
void op_latent_attend(struct tape *t, struct latent_attend a);
#endif
