// attend_bf16.h - the parts of attention that use AVX-512 BF16 instructions: K and V in pairs, as BF16 pages
// hold them. Included by attend_vec.h for vec_avx512_bf16.c alone.
//
// VDPBF16PS adds two products to a sum, the odd one first, each rounded, and treats subnormal numbers as
// zero. A pair is added as a whole or not at all, so the grouping of columns does not matter. Products of
// bf16 numbers have an error of about 1e-5 (squared, relative), less than int8 activations have elsewhere.
enum { DOT_FORMAT = KV_BF16 }; // odd formats are converted to it

VEC_INLINE __m512bh pairs_of(__m512i v)
{
    return (__m512bh)v;
}

// Two vectors of floats as bf16 pairs, `low` in the lower halves. To nearest even; NaN stays NaN.
VEC_INLINE __m512i pair_up(vf low, vf high)
{
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i words =
        _mm512_or_si512(i, _mm512_slli_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(16)), 16));
    return _mm512_permutexvar_epi16(words, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

// Transposes lines of 8 dwords to columns.
VEC_INLINE void turn_8x8(__m256i *v)
{
    __m256i t[8];

    UNROLL for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) UNROLL for (int j = 0; j < 2; j++)
    {
        v[i + 2 * j] = _mm256_unpacklo_epi64(t[i + j], t[i + j + 2]);
        v[i + 2 * j + 1] = _mm256_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
    UNROLL for (int i = 0; i < 8; i++) v[i] = t[i];
}

// q of n columns, scaled, as [head_dim / 2][VEC_COLUMNS] pairs.
VEC_INLINE void pair_q(const float *const *q, uint32_t n, uint32_t head_dim, float scale, float *out)
{
    uint32_t *to = (uint32_t *)(void *)out;

    for (uint32_t d = 0; d < head_dim; d += VF) {
        __m256i pairs[VEC_COLUMNS];
        UNROLL for (uint32_t c = 0; c < VEC_COLUMNS; c++) // missing columns repeat the first
            pairs[c] = (__m256i)_mm512_cvtneps_pbh(
                vf_mul(vf_load_n(q[c < n ? c : 0] + d, head_dim - d), vf_set(scale)));
        turn_8x8(pairs);
        for (uint32_t i = 0; i < VF / 2 && d + 2 * i < head_dim; i++)
            _mm256_storeu_si256((__m256i *)(void *)(to + (d / 2 + i) * VEC_COLUMNS), pairs[i]);
    }
}

// Scores of VEC_PAGES pages from key `at` of the block on, for C columns.
VEC_INLINE void score_pages_bf16(const struct columns *s, const struct group *g, uint32_t at, const int C)
{
    uint32_t head_dim = s->run->args->pages.head_dim;
    const uint32_t *q = (const uint32_t *)(s->q + (size_t)g->index * head_dim * VEC_COLUMNS),
                   *q_end = q + head_dim / 2 * VEC_COLUMNS;
    const unsigned char *const *k = s->k + at / PAGE_TOKENS, *const *ask = s->ask_by_k + at / PAGE_TOKENS;
    vf sum[VEC_COLUMNS][VEC_PAGES];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < VEC_PAGES; p++) sum[c][p] = vf_set(0);
    for (size_t line = 0; q < q_end; q += VEC_COLUMNS, line += 64) {
        __m512i x[VEC_PAGES];
        UNROLL for (int p = 0; p < VEC_PAGES; p++)
        {
            __builtin_prefetch(ask[p] + line);
            x[p] = _mm512_loadu_si512(k[p] + line);
        }
        UNROLL for (int c = 0; c < C; c++)
        {
            __m512i pair = _mm512_set1_epi32((int)q[c]);
            UNROLL for (int p = 0; p < VEC_PAGES; p++) sum[c][p] =
                _mm512_dpbf16_ps(sum[c][p], pairs_of(x[p]), pairs_of(pair));
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < VEC_PAGES; p++)
        vf_store(s->scores + c * ATTEND_KEYS + at + p * VF, sum[c][p]);
}

// As add_values, over pairs of keys. The range may end within a pair for single columns: the other key is
// masked.
VEC_INLINE void add_values_bf16(const struct columns *s, const struct attend_part a, const int C, const int P)
{
    uint32_t row_bytes = s->value_dims * 4, left = s->value_dims - a.d;
    float *out = s->out + a.column * (size_t)s->dims + a.d;
    vf sum[VEC_COLUMNS][4];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < P; p++) sum[c][p] =
        vf_load(out + c * s->dims + p * VF);
    for (uint32_t i = a.from & ~1u, end; i < a.to; i = end) {
        size_t at = i % PAGE_TOKENS / 2 * row_bytes + a.d * 4;
        const unsigned char *v = s->v[i / PAGE_TOKENS] + at, *ask = s->ask_by_v[i / PAGE_TOKENS] + at;
        end = (i / PAGE_TOKENS + 1) * PAGE_TOKENS;
        end = end < a.to ? end : a.to;
        for (; i < end; i += 2, v += row_bytes, ask += row_bytes) {
            const uint32_t *w = (const uint32_t *)(s->scores + (size_t)a.c0 * ATTEND_KEYS) + i / 2;
            UNROLL for (int p = 0; p < P; p++)
            {
                __m512i x =
                    P == 1 ? _mm512_maskz_loadu_epi32(vf_mask(left), v) : _mm512_loadu_si512(v + p * 64);
                __builtin_prefetch(ask + p * 64);
                if (C == 1 && i < a.from)
                    x = _mm512_slli_epi32(_mm512_srli_epi32(x, 16), 16);
                if (C == 1 && i + 1 == a.to)
                    x = _mm512_srli_epi32(_mm512_slli_epi32(x, 16), 16);
                UNROLL for (int c = 0; c < C; c++) sum[c][p] = _mm512_dpbf16_ps(
                    sum[c][p], pairs_of(_mm512_set1_epi32((int)w[c * ATTEND_KEYS])), pairs_of(x));
            }
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < P; p++)
        vf_store(out + c * s->dims + p * VF, sum[c][p]);
}

// 16 bytes number i of each dword, as floats.
VEC_INLINE vf byte_floats(__m512i fours, const int i)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(fours, (unsigned)(24 - 8 * i)), 24));
}

