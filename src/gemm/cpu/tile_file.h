// tile_file.h - tiles of the product on weights as they lie in the file, for AVX2; AVX-512 takes them, too.
// Included by tile_avx2.c.
//
// With few rows of X packing a panel costs more than the product. Here eight rows of W are read side by side:
// a register has 16 columns of two rows, products of a row are added up across it, and the sums of the eight
// rows end in the lanes of one register. From there on every output takes the chain of tile_vec.h, so that
// the bits are those of a panel. For the formats of file_tiles alone; others are packed.
#include "quant/q4_0.h"
#include "quant/q4_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

enum { FILE_ROWS = VF }; // of W at once

struct file_rows {
    const unsigned char *at[FILE_ROWS]; // their first blocks
    uint64_t ahead;                     // bytes to the next eight
};

VEC_INLINE uint32_t file_block_bytes(const enum quant Q)
{
    return Q == QUANT_Q4_0   ? sizeof(struct q4_0)
           : Q == QUANT_Q8_0 ? sizeof(struct q8_0)
           : Q == QUANT_Q4_K ? sizeof(struct q4_k)
                             : sizeof(struct q6_k);
}

// 16 bytes of row i, and of row i + 4.
VEC_INLINE __m256i two_rows(const struct file_rows *w, const int i, uint64_t offset)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(w->at[i] + offset));
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(w->at[i + 4] + offset));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

// Words 0 to 3 at the offset, of all eight rows.
VEC_INLINE void four_words(const struct file_rows *w, uint64_t offset, vi words[4])
{
    __m256i a = two_rows(w, 0, offset), b = two_rows(w, 1, offset);
    __m256i c = two_rows(w, 2, offset), d = two_rows(w, 3, offset);
    __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    __m256i ef = _mm256_unpackhi_epi32(a, b), gh = _mm256_unpackhi_epi32(c, d);

    words[0] = (vi)_mm256_unpacklo_epi64(ab, cd);
    words[1] = (vi)_mm256_unpackhi_epi64(ab, cd);
    words[2] = (vi)_mm256_unpacklo_epi64(ef, gh);
    words[3] = (vi)_mm256_unpackhi_epi64(ef, gh);
}

VEC_INLINE __m128i eight_halves(const struct file_rows *w, uint64_t offset)
{
    uint16_t d[FILE_ROWS];

    UNROLL for (int i = 0; i < FILE_ROWS; i++) memcpy(&d[i], w->at[i] + offset, 2);
    return _mm_setr_epi16((short)d[0], (short)d[1], (short)d[2], (short)d[3], (short)d[4], (short)d[5],
                          (short)d[6], (short)d[7]);
}

// The low or high halves of eight words.
VEC_INLINE __m128i halves_of(vi words, const bool high)
{
    __m256i order = _mm256_add_epi8(_mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1,
                                                     4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13),
                                    _mm256_set1_epi8(high ? 2 : 0));
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_shuffle_epi8((__m256i)words, order), 0x08));
}

// Sub-block sub + j of a block, sub 0 or 4 and j below 4: columns 16 * part and up of rows i and i + 4, as
// stored.
VEC_INLINE __m256i file_bytes(const struct file_rows *w, const int i, uint64_t block, uint32_t sub,
                              const int j, const int part, const enum quant Q)
{
    if (Q == QUANT_Q4_0)
        return (__m256i)field((vi)two_rows(w, i, block + 2), part ? -4 : 0, 15);
    if (Q == QUANT_Q8_0)
        return two_rows(w, i, block + 2 + 16 * (uint32_t)part);
    if (Q == QUANT_Q4_K)
        return (__m256i)field((vi)two_rows(w, i, block + 16 + 16 * sub + (uint32_t)(j / 2 * 32 + part * 16)),
                              j % 2 ? -4 : 0, 15);
    vi low = (vi)two_rows(w, i, block + 16 * sub + (uint32_t)(j % 2 * 32 + part * 16)),
       high = (vi)two_rows(w, i, block + 128 + 8 * sub + (uint32_t)(part * 16));
    return (__m256i)(field(low, j / 2 ? -4 : 0, 15) | field(high, 4 - 2 * j, 48));
}

