// quantise_avx2.h - rows of activations in blocks of 256, for AVX2. Included by tile_avx2.c.
//
// The eight times 32 columns of a block are reduced together, one lane each, since the reductions and
// divisions of one leave most lanes idle. The bits are those of int8_rows.c.
#pragma once

// Folds the lanes of four vectors into one: each of its 128-bit halves holds, for each vector, OP over the
// four lanes of that half.
#define FOLD_2(OP, a, b) OP(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b))
#define FOLD_4(OP, v)                                                         \
    OP(_mm256_unpacklo_epi64(FOLD_2(OP, v[0], v[1]), FOLD_2(OP, v[2], v[3])), \
       _mm256_unpackhi_epi64(FOLD_2(OP, v[0], v[1]), FOLD_2(OP, v[2], v[3])))
// And the halves of two.
#define FOLD_8(OP, low, high) \
    OP(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))

// The largest magnitude of each 32 columns. Magnitudes are compared as integers, so that NaN is the largest.
VEC_INLINE __m256i super_tops(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(INT32_MAX);
    __m256i top[SUPER_SUBS];

    UNROLL for (int b = 0; b < SUPER_SUBS; b++)
    {
        top[b] = _mm256_setzero_si256();
        UNROLL for (int i = 0; i < PANEL_SUB; i += VF) top[b] = _mm256_max_epi32(
            top[b], _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + b * PANEL_SUB + i)), mask));
    }
    __m256i low = FOLD_4(_mm256_max_epi32, top), high = FOLD_4(_mm256_max_epi32, (top + 4));
    return FOLD_8(_mm256_max_epi32, low, high);
}

// The largest of 8, in all lanes.
VEC_INLINE __m256i top_of(__m256i top)
{
    top = _mm256_max_epi32(top, _mm256_permute2x128_si256(top, top, 1));
    top = _mm256_max_epi32(top, _mm256_shuffle_epi32(top, 0x4e));
    return _mm256_max_epi32(top, _mm256_shuffle_epi32(top, 0xb1));
}

// The number of times the scale may be halved for each 32 columns.
VEC_INLINE __m256i halvings(__m256 tops, __m256 top)
{
    __m256i n = _mm256_setzero_si256();

    UNROLL for (int i = 1; i <= SUPER_BITS; i++) n =
        _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(
                                _mm256_mul_ps(tops, _mm256_set1_ps((float)(1 << i))), top, _CMP_LE_OQ)));
    return n;
}

// The sum of q << left, divided by 4.
VEC_INLINE __m256i left_sums(__m256i sums, __m256i n_halvings)
{
    return _mm256_srav_epi32(_mm256_slli_epi32(sums, SUPER_BITS - SUPER_SUM_SHIFT), n_halvings);
}

// Packs two vectors to int16 in the order of sums_16 and sums_32: elements 1 and 2 of each four are swapped.
VEC_INLINE __m256i in_pairs(__m256i a, __m256i b)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
}

// sums: of 4 columns, 8 for each 32.
VEC_INLINE void put_super_sums(struct product_super *out, const __m256i *sums, __m256i n_halvings)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), none = _mm256_setzero_si256();
    __m256i low = FOLD_4(_mm256_add_epi32, sums), high = FOLD_4(_mm256_add_epi32, (sums + 4));
    __m256i all = left_sums(FOLD_8(_mm256_add_epi32, low, high), n_halvings);

    low = _mm256_permutevar8x32_epi32(low, order);
    high = _mm256_permutevar8x32_epi32(high, order);
    _mm256_storeu_si256((__m256i *)(void *)out->minus_sum, _mm256_sub_epi32(none, low));
    _mm256_storeu_si256((__m256i *)(void *)(out->minus_sum + SUPER_SUBS), _mm256_sub_epi32(none, high));
    n_halvings = _mm256_permute4x64_epi64(n_halvings, 0xd8);
    low = left_sums(low, _mm256_unpacklo_epi32(n_halvings, n_halvings));
    high = left_sums(high, _mm256_unpackhi_epi32(n_halvings, n_halvings));
    _mm256_storeu_si256((__m256i *)(void *)out->sums_16, in_pairs(low, high));
    _mm_storeu_si128((__m128i *)(void *)out->sums_32, _mm256_castsi256_si128(in_pairs(all, all)));
}

SIMD static void quantise_super(const float *x, uint32_t n, struct product_super *out)
{
    float factors[SUPER_SUBS];
    __m256i sums[SUPER_SUBS];

    for (; n >= PANEL_SUPER; n -= PANEL_SUPER, x += PANEL_SUPER, out++) {
        __m256i tops = super_tops(x), top = top_of(tops);
        __m256i down = halvings(_mm256_castsi256_ps(tops), _mm256_castsi256_ps(top));
        float scale = _mm256_cvtss_f32(_mm256_castsi256_ps(top)) / 127,
              inverse = scale > 1e-37f ? 1 / scale : 0;
        __m256i powers = _mm256_sllv_epi32(_mm256_set1_epi32(1), down);
        _mm256_storeu_ps(factors, _mm256_mul_ps(_mm256_set1_ps(inverse), _mm256_cvtepi32_ps(powers)));
        UNROLL for (int b = 0; b < SUPER_SUBS; b++)
        {
            __m256i q = rounded(x + b * PANEL_SUB, factors[b]);
            _mm256_storeu_si256((__m256i *)(void *)(out->q + b * PANEL_SUB), q);
            sums[b] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
        }
        _mm256_storeu_si256((__m256i *)(void *)out->left,
                            _mm256_sub_epi32(_mm256_set1_epi32(SUPER_BITS), down));
        put_super_sums(out, sums, down);
        out->scale = scale / (1 << SUPER_BITS);
    }
}
