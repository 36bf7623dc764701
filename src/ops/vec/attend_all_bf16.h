// attend_all_bf16.h - attend_all_vec.h with AVX-512 BF16 instructions, twice the products of fp32. Included
// by it for vec_avx512_bf16.c alone; error and order of a pair's sum as attend_bf16.h has them.
//
// Keys lie in panels of pairs of dims, [dims / 2][ALL_KEYS], values in pairs of keys, [n_keys / 2][dims];
// what is behind the last key or dim is 0. dims: head_dim in whole vectors.

#include "ops/vec/attend_all_weights.h"

SIMD static void pair_keys(const struct attend_all_block *b, uint32_t *panels)
{
    const uint32_t head_dim = b->args->head_dim, n = attend_all_padded(b->n_keys);

    for (uint32_t key = 0; key < n; key += ALL_KEYS, panels += ALL_KEYS / 2 * attend_all_dims(head_dim))
        for (uint32_t eight = 0; eight < ALL_KEYS; eight += 8)
            for (uint32_t d = 0; d < head_dim; d += VF) {
                __m256i pairs[8];
                for (uint32_t i = 0; i < 8; i++) {
                    uint32_t row = key + eight + i;
                    bool there = row < b->n_keys;
                    pairs[i] = (__m256i)_mm512_cvtneps_pbh(
                        vf_load_n(b->k + (there ? row * b->kv_stride : 0) + d, there ? head_dim - d : 0));
                }
                turn_8x8(pairs);
                for (uint32_t i = 0; i < 8; i++)
                    _mm256_storeu_si256((__m256i *)(void *)(panels + (d / 2 + i) * ALL_KEYS + eight),
                                        pairs[i]);
            }
}

SIMD static void pair_values(const struct attend_all_block *b, uint32_t *values)
{
    const uint32_t head_dim = b->args->head_dim, dims = attend_all_dims(head_dim);

    for (uint32_t key = 0; key < attend_all_padded(b->n_keys); key += 2, values += dims)
        for (uint32_t d = 0; d < head_dim; d += VF) {
            bool first = key < b->n_keys, second = key + 1 < b->n_keys;
            const float *v = b->v + (first ? key * b->kv_stride : 0) + d;
            _mm512_storeu_si512(
                values + d, pair_up(vf_load_n(v, first ? head_dim - d : 0),
                                    vf_load_n(v + (second ? b->kv_stride : 0), second ? head_dim - d : 0)));
        }
}

// A row of q, scaled for weights to the base 2.
VEC_INLINE void pair_row(const struct attend_all_block *b, const float *q, uint32_t *pairs)
{
    const uint32_t head_dim = b->args->head_dim;

    for (uint32_t d = 0; d < head_dim; d += VF)
        _mm256_storeu_si256((__m256i *)(void *)(pairs + d / 2),
                            (__m256i)_mm512_cvtneps_pbh(vf_mul(vf_load_n(q + d, head_dim - d),
                                                               vf_set(b->args->scale * 1.44269504f))));
}

VEC_INLINE void score_pairs(const struct attend_all_block *b, const uint32_t *q, const uint32_t *panels,
                            float *scores, const int R)
{
    const uint32_t n_pairs = attend_all_dims(b->args->head_dim) / 2, n = attend_all_padded(b->n_keys);

    for (uint32_t key = 0; key < n; key += ALL_KEYS) {
        vf sum[ATTEND_ALL_ROWS][2];
        UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = vf_set(0);
        for (uint32_t d = 0; d < n_pairs; d++, panels += ALL_KEYS) {
            __m512bh k[2] = { pairs_of(_mm512_loadu_si512(panels)),
                              pairs_of(_mm512_loadu_si512(panels + VF)) };
            UNROLL for (int r = 0; r < R; r++)
            {
                __m512bh x = pairs_of(_mm512_set1_epi32((int)q[r * n_pairs + d]));
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], k[0], x);
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], k[1], x);
            }
        }
        UNROLL for (int r = 0; r < R; r++)
        {
            vf_store(scores + (size_t)r * n + key, sum[r][0]);
            vf_store(scores + (size_t)r * n + key + VF, sum[r][1]);
        }
    }
}

// P: vectors of dims from d on, 2 or 1; the last one may be partial.
VEC_INLINE void sum_pairs(const struct attend_all_block *b, const float *weights, const uint32_t *values,
                          const float *row_sums, float *out, uint32_t d, const int R, const int P)
{
    const uint32_t n = attend_all_padded(b->n_keys), dims = attend_all_dims(b->args->head_dim);
    const uint32_t left = b->args->head_dim - d, *pairs = (const uint32_t *)(const void *)weights;
    vf sum[ATTEND_ALL_ROWS][2];

    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = vf_set(0);
    values += d;
    for (uint32_t j = 0; j < n / 2; j++, values += dims) {
        __m512i x[2] = { _mm512_loadu_si512(values),
                         P == 2 ? _mm512_loadu_si512(values + VF) : _mm512_setzero_si512() };
        UNROLL for (int r = 0; r < R; r++)
        {
            __m512bh weight = pairs_of(_mm512_set1_epi32((int)pairs[(size_t)r * n + j]));
            UNROLL for (int p = 0; p < P; p++) sum[r][p] =
                _mm512_dpbf16_ps(sum[r][p], weight, pairs_of(x[p]));
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++)
        vf_store_n(out + (size_t)r * b->stride + d + p * VF, vf_div(sum[r][p], vf_set(row_sums[r])),
                   left - (uint32_t)p * VF);
}

VEC_INLINE void rows_of_pairs(const struct attend_all_block *b, uint32_t row, const uint32_t *panels,
                              const uint32_t *values, float *scores, const int R)
{
    const uint32_t head_dim = b->args->head_dim, dims = attend_all_dims(head_dim);
    const uint32_t n = attend_all_padded(b->n_keys);
    uint32_t q[ATTEND_ALL_ROWS * ATTEND_ALL_MAX_DIMS / 2], d = 0;
    float *out = b->out + (size_t)row * b->stride, row_sums[ATTEND_ALL_ROWS];

    for (int r = 0; r < R; r++)
        pair_row(b, b->q + (row + (size_t)r) * b->stride, q + (uint32_t)r * dims / 2);
    score_pairs(b, q, panels, scores, R);
    for (int r = 0; r < R; r++)
        row_sums[r] = weigh_pairs(scores + (size_t)r * n, b->n_keys);
    for (; d + 2 * VF <= head_dim; d += 2 * VF)
        sum_pairs(b, scores, values, row_sums, out, d, R, 2);
    for (; d < head_dim; d += VF)
        sum_pairs(b, scores, values, row_sums, out, d, R, 1);
}

SIMD static void attend_all_pairs(const struct attend_all_block *b)
{
    const size_t pairs = (size_t)attend_all_padded(b->n_keys) / 2 * attend_all_dims(b->args->head_dim);
    uint32_t *panels = (uint32_t *)(void *)b->local, *values = panels + pairs, row = 0;
    float *scores = b->local + 2 * pairs;

    pair_keys(b, panels);
    pair_values(b, values);
    for (; row + ATTEND_ALL_ROWS <= b->n_rows; row += ATTEND_ALL_ROWS)
        rows_of_pairs(b, row, panels, values, scores, ATTEND_ALL_ROWS);
    for (; row < b->n_rows; row++)
        rows_of_pairs(b, row, panels, values, scores, 1);
}