// Products of 16 columns in pairs: sums of 16 bits, or of 32 where a sum of four pairs may be larger.
VEC_INLINE __m256i file_pairs(__m256i w, const int8_t *x, const enum quant Q)
{
    const __m256i columns = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)x));

    if (Q != QUANT_Q8_0)
        return _mm256_maddubs_epi16(w, columns);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(columns, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

VEC_INLINE __m256i file_add(__m256i a, __m256i b, const enum quant Q)
{
    return Q == QUANT_Q8_0 ? _mm256_add_epi32(a, b) : _mm256_add_epi16(a, b);
}

// Sums of the rows' products: pairs[i] has those of rows i and i + 4.
VEC_INLINE vi file_sums(const __m256i pairs[4], const enum quant Q)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i ab = file_add(_mm256_unpacklo_epi64(pairs[0], pairs[1]),
                          _mm256_unpackhi_epi64(pairs[0], pairs[1]), Q),
            cd = file_add(_mm256_unpacklo_epi64(pairs[2], pairs[3]),
                          _mm256_unpackhi_epi64(pairs[2], pairs[3]), Q);

    if (Q == QUANT_Q6_K) { // two pairs fit 16 bits, four do not
        ab = _mm256_madd_epi16(ab, ones);
        cd = _mm256_madd_epi16(cd, ones);
    }
    __m256i even = (__m256i)_mm256_shuffle_ps((__m256)ab, (__m256)cd, 0x88),
            odd = (__m256i)_mm256_shuffle_ps((__m256)ab, (__m256)cd, 0xdd);
    if (Q == QUANT_Q6_K || Q == QUANT_Q8_0)
        return (vi)_mm256_add_epi32(even, odd);
    return (vi)_mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
}

// A unit of a block: the columns that have one scale.
struct file_unit {
    uint64_t block; // bytes from the row's beginning
    uint32_t sub;
    int j, part, n_parts; // of 16 columns
};

// acc += W * X; x: the unit's columns of the first row.
VEC_INLINE void file_add_unit(vi acc[TILE_ROWS], const struct file_rows *w, const struct file_unit u,
                              const int8_t *x, size_t x_stride, const enum quant Q, const int C)
{
    __m256i pairs[TILE_ROWS][4];

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i first = file_bytes(w, i, u.block, u.sub, u.j, u.part, Q);
        UNROLL for (int c = 0; c < C; c++) pairs[c][i] = file_pairs(first, x + (size_t)c * x_stride, Q);
        if (u.n_parts == 1)
            continue;
        __m256i second = file_bytes(w, i, u.block, u.sub, u.j, 1, Q);
        UNROLL for (int c = 0; c < C; c++) pairs[c][i] =
            file_add(pairs[c][i], file_pairs(second, x + (size_t)c * x_stride + 16, Q), Q);
    }
    UNROLL for (int c = 0; c < C; c++) acc[c] += file_sums(pairs[c], Q);
}

// Asks for the part of the next eight rows that lies where the bytes [first, last) of these lie in one.
// Q6_K's are too long for the first cache.
VEC_INLINE void file_prefetch(const struct file_rows *w, uint64_t first, uint32_t n, const enum quant Q)
{
    for (uint32_t i = 0; i < FILE_ROWS * n; i += 64) {
        const unsigned char *at = w->at[0] + w->ahead + FILE_ROWS * first + i;
        if (Q == QUANT_Q6_K)
            __builtin_prefetch(at, 0, 2);
        else
            __builtin_prefetch(at);
    }
}

VEC_INLINE void file_blocks(const struct product_tile *t, const struct file_rows *w, vf y[TILE_ROWS],
                            const enum quant Q, const int C)
{
    struct tile_place at = { .t = t };

    for (uint64_t block = 0; at.block < t->n_cols / PANEL_SUB; at.block++, block += file_block_bytes(Q)) {
        vi acc[TILE_ROWS];
        vf d = _mm256_cvtph_ps(eight_halves(w, block));
        file_prefetch(w, block, file_block_bytes(Q), Q);
        UNROLL for (int c = 0; c < C; c++) acc[c] =
            Q == QUANT_Q8_0 ? (vi){ 0 } : start(*block_of(at, c).minus_sum, Q);
        file_add_unit(acc, w, (struct file_unit){ block, 0, 0, 0, 2 }, block_of(at, 0).q, t->x_stride, Q, C);
        UNROLL for (int c = 0; c < C; c++) y[c] =
            vf_fma(to_float(acc[c]), vf_mul(d, vf_set(*block_of(at, c).scale)), y[c]);
    }
}

// The header that a panel has, of the first vector of rows.
VEC_INLINE void file_header(const struct file_rows *w, uint64_t block, unsigned char *header,
                            const enum quant Q)
{
    vi words[4], *lines = (vi *)(void *)(header + (Q == QUANT_Q4_K ? 128 : 64));
    const size_t stride = PANEL_LINE / sizeof *lines;

    four_words(w, block + (Q == QUANT_Q6_K ? 192 : 0), words);
    if (Q == QUANT_Q6_K) {
        _mm_store_si128((__m128i *)(void *)header, eight_halves(w, block + 208));
        UNROLL for (int l = 0; l < 4; l++) lines[l * stride] = words[l];
        return;
    }
    const int low = 0x0f0f0f0f;
    _mm_store_si128((__m128i *)(void *)header, halves_of(words[0], false));
    _mm_store_si128((__m128i *)(void *)(header + 64), halves_of(words[0], true));
    lines[0] = (words[1] & low) | (words[2] & low) << 4;
    lines[stride] = words[3];
    lines[2 * stride] = (words[1] >> 4 & low) | (words[2] & ~low);
}

