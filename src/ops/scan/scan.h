// scan: a recurrence along each sequence: a matrix S [d_k, d_v] for each value head is its state
//
//   t = softplus(dt[r][h] + dt_bias[h])        decay = exp(A[h] t)          A = a, or -exp(a) with SCAN_LOG_A
//   SCAN_DELTA, the gated delta rule (Yang et al., 2024):
//     q = q / sqrt(sum q^2 + 1e-6) / sqrt(d_k)      k = k / sqrt(sum k^2 + 1e-6)      b = sigmoid(beta[r][h])
//     S = decay S;     S = S + k (b (v - S^T k))^T;     out[r][h] = S^T q
//   else Mamba2 (Dao and Gu, 2024), with t clamped to [t_min, t_max] before it is used:
//     S = decay S + k (t v)^T;                          out[r][h] = S^T q + D[h] v
//
// in[r] holds q and k of n_k_heads heads and v of n_heads. Value head h uses key head h / (n_heads /
// n_k_heads), or h % n_k_heads with SCAN_TILED, as some files have their value heads. The state
// [n_heads][d_k][d_v] lies in a row of the layer's states from word state_at on (device/states.h); before a
// sequence's beginning it is 0. All in fp32, row after row: a row's result depends on the rows before it in
// its sequence alone. GPUs may take a prompt's rows in blocks, in another order of sums, but not for tapes
// that are invariant. Limits: d_k at most SCAN_MAX_DIM; n_heads a multiple of n_k_heads.
#pragma once
#include "base/lang.h"
#include "device/states.h"

#define SCAN_MAX_DIM 256u
#define SCAN_DELTA   1u
#define SCAN_LOG_A   2u
#define SCAN_TILED   4u
#define SCAN_EPS     1e-6f

struct scan_args {
    u32 n_heads, n_k_heads, d_k, d_v;
    u32 flags; // SCAN_*
    u32 in_cols, q_at, k_at, v_at;
    u32 dt_cols, dt_at, beta_cols, beta_at;
    u32 state_words, state_at;
    f32 t_min, t_max;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct scan_args) == 72);

SHARED_INLINE u32 scan_key_head(u32 n_heads, u32 n_k_heads, u32 flags, u32 head)
{
    return flags & SCAN_TILED ? head % n_k_heads : head / (n_heads / n_k_heads);
}

enum { SCAN_IN, SCAN_DT, SCAN_BETA, SCAN_A, SCAN_DT_BIAS, SCAN_D, SCAN_STATES, SCAN_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct scan {
    struct tensor out;                    // [rows, n_heads * d_v]
    struct tensor in;                     // [rows, in_cols]
    struct tensor dt;                     // [rows, dt_cols]
    struct tensor beta;                   // [rows, beta_cols]; of SCAN_DELTA alone
    const struct weight *a, *dt_bias, *d; // [n_heads]; d: NULL with SCAN_DELTA
    struct state_rows states;
    uint32_t state_at; // words
    uint32_t n_heads, n_k_heads, d_k, d_v;
    uint32_t q_at, k_at, v_at, dt_at, beta_at; // columns
    uint32_t flags;                            // SCAN_*
    float t_min, t_max;
};
void op_scan(struct tape *t, struct scan s);
// Fills args; false after tape_fail. For operations of which this is a part.
bool scan_check(struct tape *t, const struct scan *s, struct scan_args *args);
#endif
