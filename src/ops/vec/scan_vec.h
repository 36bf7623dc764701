// scan_vec.h - a row of the scan (ops/scan), for one vector type (vec_*.h). Included by the vec_*.c, after
// rows_vec.h.
//
// A row takes one walk over its part of the state: what it adds waits until the next row reads that part, or
// until the state is given away. Four multiplications an element bound it: 33 us a row of 16 heads of
// 128 x 128 on a Zen 3 core, of which they are 21 (bench/results/2026-11-28-cpu-peers.md).
#include "ops/vec/row_kernels.h"

// A walk over 2 VF columns of the state: what the last row left to be done, and S^T k and S^T q.
struct scan_walk {
    const float *q, *k, *last_k;
    float *state; // [d_k][SCAN_TILE], from the first of the columns on
    vf decay, d[2];
    bool delta, written;
};
struct walk_sums {
    vf found[2], read[2];
};

VEC_INLINE void walk_line(const struct scan_walk *w, size_t i, struct walk_sums *sums)
{
    const vf q = vf_set(w->q[i]), k = vf_set(w->k[i]), last_k = w->written ? vf_set(w->last_k[i]) : k;

    for (uint32_t j = 0; j < 2; j++) {
        float *at = w->state + i * SCAN_TILE + j * VF;
        vf s = vf_load(at);
        if (w->written)
            vf_store(at, s = vf_fma(last_k, w->d[j], vf_mul(w->decay, s)));
        if (w->delta)
            sums->found[j] = vf_fma(k, s, sums->found[j]);
        sums->read[j] = vf_fma(q, s, sums->read[j]);
    }
}

// Two sums each, of even and of odd lines, so that no multiplication waits for the one before.
VEC_INLINE struct walk_sums state_walk(const struct scan_row *row, uint32_t c, bool delta, bool written)
{
    const struct scan_walk w = { .q = row->q,
                                 .k = row->k,
                                 .last_k = row->last_k,
                                 .state = &row->state[0][c],
                                 .decay = vf_set(row->last_decay),
                                 .d = { vf_load(row->last + c), vf_load(row->last + c + VF) },
                                 .delta = delta,
                                 .written = written };
    const vf zero = vf_set(0);
    const size_t d_k = row->d_k;
    struct walk_sums even = { { zero, zero }, { zero, zero } }, odd = even;

    for (size_t i = 0; i + 2 <= d_k; i += 2) {
        walk_line(&w, i, &even);
        walk_line(&w, i + 1, &odd);
    }
    if (d_k % 2)
        walk_line(&w, d_k - 1, &even);
    for (uint32_t j = 0; j < 2; j++) {
        even.found[j] = vf_add(even.found[j], odd.found[j]);
        even.read[j] = vf_add(even.read[j], odd.read[j]);
    }
    return even;
}

VEC_INLINE struct walk_sums state_sums(const struct scan_row *row, uint32_t c)
{
    if (row->written)
        return row->delta ? state_walk(row, c, true, true) : state_walk(row, c, false, true);
    return row->delta ? state_walk(row, c, true, false) : state_walk(row, c, false, false);
}

// d = factor (v - decay S^T k) and out = decay S^T q + q^T k d, with S as the row finds it.
SIMD static void VEC(scan_row)(struct scan_row *row)
{
    const struct scan_gates *g = &row->gates;
    const vf k_decay = vf_set(-g->decay * g->k_factor), q_decay = vf_set(g->decay * g->q_factor),
             factor = vf_set(g->factor), k_factor = vf_set(g->k_factor), qk = vf_set(g->qk),
             skip = vf_set(row->skip);

    for (uint32_t c = 0; c < row->n; c += 2 * VF) {
        struct walk_sums sums = state_sums(row, c);
        for (uint32_t j = 0, at = c; j < 2 && at < row->n; j++, at += VF) {
            vf v = vf_load_n(row->v + at, row->n - at),
               d = vf_mul(factor, row->delta ? vf_fma(k_decay, sums.found[j], v) : v),
               added = vf_fma(qk, d, vf_mul(skip, v));
            vf_store_n(row->out + at, vf_fma(q_decay, sums.read[j], added), row->n - at);
            vf_store(row->last + at, vf_mul(k_factor, d));
        }
    }
    row->last_k = row->k;
    row->last_decay = g->decay;
    row->written = true;
}

SIMD static void VEC(scan_give)(struct scan_row *row, float *to, size_t stride)
{
    const vf decay = vf_set(row->last_decay);

    for (uint32_t i = 0; i < row->d_k; i++)
        for (uint32_t c = 0; c < row->n; c += VF) {
            vf s = vf_fma(vf_set(row->last_k[i]), vf_load(row->last + c),
                          vf_mul(decay, vf_load(&row->state[i][c])));
            vf_store(&row->state[i][c], s);
            vf_store_n(to + i * stride + c, s, row->n - c);
        }
    row->written = false;
}

SIMD static float VEC(dot)(const float *a, const float *b, uint32_t n)
{
    vf sums[2] = { vf_set(0), vf_set(0) };

    for (uint32_t i = 0; i < n; i += 2 * VF)
        for (uint32_t j = 0, at = i; j < 2 && at < n; j++, at += VF)
            sums[j] = vf_fma(vf_load_n(a + at, n - at), vf_load_n(b + at, n - at), sums[j]);
    return vf_sum(vf_add(sums[0], sums[1]));
}
