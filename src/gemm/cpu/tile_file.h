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

enum { FILE_ROWS = VF, FILE_LINE = 16 }; // of W at once; columns of F32 that a cache line holds

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

// The low or high halves of eight words.
VEC_INLINE __m128i halves_of(vi words, const bool high)
{
    __m256i order = _mm256_add_epi8(_mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1,
                                                     4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13),
                                    _mm256_set1_epi8(high ? 2 : 0));
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_shuffle_epi8((__m256i)words, order), 0x08));
}

// fp16 numbers of eight rows, each the first two bytes at the offset.
VEC_INLINE vf first_halves(const struct file_rows *w, uint64_t offset)
{
    vi words[4];

    four_words(w, offset, words);
    return _mm256_cvtph_ps(halves_of(words[0], false));
}

// Asks for the part of the next eight rows that lies where the bytes [first, last) of these lie in one.
// Q6_K's are too long for the first cache. The empty asm keeps the compiler from collecting the prefetches of
// a block of 256: a core has fewer lines under way, and a third of the speed is lost.
VEC_INLINE void file_prefetch(const struct file_rows *w, uint64_t first, uint32_t n, const enum quant Q)
{
    __asm__ volatile("");
    for (uint32_t i = 0; i < FILE_ROWS * n; i += 64) {
        const unsigned char *at = w->at[0] + w->ahead + FILE_ROWS * first + i;
        if (Q == QUANT_Q6_K)
            __builtin_prefetch(at, 0, 2);
        else
            __builtin_prefetch(at);
    }
}

VEC_INLINE __m256i sixteen_columns(const int8_t *x)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)x));
}

// Products of 16 columns in pairs: sums of 16 bits, or of 32 where a sum of four pairs may be larger.
VEC_INLINE __m256i file_pairs(__m256i w, __m256i x, const enum quant Q)
{
    if (Q != QUANT_Q8_0)
        return _mm256_maddubs_epi16(w, x);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

VEC_INLINE __m256i file_add(__m256i a, __m256i b, const enum quant Q)
{
    return Q == QUANT_Q8_0 ? _mm256_add_epi32(a, b) : _mm256_add_epi16(a, b);
}

// In each 128 bits the halves of `a` added up, then those of `b`.
VEC_INLINE __m256i add_halves(__m256i a, __m256i b, const enum quant Q)
{
    return file_add(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), Q);
}

VEC_INLINE __m256i even_words(__m256i a, __m256i b)
{
    return (__m256i)_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88);
}

VEC_INLINE __m256i odd_words(__m256i a, __m256i b)
{
    return (__m256i)_mm256_shuffle_ps((__m256)a, (__m256)b, 0xdd);
}

