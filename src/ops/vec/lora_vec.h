// lora_vec.h - the rows of lora for one vector type (vec_*.h). Included by the vec_*.c, after rows_vec.h.
//
// A rank's sum has four parts, whatever ranks are beside it; a column takes its ranks in their order.
#include "ops/vec/row_kernels.h"

// One rank's sum over the row.
VEC_INLINE float rank_sum(const float *in, const float *a, uint32_t n_cols)
{
    vf sum[4] = { vf_set(0), vf_set(0), vf_set(0), vf_set(0) };
    uint32_t k = 0;

    for (; k + 4 * VF <= n_cols; k += 4 * VF)
        for (uint32_t i = 0; i < 4; i++)
            sum[i] = vf_fma(vf_load(in + k + i * VF), vf_load(a + k + i * VF), sum[i]);
    for (uint32_t i = 0; k < n_cols; k += VF, i++)
        sum[i] = vf_fma(vf_load_n(in + k, n_cols - k), vf_load_n(a + k, n_cols - k), sum[i]);
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

// Two ranks at a time share the row's loads.
VEC_INLINE void rank_sums(const float *in, const float *a, uint32_t n_cols, float found[2])
{
    vf sum[2][4];
    uint32_t k = 0;

    for (uint32_t i = 0; i < 4; i++)
        sum[0][i] = sum[1][i] = vf_set(0);
    for (; k + 4 * VF <= n_cols; k += 4 * VF)
        for (uint32_t i = 0; i < 4; i++) {
            vf x = vf_load(in + k + i * VF);
            sum[0][i] = vf_fma(x, vf_load(a + k + i * VF), sum[0][i]);
            sum[1][i] = vf_fma(x, vf_load(a + n_cols + k + i * VF), sum[1][i]);
        }
    for (uint32_t i = 0; k < n_cols; k += VF, i++) {
        vf x = vf_load_n(in + k, n_cols - k);
        sum[0][i] = vf_fma(x, vf_load_n(a + k, n_cols - k), sum[0][i]);
        sum[1][i] = vf_fma(x, vf_load_n(a + n_cols + k, n_cols - k), sum[1][i]);
    }
    for (uint32_t j = 0; j < 2; j++)
        found[j] = vf_sum(vf_add(vf_add(sum[j][0], sum[j][1]), vf_add(sum[j][2], sum[j][3])));
}

SIMD static void VEC(lora_down)(const struct lora_down *d)
{
    for (uint32_t j = 0; j < d->n_ranks;) {
        const float *a = d->a + (size_t)j * d->n_cols;
        float scale = d->scales[d->owners[j]];
        bool pair = j + 1 < d->n_ranks && d->owners[j + 1] == d->owners[j];
        float found[2] = { 0, 0 };
        if (scale != 0 && pair)
            rank_sums(d->in, a, d->n_cols, found);
        else if (scale != 0)
            found[0] = rank_sum(d->in, a, d->n_cols);
        for (uint32_t i = 0; i < 1u + pair; i++)
            d->h[j + i] = scale != 0 ? scale * found[i] : 0;
        j += 1 + pair;
    }
}

SIMD static void VEC(lora_up)(const struct lora_up *u)
{
    uint32_t n = 0;

    for (; n + 4 * VF <= u->n; n += 4 * VF) {
        vf sum[4];
        for (uint32_t i = 0; i < 4; i++)
            sum[i] = vf_load(u->out + n + i * VF);
        for (uint32_t j = 0; j < u->n_ranks; j++) {
            const float *b = u->b + (size_t)j * u->stride + n;
            if (u->h[j] == 0)
                continue;
            for (uint32_t i = 0; i < 4; i++)
                sum[i] = vf_fma(vf_set(u->h[j]), vf_load(b + i * VF), sum[i]);
        }
        for (uint32_t i = 0; i < 4; i++)
            vf_store(u->out + n + i * VF, sum[i]);
    }
    for (; n < u->n; n += VF) {
        vf sum = vf_load_n(u->out + n, u->n - n);
        for (uint32_t j = 0; j < u->n_ranks; j++)
            if (u->h[j] != 0)
                sum = vf_fma(vf_set(u->h[j]), vf_load_n(u->b + (size_t)j * u->stride + n, u->n - n), sum);
        vf_store_n(u->out + n, sum, u->n - n);
    }
}