// 16 groups of 4 numbers, a group per dword, times their scales, as pairs: the first two of each group to
// `first`, the others to `second`.
VEC_INLINE void convert_fours(const unsigned char *from, const vf *scale, unsigned char *first,
                              unsigned char *second)
{
    __m512i fours = _mm512_loadu_si512(from);
    _mm512_storeu_si512(
        first, pair_up(vf_mul(byte_floats(fours, 0), scale[0]), vf_mul(byte_floats(fours, 1), scale[1])));
    _mm512_storeu_si512(
        second, pair_up(vf_mul(byte_floats(fours, 2), scale[2]), vf_mul(byte_floats(fours, 3), scale[3])));
}

// Converts a page of one head from Q8_0 to BF16: lines of 4 dims of K become two of 2, lines of 4 tokens of V
// two of 2.
VEC_INLINE void convert_page(const struct page_shape *s, uint32_t format, bool is_v,
                             const unsigned char *from, unsigned char *to)
{
    // [head_dim / 32][PAGE_TOKENS]
    const uint16_t *scales = (const uint16_t *)(from + PAGE_TOKENS * s->head_dim);
    const uint32_t line = (is_v ? s->head_dim : PAGE_TOKENS) * 4; // bytes

    (void)format;
    for (uint32_t d = 0; d < s->head_dim; d += KV_Q8_0_BLOCK, scales += PAGE_TOKENS) {
        vf all = vf_load_half(scales), of_token[4] = { all, all, all, all };
        float token[PAGE_TOKENS];
        vf_store(token, all);
        for (size_t l = d / 4; !is_v && l < (d + KV_Q8_0_BLOCK) / 4; l++)
            convert_fours(from + l * line, of_token, to + 2 * l * line, to + (2 * l + 1) * line);
        for (uint32_t l = 0; is_v && l < PAGE_TOKENS / 4; l++) {
            UNROLL for (int t = 0; t < 4; t++) of_token[t] = vf_set(token[4 * l + (uint32_t)t]);
            for (size_t at = d * 4; at < (d + KV_Q8_0_BLOCK) * 4; at += 64)
                convert_fours(from + l * line + at, of_token, to + 2 * l * line + at,
                              to + (2 * l + 1) * line + at);
        }
    }
}