// Sums of the rows' products: pairs[i] has those of rows i and i + 4.
VEC_INLINE vi file_sums(const __m256i pairs[4], const enum quant Q)
{
    __m256i ab = add_halves(pairs[0], pairs[1], Q), cd = add_halves(pairs[2], pairs[3], Q);
    __m256i sums = file_add(even_words(ab, cd), odd_words(ab, cd), Q);

    return (vi)(Q == QUANT_Q8_0 ? sums : _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}

VEC_INLINE void add_file_block(const struct tile_place at, const struct file_rows *w, uint64_t block,
                               vf y[TILE_ROWS], const enum quant Q, const int C)
{
    __m256i pairs[TILE_ROWS][4];
    const int second = Q == QUANT_Q8_0 ? 16 : 0;
    vf d = first_halves(w, block);

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i q[2] = { two_rows(w, i, block + 2), two_rows(w, i, block + 2 + (uint32_t)second) };
        UNROLL for (int part = 0; part < 2 && Q == QUANT_Q4_0; part++) q[part] =
            (__m256i)field((vi)q[part], part ? -4 : 0, 15);
        UNROLL for (int c = 0; c < C; c++)
        {
            const int8_t *x = block_of(at, c).q;
            pairs[c][i] = file_add(file_pairs(q[0], sixteen_columns(x), Q),
                                   file_pairs(q[1], sixteen_columns(x + 16), Q), Q);
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        struct product_block x = block_of(at, c);
        vi sum = file_sums(pairs[c], Q);
        if (Q == QUANT_Q4_0)
            sum += (vi)broadcast(x.minus_sum) << panel_shapes[Q].offset_bits;
        y[c] = vf_fma(to_float(sum), vf_mul(d, vf_set(*x.scale)), y[c]);
    }
}

VEC_INLINE void file_blocks(const struct product_tile *t, const struct file_rows *w, vf y[TILE_ROWS],
                            const enum quant Q, const int C)
{
    struct tile_place at = { .t = t };

    for (uint64_t block = 0; at.block < t->n_cols / PANEL_SUB; at.block++, block += file_block_bytes(Q)) {
        file_prefetch(w, block, file_block_bytes(Q), Q);
        add_file_block(at, w, block, y, Q, C);
    }
}

// sum += d * (a << left), of the 32 columns number sub.
VEC_INLINE vf add_scaled(vf sum, vi a, vf d, const struct product_super *x, uint32_t sub)
{
    return vf_fma(to_float(shift_left(a, &x->left[sub])), d, sum);
}

// Q4_K. 32 bytes have 32 columns in their low halves and the next 32 in their high ones.
VEC_INLINE void add_q4_k_pair(const struct tile_place at, const struct file_rows *w, uint64_t bytes,
                              const vf d[2], vf sum[TILE_ROWS], const int C)
{
    __m256i pairs[TILE_ROWS][2][4];
    const enum quant Q = QUANT_Q4_K;

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i first = two_rows(w, i, bytes), second = two_rows(w, i, bytes + 16);
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int j = 0; j < 2; j++)
        {
            const int8_t *x = super_of(at, c)->q + (at.sub + (uint32_t)j) * PANEL_SUB;
            __m256i a = (__m256i)field((vi)first, -4 * j, 15), b = (__m256i)field((vi)second, -4 * j, 15);
            pairs[c][j][i] =
                file_add(file_pairs(a, sixteen_columns(x), Q), file_pairs(b, sixteen_columns(x + 16), Q), Q);
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int j = 0; j < 2; j++) sum[c] =
        add_scaled(sum[c], file_sums(pairs[c][j], Q), d[j], super_of(at, c), at.sub + (uint32_t)j);
}

// The scales of a block of eight rows: byte i of word l belongs to 32 columns number 4l + i, or 16 in Q6_K.
struct file_scales {
    vf d, d_min;
    vi scales[4], mins[2];
};

VEC_INLINE struct file_scales q4_k_scales(const struct file_rows *w, uint64_t block)
{
    const int low = 0x0f0f0f0f, six = 0x3f3f3f3f, top = 0x30303030;
    vi words[4];

    four_words(w, block, words);
    return (struct file_scales){ _mm256_cvtph_ps(halves_of(words[0], false)),
                                 _mm256_cvtph_ps(halves_of(words[0], true)),
                                 { words[1] & six, (words[3] & low) | (words[1] >> 2 & top) },
                                 { words[2] & six, (words[3] >> 4 & low) | (words[2] >> 2 & top) } };
}

// sum -= d_min * the sums of X times the minimums, taken in the panels' pairs.
VEC_INLINE vf subtract_file_mins(vf sum, const struct file_scales *s, const struct product_super *x)
{
    vf d = vf_mul(s->d_min, vf_set(1 << SUPER_SUM_SHIFT));
    vi acc = { 0 };

    UNROLL for (int pair = 0; pair < 4; pair++) acc =
        add_pairs(acc, s->mins[pair / 2] >> pair % 2 * 8 & 0x00ff00ff, x->sums_32 + 2 * pair);
    return vf_fma(-d, to_float(acc), sum);
}

VEC_INLINE void add_q4_k(struct tile_place at, const struct file_rows *w, uint64_t block, vf sum[TILE_ROWS],
                         const int C)
{
    struct file_scales s = q4_k_scales(w, block);
    const uint32_t share = sizeof(struct q4_k) / 4;

    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        vi scale = s.scales[i / 2] >> (int)(i % 2 * 16);
        vf d[2] = { vf_mul(s.d, to_float(scale & 255)), vf_mul(s.d, to_float(scale >> 8 & 255)) };
        at.sub = 2 * i;
        file_prefetch(w, block + i * share, share, QUANT_Q4_K);
        add_q4_k_pair(at, w, block + 16 + 32 * i, d, sum, C);
    }
    UNROLL for (int c = 0; c < C; c++) sum[c] = subtract_file_mins(sum[c], &s, super_of(at, c));
}

