// wide_x_avx2.h - what tile_wide_avx2.h works out for a row of X and 256 columns: where 16-bit sums begin and
// by what they are multiplied.
//
// 16 bits hold the sum of a lane's products for 32 columns of weights of 0 to 15 or -16 to 15, or for 16 of
// -32 to 31. Weights are stored as 0 to 31 and 0 to 63: a sum begins at minus 16 or 32 times its lane's
// columns of X, may wrap around on its way and is right in the end. What a block of 256 columns of a row of X
// brings for its units of 32 columns, or 16.
struct wide_x {
    int16_t factors[SUPER_SUBS][2];   // 1 << left
    int16_t begin[2 * SUPER_SUBS][2]; // of sums of 16 bits
    int32_t end[SUPER_SUBS];          // what begin took away: where weights have no offset, but 5 bits
};

// Sums of 16 columns for the even and the odd pairs of them, which are two lanes of 16 bits: in the low half
// for the first 16 columns of four times 32, in the high half for the second 16.
VEC_INLINE __m256i lane_sums(const int8_t *q)
{
    __m256i pairs[4], sums[2];

    UNROLL for (int i = 0; i < 4; i++) pairs[i] = _mm256_maddubs_epi16(
        _mm256_set1_epi8(1), _mm256_loadu_si256((const __m256i *)(const void *)(q + i * PANEL_SUB)));
    UNROLL for (int i = 0; i < 2; i++) sums[i] =
        _mm256_add_epi16(_mm256_unpacklo_epi32(pairs[2 * i], pairs[2 * i + 1]),
                         _mm256_unpackhi_epi32(pairs[2 * i], pairs[2 * i + 1]));
    return _mm256_add_epi16(_mm256_unpacklo_epi64(sums[0], sums[1]), _mm256_unpackhi_epi64(sums[0], sums[1]));
}

VEC_INLINE void wide_x_of(struct wide_x *out, const struct product_super *x, const enum quant Q)
{
    __m256i left = _mm256_loadu_si256((const __m256i *)(const void *)x->left),
            factors = _mm256_sllv_epi32(_mm256_set1_epi32(0x10001), left), low, high;
    const __m256i none = _mm256_setzero_si256();

    _mm256_storeu_si256((__m256i *)(void *)out->factors, factors);
    if (Q == QUANT_Q4_K)
        return;
    low = lane_sums(x->q);
    high = lane_sums(x->q + 4 * PANEL_SUB);
    if (Q == QUANT_Q6_K) {
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        low = _mm256_slli_epi16(_mm256_permutevar8x32_epi32(low, order), 5);
        high = _mm256_slli_epi16(_mm256_permutevar8x32_epi32(high, order), 5);
        _mm256_storeu_si256((__m256i *)(void *)out->begin, _mm256_sub_epi16(none, low));
        _mm256_storeu_si256((__m256i *)(void *)(out->begin + SUPER_SUBS), _mm256_sub_epi16(none, high));
        return;
    }
    __m256i by32 = _mm256_add_epi16(_mm256_permute2x128_si256(low, high, 0x20),
                                    _mm256_permute2x128_si256(low, high, 0x31));
    by32 = _mm256_slli_epi16(by32, 4);
    _mm256_storeu_si256((__m256i *)(void *)out->begin, _mm256_sub_epi16(none, by32));
    _mm256_storeu_si256((__m256i *)(void *)out->end, _mm256_madd_epi16(by32, factors));
}
