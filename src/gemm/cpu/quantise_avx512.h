// quantise_avx512.h - rows of activations in the packings of product.h, for AVX-512. Included by
// tile_avx512.c.
//
// Blocks are taken four at a time, since the reductions and divisions of one leave most lanes idle. The bits
// are those of int8_rows.c.
#pragma once

// Folds the lanes of four vectors into one: its 128-bit part p holds, for each vector, OP over lanes p * 4 ..
// p * 4 + 3.
#define FOLD_2(OP, a, b) OP(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
#define FOLD_4(OP, a, b, c, d)                                    \
    OP(_mm512_unpacklo_epi64(FOLD_2(OP, a, b), FOLD_2(OP, c, d)), \
       _mm512_unpackhi_epi64(FOLD_2(OP, a, b), FOLD_2(OP, c, d)))
enum { BLOCKS_AT_ONCE = 4 };

// The largest magnitude of each block of 32, compared by its bits, so that a NaN wins and the whole block
// becomes NaN.
INLINE __m128 block_tops(const __m512 (*x)[2])
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i top[BLOCKS_AT_ONCE];

    UNROLL for (int b = 0; b < BLOCKS_AT_ONCE; b++) top[b] =
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x[b][0]), mask),
                         _mm512_and_si512(_mm512_castps_si512(x[b][1]), mask));
    __m512i all = FOLD_4(_mm512_max_epu32, top[0], top[1], top[2], top[3]);
    __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_castsi128_ps(_mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

// Sums wrap around: a NaN's integers are the smallest possible.
INLINE __m128i block_sums(const __m512i (*q)[2], const int h)
{
    __m512i all = FOLD_4(_mm512_add_epi32, q[0][h], q[1][h], q[2][h], q[3][h]);
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Four blocks at a time, since the reductions and divisions of one leave most lanes idle.
INLINE void quantise_blocks(const __m512 (*x)[2], const struct product_block out, const uint32_t n)
{
    __m512i q[BLOCKS_AT_ONCE][2];
    __m128 scale = _mm_div_ps(block_tops(x), _mm_set1_ps(127));
    __m128 inverse =
        _mm_maskz_div_ps(_mm_cmp_ps_mask(scale, _mm_set1_ps(1e-37f), _CMP_GT_OQ), _mm_set1_ps(1), scale);

    UNROLL for (int b = 0; b < BLOCKS_AT_ONCE; b++)
    {
        __m512 factor = _mm512_permutexvar_ps(_mm512_set1_epi32(b), _mm512_castps128_ps512(inverse));
        UNROLL for (int h = 0; h < 2; h++) q[b][h] = _mm512_cvtps_epi32(_mm512_mul_ps(x[b][h], factor));
    }
    const __m128i sum = _mm_add_epi32(block_sums(q, 0), block_sums(q, 1));
    const __mmask8 mask = (__mmask8)((1u << n) - 1);
    _mm_mask_storeu_ps(out.scale, mask, scale);
    _mm_mask_storeu_epi32(out.minus_sum, mask, _mm_sub_epi32(_mm_setzero_si128(), sum));
    _mm_mask_storeu_ps(out.sum, mask, _mm_mul_ps(scale, _mm_cvtepi32_ps(sum)));
    UNROLL for (uint32_t b = 0; b < n; b++) UNROLL for (int h = 0; h < 2; h++)
        _mm_storeu_si128((__m128i *)(void *)(out.q + b * PANEL_SUB + h * 16), _mm512_cvtepi32_epi8(q[b][h]));
}

SIMD static void quantise(const float *x, uint32_t n, void *out)
{
    const uint32_t n_blocks = n / PANEL_SUB;
    __m512 blocks[BLOCKS_AT_ONCE][2];
    uint32_t b = 0;

    for (; b + BLOCKS_AT_ONCE <= n_blocks; b += BLOCKS_AT_ONCE) {
        UNROLL for (int i = 0; i < BLOCKS_AT_ONCE * 2; i++, x += 16) blocks[i / 2][i % 2] =
            _mm512_loadu_ps(x);
        quantise_blocks(blocks, product_block(out, n, b), BLOCKS_AT_ONCE);
    }
    for (; b < n_blocks; b++, x += PANEL_SUB) {
        UNROLL for (int i = 0; i < BLOCKS_AT_ONCE * 2; i++) blocks[i / 2][i % 2] =
            _mm512_loadu_ps(x + 16 * (i % 2));
        quantise_blocks(blocks, product_block(out, n, b), 1);
    }
}

// The largest of 8 by its bits, in all lanes.
INLINE __m256 top_of(__m256 tops)
{
    __m256i top = _mm256_castps_si256(tops);

    top = _mm256_max_epu32(top, _mm256_permute2x128_si256(top, top, 1));
    top = _mm256_max_epu32(top, _mm256_shuffle_epi32(top, 0x4e));
    return _mm256_castsi256_ps(_mm256_max_epu32(top, _mm256_shuffle_epi32(top, 0xb1)));
}

// The number of times the scale may be halved for each 32 columns: SUPER_BITS where all are zero, 0 where one
// is not finite.
INLINE __m256i halvings(__m256 tops, __m256 top)
{
    __m256i n = _mm256_setzero_si256();

    UNROLL for (int i = 1; i <= SUPER_BITS; i++) n = _mm256_mask_add_epi32(
        n, _mm256_cmp_ps_mask(_mm256_mul_ps(tops, _mm256_set1_ps((float)(1 << i))), top, _CMP_LE_OQ), n,
        _mm256_set1_epi32(1));
    return n;
}

// Swaps numbers 1 and 2 of each four, the order of minimums.
INLINE __m256i in_pairs(__m256i words)
{
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
}

INLINE void put_super_sums(struct product_super *out, const __m512i (*q)[2], __m256i n_halvings)
{
    __m128i low[2] = { block_sums(q, 0), block_sums(q + BLOCKS_AT_ONCE, 0) },
            high[2] = { block_sums(q, 1), block_sums(q + BLOCKS_AT_ONCE, 1) };
    __m256i sums[2], all = _mm256_setr_m128i(_mm_add_epi32(low[0], high[0]), _mm_add_epi32(low[1], high[1]));

    UNROLL for (int i = 0; i < 2; i++) sums[i] =
        _mm256_setr_m128i(_mm_unpacklo_epi32(low[i], high[i]), _mm_unpackhi_epi32(low[i], high[i]));
    __m512i by16 = _mm512_inserti64x4(_mm512_castsi256_si512(sums[0]), sums[1], 1);
    __m512i twice = _mm512_cvtepu32_epi64(n_halvings);
    twice = _mm512_or_si512(twice, _mm512_slli_epi64(twice, 32));
    _mm512_storeu_si512(out->minus_sum, _mm512_sub_epi32(_mm512_setzero_si512(), by16));
    by16 = _mm512_srav_epi32(_mm512_slli_epi32(by16, SUPER_BITS - SUPER_SUM_SHIFT), twice);
    all = _mm256_srav_epi32(_mm256_slli_epi32(all, SUPER_BITS - SUPER_SUM_SHIFT), n_halvings);
    _mm256_storeu_si256((__m256i *)out->sums_16, in_pairs(_mm512_cvtepi32_epi16(by16)));
    _mm_storeu_si128((__m128i *)out->sums_32,
                     _mm256_castsi256_si128(in_pairs(_mm256_castsi128_si256(_mm256_cvtepi32_epi16(all)))));
}

SIMD static void quantise_super(const float *x, uint32_t n, struct product_super *out)
{
    __m512 blocks[SUPER_SUBS][2];
    __m512i q[SUPER_SUBS][2];

    for (; n >= PANEL_SUPER; n -= PANEL_SUPER, out++) {
        UNROLL for (int i = 0; i < SUPER_SUBS * 2; i++, x += 16) blocks[i / 2][i % 2] = _mm512_loadu_ps(x);
        __m256 tops = _mm256_setr_m128(block_tops(blocks), block_tops(blocks + BLOCKS_AT_ONCE)),
               top = top_of(tops);
        __m256i down = halvings(tops, top);
        float scale = _mm256_cvtss_f32(top) / 127, inverse = scale > 1e-37f ? 1 / scale : 0;
        __m256 factors = _mm256_mul_ps(_mm256_set1_ps(inverse),
                                       _mm256_cvtepi32_ps(_mm256_sllv_epi32(_mm256_set1_epi32(1), down)));
        UNROLL for (int i = 0; i < SUPER_SUBS * 2; i++)
        {
            __m512 factor = _mm512_permutexvar_ps(_mm512_set1_epi32(i / 2), _mm512_castps256_ps512(factors));
            q[i / 2][i % 2] = _mm512_cvtps_epi32(_mm512_mul_ps(blocks[i / 2][i % 2], factor));
            _mm_storeu_si128((__m128i *)(out->q + 16 * i), _mm512_cvtepi32_epi8(q[i / 2][i % 2]));
        }
        _mm256_storeu_si256((__m256i *)out->left, _mm256_sub_epi32(_mm256_set1_epi32(SUPER_BITS), down));
        put_super_sums(out, q, down);
        out->scale = scale / (1 << SUPER_BITS);
    }
}