// Q6_K. Bytes of a row: 64 with the lower bits of 128 columns, 32 with their upper bits. j: which 32 of the
// columns; the first 16 of them have a scale, and the last.
VEC_INLINE __m256i q6_k_row(const unsigned char *low_bits, const unsigned char *high_bits, const int j)
{
    vi low, high;

    memcpy(&low, low_bits + j % 2 * 32, sizeof low);
    memcpy(&high, high_bits, sizeof high);
    return (__m256i)(field(low, j / 2 ? -4 : 0, 15) | field(high, 4 - 2 * j, 48));
}

// Four rows' sums of the first 16 columns, then of the last. Two pairs fit 16 bits, four do not.
VEC_INLINE __m256i q6_k_sums(const __m256i rows[4], __m256i x)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[4];

    UNROLL for (int i = 0; i < 4; i++) pairs[i] = _mm256_maddubs_epi16(rows[i], x);
    __m256i ab = _mm256_madd_epi16(add_halves(pairs[0], pairs[1], QUANT_Q6_K), ones),
            cd = _mm256_madd_epi16(add_halves(pairs[2], pairs[3], QUANT_Q6_K), ones);
    return _mm256_add_epi32(even_words(ab, cd), odd_words(ab, cd));
}

VEC_INLINE void add_q6_k_sub(const struct tile_place at, const __m256i rows[FILE_ROWS], const vf d[2],
                             vf sum[TILE_ROWS], const int C)
{
    UNROLL for (int c = 0; c < C; c++)
    {
        const struct product_super *x = super_of(at, c);
        __m256i columns = _mm256_loadu_si256((const __m256i *)(const void *)(x->q + at.sub * PANEL_SUB));
        __m256i first = q6_k_sums(rows, columns), last = q6_k_sums(rows + 4, columns);
        vi acc[2] = { (vi)_mm256_permute2x128_si256(first, last, 0x20),
                      (vi)_mm256_permute2x128_si256(first, last, 0x31) };
        UNROLL for (uint32_t part = 0; part < 2; part++) sum[c] = add_scaled(
            sum[c], acc[part] + ((vi)broadcast(&x->minus_sum[2 * at.sub + part]) << 5), d[part], x, at.sub);
    }
}

VEC_INLINE struct file_scales q6_k_scales(const struct file_rows *w, uint64_t block)
{
    struct file_scales s;
    vi words[4];

    four_words(w, block + 194, words); // they end where the block ends
    s.d = _mm256_cvtph_ps(halves_of(words[3], true));
    four_words(w, block + 192, s.scales);
    return s;
}

VEC_INLINE void add_q6_k(struct tile_place at, const struct file_rows *w, uint64_t block, vf sum[TILE_ROWS],
                         const int C)
{
    const uint32_t share = sizeof(struct q6_k) / 8;
    struct file_scales s = q6_k_scales(w, block);

    for (uint32_t half = 0; half < 2; half++) {
        UNROLL for (int j = 0; j < 4; j++, at.sub++)
        {
            file_prefetch(w, block + at.sub * share, share, QUANT_Q6_K);
            __m256i rows[FILE_ROWS];
            vi scale = s.scales[2 * half + (uint32_t)j / 2] << (j % 2 ? 0 : 16);
            vf d[2] = { vf_mul(s.d, to_float(scale << 8 >> 24)), vf_mul(s.d, to_float(scale >> 24)) };
            UNROLL for (int r = 0; r < FILE_ROWS; r++) rows[r] =
                q6_k_row(w->at[r] + block + 64 * half, w->at[r] + block + 128 + 32 * half, j);
            add_q6_k_sub(at, rows, d, sum, C);
        }
    }
}

VEC_INLINE void file_supers(const struct product_tile *t, const struct file_rows *w, vf y[TILE_ROWS],
                            const enum quant Q, const int C)
{
    struct tile_place at = { .t = t };

    for (uint64_t block = 0; at.block < t->n_cols / PANEL_SUPER; at.block++, block += file_block_bytes(Q)) {
        vf sum[TILE_ROWS];
        UNROLL for (int c = 0; c < C; c++) sum[c] = vf_set(0);
        if (Q == QUANT_Q4_K)
            add_q4_k(at, w, block, sum, C);
        else
            add_q6_k(at, w, block, sum, C);
        UNROLL for (int c = 0; c < C; c++) y[c] = vf_fma(sum[c], vf_set(super_of(at, c)->scale), y[c]);
    }
}

