// attend_all_vec.h - bidirectional attention of a block of rows for one vector type. Included once by each
// vec_*.c.
//
// Keys are transposed into panels [head_dim][2 * VF keys]. ALL_ROWS rows at a time: all their scores, the
// weights, then the sum of values. Every row sums in the same order, whatever rows are beside it.
enum { ALL_KEYS = 2 * VF };
STATIC_ASSERT((int)ALL_KEYS <= (int)ATTEND_ALL_PANEL);

// The keys behind the last one are 0.
SIMD static void turn_keys(const struct attend_all_block *b, float *panels)
{
    const uint32_t head_dim = b->args->head_dim;

    for (uint32_t key = 0; key < b->n_keys; key += ALL_KEYS, panels += (size_t)ALL_KEYS * head_dim) {
        uint32_t n = b->n_keys - key < ALL_KEYS ? b->n_keys - key : ALL_KEYS;
        for (uint32_t i = 0; i < ALL_KEYS; i++) {
            const float *k = b->k + (size_t)(key + (i < n ? i : 0)) * b->kv_stride;
            for (uint32_t d = 0; d < head_dim; d++)
                panels[(size_t)d * ALL_KEYS + i] = i < n ? k[d] : 0;
        }
    }
}

// scores [R][n], of keys in panels.
VEC_INLINE void score_all(const struct attend_all_block *b, const float *q, const float *panels,
                          float *scores, const int R)
{
    const uint32_t head_dim = b->args->head_dim, n = attend_all_padded(b->n_keys);
    const vf scale = vf_set(b->args->scale);

    for (uint32_t key = 0; key < b->n_keys; key += ALL_KEYS) {
        vf sum[ATTEND_ALL_ROWS][2];
        UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = vf_set(0);
        for (uint32_t d = 0; d < head_dim; d++, panels += ALL_KEYS) {
            vf k[2] = { vf_load(panels), vf_load(panels + VF) };
            UNROLL for (int r = 0; r < R; r++)
            {
                vf x = vf_set(q[(size_t)r * b->stride + d]);
                sum[r][0] = vf_fma(x, k[0], sum[r][0]);
                sum[r][1] = vf_fma(x, k[1], sum[r][1]);
            }
        }
        UNROLL for (int r = 0; r < R; r++)
        {
            vf_store(scores + (size_t)r * n + key, vf_mul(sum[r][0], scale));
            vf_store(scores + (size_t)r * n + key + VF, vf_mul(sum[r][1], scale));
        }
    }
}

// Keys out of reach of row i get no weight. The sums stay in their order.
VEC_INLINE void mask_far(const struct attend_all_block *b, uint32_t i, float *scores)
{
    const uint32_t reach = b->args->reach;

    for (uint32_t j = 0; j + reach < i; j++)
        scores[j] = -INFINITY;
    for (uint32_t j = i + reach + 1; j < b->n_keys; j++)
        scores[j] = -INFINITY;
}

// Turns scores of n keys into weights, 0 behind the last one; returns their sum.
VEC_INLINE float weigh_all(float *scores, uint32_t n)
{
    vf row_max = vf_set(-INFINITY), row_sum = vf_set(0);
    uint32_t whole = n / VF * VF;

    for (uint32_t i = 0; i < whole; i += VF)
        row_max = vf_max(vf_load(scores + i), row_max);
    if (whole < n)
        row_max = vf_max(vf_first(vf_load(scores + whole), vf_set(-INFINITY), n - whole), row_max);
    row_max = vf_set(-vf_top(row_max));
    for (uint32_t i = 0; i < n; i += VF) {
        vf weight = vf_first(vf_exp(vf_add(vf_load(scores + i), row_max)), vf_set(0), n - i);
        vf_store(scores + i, weight);
        row_sum = vf_add(row_sum, weight);
    }
    return vf_sum(row_sum);
}

// P: vectors of dims from d on, 2 or 1; the last one may be partial.
VEC_INLINE void sum_values(const struct attend_all_block *b, const float *weights, const float *row_sums,
                           float *out, uint32_t d, const int R, const int P)
{
    const uint32_t n = attend_all_padded(b->n_keys), left = b->args->head_dim - d;
    const float *v = b->v + d;
    vf sum[ATTEND_ALL_ROWS][2];

    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = vf_set(0);
    for (uint32_t j = 0; j < b->n_keys; j++, v += b->kv_stride) {
        vf x[2] = { P == 2 ? vf_load(v) : vf_load_n(v, left), P == 2 ? vf_load(v + VF) : vf_set(0) };
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) sum[r][p] =
            vf_fma(vf_set(weights[(size_t)r * n + j]), x[p], sum[r][p]);
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++)
        vf_store_n(out + (size_t)r * b->stride + d + p * VF, vf_div(sum[r][p], vf_set(row_sums[r])),
                   left - (uint32_t)p * VF);
}

VEC_INLINE void rows_of_all(const struct attend_all_block *b, uint32_t row, const float *panels,
                            float *scores, const int R)
{
    const uint32_t head_dim = b->args->head_dim;
    float *out = b->out + (size_t)row * b->stride, row_sums[ATTEND_ALL_ROWS];
    uint32_t d = 0;

    score_all(b, b->q + (size_t)row * b->stride, panels, scores, R);
    for (int r = 0; r < R && b->args->reach; r++)
        mask_far(b, b->first + row + (uint32_t)r, scores + (size_t)r * attend_all_padded(b->n_keys));
    for (int r = 0; r < R; r++)
        row_sums[r] = weigh_all(scores + (size_t)r * attend_all_padded(b->n_keys), b->n_keys);
    for (; d + 2 * VF <= head_dim; d += 2 * VF)
        sum_values(b, scores, row_sums, out, d, R, 2);
    for (; d < head_dim; d += VF)
        sum_values(b, scores, row_sums, out, d, R, 1);
}

#if VEC_BF16
#include "ops/vec/attend_all_bf16.h"
#endif

SIMD static void VEC(attend_all)(const struct attend_all_block *b)
{
#if VEC_BF16
    if (b->args->half && b->args->reach == 0) {
        attend_all_pairs(b);
        return;
    }
#endif
    float *panels = b->local, *scores = panels + (size_t)attend_all_padded(b->n_keys) * b->args->head_dim;
    uint32_t row = 0;

    turn_keys(b, panels);
    for (; row + ATTEND_ALL_ROWS <= b->n_rows; row += ATTEND_ALL_ROWS)
        rows_of_all(b, row, panels, scores, ATTEND_ALL_ROWS);
    for (; row < b->n_rows; row++)
        rows_of_all(b, row, panels, scores, 1);
}
