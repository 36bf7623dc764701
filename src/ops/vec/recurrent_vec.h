// recurrent_vec.h - the rows of operations that carry a state, for one vector type (vec_*.h), and the gated
// norm behind them; the scan is in scan_vec.h. Included by the vec_*.c, after rows_vec.h.
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