// F32: y += column k of W times X.
VEC_INLINE void add_file_column(const struct product_tile *t, vf column, uint32_t k, vf y[TILE_ROWS],
                                const int C)
{
    UNROLL for (int c = 0; c < C; c++) y[c] =
        vf_fma(column, vf_set(((const float *)(const void *)(t->x + (size_t)c * t->x_stride))[k]), y[c]);
}

// FILE_LINE columns from k on.
VEC_INLINE void add_file_line(const struct product_tile *t, const struct file_rows *w, uint32_t k,
                              vf y[TILE_ROWS], const int C)
{
    UNROLL for (uint32_t four = k; four < k + FILE_LINE; four += 4)
    {
        vi words[4];
        four_words(w, four * 4, words);
        UNROLL for (uint32_t i = 0; i < 4; i++) add_file_column(t, (vf)words[i], four + i, y, C);
    }
}

VEC_INLINE vf file_column(const struct file_rows *w, uint32_t k)
{
    float column[FILE_ROWS];

    UNROLL for (int r = 0; r < FILE_ROWS; r++) memcpy(&column[r], w->at[r] + (uint64_t)k * 4, 4);
    return vf_load(column);
}

VEC_INLINE struct file_rows file_rows_of(const struct product_tile *t, uint32_t first, uint64_t row_bytes)
{
    struct file_rows w = { .ahead = FILE_ROWS * row_bytes };

    for (uint32_t r = 0; r < FILE_ROWS; r++) // rows behind the matrix repeat the last one
        w.at[r] = t->w + (first + r < t->n_w_rows ? first + r : t->n_w_rows - 1) * row_bytes;
    return w;
}

VEC_INLINE void tile_file(const struct product_tile *t, const enum quant Q, const int C)
{
    const uint64_t row_bytes = t->n_cols / panel_shapes[Q].columns * (uint64_t)file_block_bytes(Q);

    for (uint32_t first = 0; first < PANEL_ROWS; first += FILE_ROWS) {
        struct file_rows w = file_rows_of(t, first, row_bytes);
        vf y[TILE_ROWS];
        UNROLL for (int c = 0; c < C; c++) y[c] = vf_set(0);
        if (panel_shapes[Q].columns == PANEL_SUPER)
            file_supers(t, &w, y, Q, C);
        else
            file_blocks(t, &w, y, Q, C);
        UNROLL for (int c = 0; c < C; c++) vf_store(t->y + c * PANEL_ROWS + first, y[c]);
    }
}

// Two times eight rows: a chain of additions waits for itself.
VEC_INLINE void tile_file_float(const struct product_tile *t, const int C)
{
    for (uint32_t first = 0; first < PANEL_ROWS; first += 2 * FILE_ROWS) {
        struct file_rows w[2] = { file_rows_of(t, first, t->n_cols * 4),
                                  file_rows_of(t, first + FILE_ROWS, t->n_cols * 4) };
        vf y[2][TILE_ROWS];
        uint32_t k = 0;
        UNROLL for (int c = 0; c < C; c++) y[0][c] = y[1][c] = vf_set(0);
        for (; k + FILE_LINE <= t->n_cols; k += FILE_LINE) {
            add_file_line(t, &w[0], k, y[0], C);
            add_file_line(t, &w[1], k, y[1], C);
        }
        for (; k < t->n_cols; k++)
            UNROLL for (int i = 0; i < 2; i++) add_file_column(t, file_column(&w[i], k), k, y[i], C);
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < 2; i++)
            vf_store(t->y + c * PANEL_ROWS + first + i * FILE_ROWS, y[i][c]);
    }
}

#define TILE_FILE(kind, Q, C)                                       \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_file(t, QUANT_##Q, C);                                 \
    }
#define TILE_FLOAT(kind, Q, C)                                      \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_file_float(t, C);                                      \
    }
#define FILE_FORMATS(X, with) \
    X(Q4_0, q4_0, with)       \
    X(Q8_0, q8_0, with)       \
    X(Q4_K, q4_k, with)       \
    X(Q6_K, q6_k, with)
#define FILE_TILES(Q, name, kind) TILES(kind, Q, TILE_FILE)
FILE_FORMATS(FILE_TILES, FILE)
TILES(FILE, F32, TILE_FLOAT)

product_tile_fn *const *const product_file_tiles[N_WEIGHT_QUANTS] = { FILE_FORMATS(ENTRY, FILE)[QUANT_F32] =
                                                                          FILE_F32 };
