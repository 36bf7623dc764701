// rope_store: for each row, in place: q and k heads are normalised (Qwen3: RMSNorm over head_dim), rotated by
// the row's angles (RoPE), and the row's k and v go to its page. q stays a tensor. It is the second half of
// qkv, as an operation of its own.
//
// Pairs that rotate together: (2i, 2i+1) in GGUF files of the llama family, (i, i + n_dims/2) everywhere
// else. Only the first n_dims of a head rotate. Without k and v nothing is stored: a layer that reads
// another's pages. Limits: n_dims even, at most head_dim.
#pragma once
#include "base/lang.h"
#include "device/pages.h"
#include "gemm/gemm.h"

enum {
    ROPE_Q,
    ROPE_K,
    ROPE_V,
    ROPE_Q_NORM,
    ROPE_K_NORM,
    ROPE_ANGLES,
    ROPE_K_PAGES,
    ROPE_V_PAGES,
    ROPE_TABLE
};

#ifdef HOST_C
struct rope_store {
    struct tensor q, k, v; // [rows, heads * head_dim]; q and k are overwritten; k and v may be id 0
    const struct weight *q_norm, *k_norm; // [head_dim] fp32, or NULL
    struct tensor angles;                 // [rows, n_dims]
    struct pages pages;
    enum rope_pairs pairs;
    float eps;
};
void op_rope_store(struct tape *t, struct rope_store r);

// One row; shared with qkv's kernels.
struct rope_row {
    float *q, *k, *v; // [n_heads * head_dim], [n_kv_heads * head_dim]
    const float *q_norm, *k_norm, *angles;
    void *k_pages, *v_pages;
    const uint32_t *table; // the slot's pages
    uint32_t position;
};
// Rotates n_dims numbers, the first of a head, by a row's angles.
void rope_rotate_plain(float *x, const float *angles, uint32_t n_dims, enum rope_pairs pairs);
void rope_store_row_plain(const struct rope_store_args *args, const struct rope_row *row);
#endif
