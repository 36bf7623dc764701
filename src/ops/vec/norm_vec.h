// norm_vec.h - the norms of a row for one vector type (vec_*.h). Included by rows_vec.h.
//
// Sums over a row take a fixed tree that depends on its length alone.
#include <math.h>
#include "ops/vec/row_kernels.h"

SIMD static float VEC(norm_factor)(const float *in, uint32_t n_cols, float eps)
{
    vf sum[4] = { vf_set(0), vf_set(0), vf_set(0), vf_set(0) };
    uint32_t c = 0;

    for (; c + 4 * VF <= n_cols; c += 4 * VF)
        for (uint32_t i = 0; i < 4; i++) {
            vf x = vf_load(in + c + i * VF);
            sum[i] = vf_fma(x, x, sum[i]);
        }
    for (; c < n_cols; c += VF) {
        vf x = vf_load_n(in + c, n_cols - c);
        sum[0] = vf_fma(x, x, sum[0]);
    }
    float total = vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    return 1 / sqrtf(total / (float)n_cols + eps);
}

SIMD static void VEC(rmsnorm)(const float *in, const float *scale, float *out, uint32_t n_cols, float eps)
{
    vf factor = vf_set(VEC(norm_factor)(in, n_cols, eps));

    for (uint32_t c = 0; c < n_cols; c += VF) {
        uint32_t n = n_cols - c;
        vf_store_n(out + c, vf_mul(vf_mul(vf_load_n(in + c, n), factor), vf_load_n(scale + c, n)), n);
    }
}

SIMD static void VEC(norm_add)(const struct norm_row *row)
{
    vf factor = vf_set(VEC(norm_factor)(row->in, row->n_cols, row->eps)), gain = vf_set(row->gain);

    for (uint32_t c = 0; c < row->n_cols; c += VF) {
        uint32_t n = row->n_cols - c;
        vf x = vf_mul(vf_load_n(row->in + c, n), factor);
        if (row->scale)
            x = vf_mul(x, vf_load_n(row->scale + c, n));
        if (row->add)
            x = vf_add(x, vf_load_n(row->add + c, n));
        vf_store_n(row->out + c, vf_mul(x, gain), n);
    }
}

SIMD static void VEC(layernorm)(const struct layernorm_row *row)
{
    vf sum[4] = { vf_set(0), vf_set(0), vf_set(0), vf_set(0) },
       squares[4] = { vf_set(0), vf_set(0), vf_set(0), vf_set(0) };
    const uint32_t n_cols = row->n_cols;

    for (uint32_t c = 0; c < n_cols; c += VF) {
        uint32_t i = c / VF % 4;
        sum[i] = vf_add(vf_load_n(row->in + c, n_cols - c), sum[i]);
    }
    vf mean = vf_set(vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]))) / (float)n_cols),
       minus = vf_mul(vf_set(-1), mean);
    for (uint32_t c = 0; c < n_cols; c += VF) {
        uint32_t i = c / VF % 4, n = n_cols - c;
        vf x = vf_first(vf_add(vf_load_n(row->in + c, n), minus), vf_set(0), n);
        squares[i] = vf_fma(x, x, squares[i]);
    }
    float total = vf_sum(vf_add(vf_add(squares[0], squares[1]), vf_add(squares[2], squares[3])));
    vf factor = vf_set(1 / sqrtf(total / (float)n_cols + row->eps));
    for (uint32_t c = 0; c < n_cols; c += VF) {
        uint32_t n = n_cols - c;
        vf x = vf_mul(vf_add(vf_load_n(row->in + c, n), minus), factor);
        vf_store_n(row->out + c, vf_fma(x, vf_load_n(row->scale + c, n), vf_load_n(row->bias + c, n)), n);
    }
}
