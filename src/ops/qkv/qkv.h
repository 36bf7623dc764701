// qkv: norm, the three products with their biases, q/k norm, RoPE, and k and v into the row's page.
//
//   n = rmsnorm(in) * norm;  q = n Wq^T + bq;  k = n Wk^T + bk;  v = n Wv^T + bv;  then rope_store(q, k, v).
// Parts: rmsnorm, matmul x 3, rope_store. See their headers for formulas and limits; exact as in matmul. With
// what adapters add before RoPE it is qkv_adapted; in parts a lora stands before rope_store.
#pragma once
#include "base/lang.h"
#include "ops/lora/lora.h"
#include "ops/rope_store/rope_store.h"

struct qkv_args {
    struct rope_store_args rope;
    u32 n_cols;
    f32 norm_eps;
    u32 exact;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct qkv_args) == 48);

enum {
    QKV_IN,
    QKV_NORM,
    QKV_WQ,
    QKV_WK,
    QKV_WV,
    QKV_BQ,
    QKV_BK,
    QKV_BV,
    QKV_Q_NORM,
    QKV_K_NORM,
    QKV_ANGLES,
    QKV_K_PAGES,
    QKV_V_PAGES,
    QKV_TABLE,
    QKV_WORK,
    QKV_Q,
    QKV_ADAPTERS, // their operands, of qkv_adapted
};

struct qkv_adapted_args {
    struct qkv_args product;
    struct adapted_args adapters;
};
STATIC_ASSERT(sizeof(struct qkv_adapted_args) == 64);

// Columns (of 4 bytes) of workspace per row: the row's k and v [2 * n_kv], then the normalised row and its
// packings, for at most two activation formats.
SHARED_INLINE u32 qkv_work_cols(u32 n_cols, u32 n_kv)
{
    return 2 * n_kv + 3 * n_cols + 128;
}

#ifdef HOST_C
struct qkv {
    struct tensor q;                      // [rows, n_heads * head_dim]
    struct tensor in;                     // [rows, n_cols]
    const struct weight *norm;            // [n_cols] fp32
    const struct weight *wq, *wk, *wv;    // [heads * head_dim, n_cols]
    const struct weight *bq, *bk, *bv;    // fp32, or NULL
    const struct weight *q_norm, *k_norm; // [head_dim] fp32, or NULL
    struct tensor angles;                 // [rows, rotated dims]
    struct pages pages;
    enum rope_pairs pairs;
    float eps;
};
void op_qkv(struct tape *t, struct qkv m);
#endif