VEC_INLINE void file_add_subs(const struct tile_place at, const struct file_rows *w, uint64_t block,
                              vf sum[TILE_ROWS], const enum quant Q, const int C)
{
    const struct panel_shape s = panel_shapes[Q];
    const int n_units = panel_by_16(s.scales) ? 2 : 1;
    const uint32_t share = file_block_bytes(Q) / SUPER_SUBS;

    for (uint32_t sub = 0; sub < SUPER_SUBS; sub += 4)
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int part = 0; part < n_units; part++)
        {
            const uint32_t unit = (sub + (uint32_t)j) * (uint32_t)n_units + (uint32_t)part;
            const int8_t *x = super_of(at, 0)->q + (sub + (uint32_t)j) * PANEL_SUB + part * 16;
            vi acc[TILE_ROWS];
            if (part == 0)
                file_prefetch(w, block + (sub + (uint32_t)j) * share, share, Q);
            UNROLL for (int c = 0; c < C; c++) acc[c] = start(minus_sum(super_of(at, c), s.scales, unit), Q);
            file_add_unit(acc, w, (struct file_unit){ block, sub, j, part, 3 - n_units }, x, at.t->x_stride,
                          Q, C);
            vf d = scale_of(at.header, s.scales, unit, 0).d;
            UNROLL for (int c = 0; c < C; c++) sum[c] =
                vf_fma(to_float(shift_left(acc[c], &super_of(at, c)->left[sub + (uint32_t)j])), d, sum[c]);
        }
}

VEC_INLINE void file_supers(const struct product_tile *t, const struct file_rows *w, vf y[TILE_ROWS],
                            const enum quant Q, const int C)
{
    _Alignas(64) unsigned char header[128 + 4 * PANEL_LINE];
    _Alignas(64) float sums[TILE_ROWS][PANEL_ROWS];
    struct tile_place at = { .t = t, .header = header, .sums = sums };

    for (uint64_t block = 0; at.block < t->n_cols / PANEL_SUPER; at.block++, block += file_block_bytes(Q)) {
        vf sum[TILE_ROWS];
        file_header(w, block, header, Q);
        UNROLL for (int c = 0; c < C; c++) sum[c] = vf_set(0);
        file_add_subs(at, w, block, sum, Q, C);
        if (panel_has_mins(panel_shapes[Q].scales)) {
            UNROLL for (int c = 0; c < C; c++) vf_store(sums[c], sum[c]);
            subtract_mins(at, panel_shapes[Q].scales, C, 0);
            UNROLL for (int c = 0; c < C; c++) sum[c] = vf_load(sums[c]);
        }
        UNROLL for (int c = 0; c < C; c++) y[c] = vf_fma(sum[c], vf_set(super_of(at, c)->scale), y[c]);
    }
}

VEC_INLINE void tile_file(const struct product_tile *t, const enum quant Q, const int C)
{
    const uint64_t row_bytes = t->n_cols / panel_shapes[Q].columns * (uint64_t)file_block_bytes(Q);

    for (uint32_t first = 0; first < PANEL_ROWS; first += FILE_ROWS) {
        struct file_rows w = { .ahead = FILE_ROWS * row_bytes };
        vf y[TILE_ROWS];
        for (uint32_t r = 0; r < FILE_ROWS; r++) // rows behind the matrix repeat the last one
            w.at[r] = t->w + (first + r < t->n_w_rows ? first + r : t->n_w_rows - 1) * row_bytes;
        UNROLL for (int c = 0; c < C; c++) y[c] = vf_set(0);
        if (panel_shapes[Q].columns == PANEL_SUPER)
            file_supers(t, &w, y, Q, C);
        else
            file_blocks(t, &w, y, Q, C);
        UNROLL for (int c = 0; c < C; c++) vf_store(t->y + c * PANEL_ROWS + first, y[c]);
    }
}

#define TILE_FILE(kind, Q, C)                                       \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_file(t, QUANT_##Q, C);                                 \
    }
#define FILE_FORMATS(X, with) \
    X(Q4_0, q4_0, with)       \
    X(Q8_0, q8_0, with)       \
    X(Q4_K, q4_k, with)       \
    X(Q6_K, q6_k, with)
#define FILE_TILES(Q, name, kind) TILES(kind, Q, TILE_FILE)
FILE_FORMATS(FILE_TILES, FILE)

product_tile_fn *const *const product_file_tiles[N_WEIGHT_QUANTS] = { FILE_FORMATS(ENTRY, FILE) };
