// recurrent_vec.h - the rows of operations that carry a state, for one vector type (vec_*.h), and the gated
// norm behind them. Included by the vec_*.c, after rows_vec.h.
#include "ops/vec/row_kernels.h"

SIMD static void VEC(conv_row)(const struct conv_row *row)
{
    for (uint32_t c = 0; c < row->n; c += VF) {
        uint32_t n = row->n - c, last = row->kernel - 1;
        vf u = vf_load_n(row->in + c, n), sum = row->bias ? vf_load_n(row->bias + c, n) : vf_set(0);
        if (row->factor)
            u = vf_mul(u, vf_load_n(row->factor + c, n));
        for (uint32_t j = 0; j < last; j++) {
            vf before = vf_load(&row->past[j][c]);
            sum = vf_fma(vf_load(&row->w[j][c]), before, sum);
            if (j > 0)
                vf_store(&row->past[j - 1][c], before);
        }
        sum = vf_fma(vf_load(&row->w[last][c]), u, sum);
        vf_store(&row->past[last - 1][c], u);
        if (row->silu)
            sum = activation(ACTIVATION_SILU, sum);
        vf_store_n(row->out + c, row->gate ? vf_mul(sum, vf_load_n(row->gate + c, n)) : sum, n);
    }
}

// Of 2 VF columns from c on: S^T k. Four sums, so that no multiplication waits for the one before.
VEC_INLINE void state_times_key(const struct scan_row *row, uint32_t c, vf found[2])
{
    vf sum[4][2];
    uint32_t i = 0;

    for (uint32_t j = 0; j < 4; j++)
        sum[j][0] = sum[j][1] = vf_set(0);
    for (; i + 4 <= row->d_k; i += 4)
        for (uint32_t j = 0; j < 4; j++) {
            vf k = vf_set(row->k[i + j]);
            sum[j][0] = vf_fma(k, vf_load(&row->state[i + j][c]), sum[j][0]);
            sum[j][1] = vf_fma(k, vf_load(&row->state[i + j][c + VF]), sum[j][1]);
        }
    for (; i < row->d_k; i++) {
        vf k = vf_set(row->k[i]);
        sum[0][0] = vf_fma(k, vf_load(&row->state[i][c]), sum[0][0]);
        sum[0][1] = vf_fma(k, vf_load(&row->state[i][c + VF]), sum[0][1]);
    }
    for (uint32_t j = 0; j < 2; j++)
        found[j] = vf_add(vf_add(sum[0][j], sum[1][j]), vf_add(sum[2][j], sum[3][j]));
}

// S = decay S + k d^T, out = S^T q; two sums of each column.
VEC_INLINE void state_move(const struct scan_row *row, uint32_t c, const vf d[2], vf out[2])
{
    const vf decay = vf_set(row->decay);
    vf sum[2][2] = { { vf_set(0), vf_set(0) }, { vf_set(0), vf_set(0) } };

    for (uint32_t i = 0; i < row->d_k; i++) {
        vf k = vf_set(row->k[i]), q = vf_set(row->q[i]);
        for (uint32_t j = 0; j < 2; j++) {
            float *at = &row->state[i][c + j * VF];
            vf s = vf_fma(k, d[j], vf_mul(decay, vf_load(at)));
            vf_store(at, s);
            sum[i % 2][j] = vf_fma(q, s, sum[i % 2][j]);
        }
    }
    for (uint32_t j = 0; j < 2; j++)
        out[j] = vf_add(sum[0][j], sum[1][j]);
}

SIMD static void VEC(scan_row)(const struct scan_row *row)
{
    const vf minus_decay = vf_set(-row->decay), factor = vf_set(row->factor), skip = vf_set(row->skip);

    for (uint32_t c = 0; c < row->n; c += 2 * VF) {
        uint32_t n[2] = { row->n - c, row->n > c + VF ? row->n - c - VF : 0 };
        vf v[2], d[2], found[2], out[2];
        for (uint32_t j = 0; j < 2; j++)
            v[j] = n[j] ? vf_load_n(row->v + c + j * VF, n[j]) : vf_set(0);
        if (row->delta)
            state_times_key(row, c, found);
        for (uint32_t j = 0; j < 2; j++)
            d[j] = vf_mul(factor, row->delta ? vf_fma(minus_decay, found[j], v[j]) : v[j]);
        state_move(row, c, d, out);
        for (uint32_t j = 0; j < 2; j++)
            if (n[j])
                vf_store_n(row->out + c + j * VF, vf_fma(skip, v[j], out[j]), n[j]);
    }
}

VEC_INLINE vf gate_of(const struct gated_norm_group *g, uint32_t c)
{
    vf z = vf_load_n(g->gate + c, g->n - c);
    return vf_div(g->sigmoid ? vf_set(1) : z, vf_add(vf_set(1), vf_exp(vf_mul(vf_set(-1), z))));
}

SIMD static void VEC(gated_norm)(const struct gated_norm_group *g)
{
    vf squares = vf_set(0), factor = vf_set(1);

    for (uint32_t c = 0; c < g->n && g->scale; c += VF) {
        vf x = vf_load_n(g->in + c, g->n - c);
        x = g->gate_first ? vf_mul(x, gate_of(g, c)) : x;
        squares = vf_fma(x, vf_first(x, vf_set(0), g->n - c), squares);
    }
    if (g->scale)
        factor = vf_set(1 / sqrtf(vf_sum(squares) / (float)g->n + g->eps));
    for (uint32_t c = 0; c < g->n; c += VF) {
        uint32_t n = g->n - c;
        vf y = vf_mul(vf_mul(vf_load_n(g->in + c, n), gate_of(g, c)), factor);
        vf_store_n(g->out + c, g->scale ? vf_mul(y, vf_load_n(g->scale + c, n)) : y, n);
    }
}
