// tile_avx2.c - the product's kernels for AVX2, and for AVX-VNNI where present, on the panels of panel.h.
//
// A line of a panel is four registers of 8 rows by 4 columns. There are only 16 registers, so a sub-block is done 16 rows of W at a
// time for up to 4 rows of X, and sums live in y; the stream from memory is still read once.
// Without VNNI, VPMADDUBSW makes 16-bit sums of two products, which must not saturate: two products of 6-bit weights fit, and of 4-bit
// weights the 16 of a sub-block (8 * 3810 < 32768); 8-bit weights (Q8_0, IQ4) are split into 4-bit halves first. Accumulators start at -offset * sum, as in tile_avx512.c,
// and every output takes the same chain of fp32 operations as there.
#include "ops/matmul/product.h"
#if defined(CPU_X86)
#include <immintrin.h>
#include "quant/iq4_nl.h"
#include "quant/mxfp4.h"

#define SIMD   TARGET("avx2,fma,f16c")
#define INLINE static inline __attribute__((always_inline)) SIMD
#define UNROLL _Pragma("GCC unroll 16")

#if defined(INGOT_FEW_TILES) // see tile_avx512.c
enum { ROWS_INT = 2, ROWS_FLOAT = 2 };
#define UP_TO_ROWS UP_TO_2
#else
enum { ROWS_INT = 4, ROWS_FLOAT = 4 };
#define UP_TO_ROWS UP_TO_4
#endif
enum { QUARTERS = 4, PREFETCH = 8192 };

INLINE __m256i line(const unsigned char *p, int l, int quarter)
{
    return _mm256_load_si256((const __m256i *)(p + l * PANEL_LINE + quarter * 32));
}

INLINE __m256i broadcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256 broadcast_float(const float *p)
{
    return _mm256_broadcast_ss(p);
}

INLINE void prefetch(const unsigned char *w, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)w + PREFETCH + i, _MM_HINT_T0);
}

INLINE __m256i field(__m256i bits, int left, int mask)
{
    __m256i moved = left > 0 ? _mm256_slli_epi16(bits, left) : left < 0 ? _mm256_srli_epi16(bits, -left) : bits;
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

INLINE __m256i levels(__m256i index, const enum panel_planes planes)
{
    static const int8_t iq4[16] = IQ4_NL_LEVELS, mxfp4[16] = MXFP4_LEVELS;
    __m128i table = _mm_loadu_si128((const __m128i *)(planes == PLANES_IQ4 ? iq4 : mxfp4));
    __m128i offset = _mm_set1_epi8(planes == PLANES_IQ4 ? -128 : 16);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_add_epi8(table, offset)), index);
}

// Group g (columns 4g..4g+3) of 8 rows of a sub-block, as unsigned bytes.
INLINE __m256i group(const unsigned char *lines, const enum panel_planes planes, const int g, const int quarter)
{
    if (planes == PLANES_8)
        return line(lines, g, quarter);
    if (planes == PLANES_2)
        return field(line(lines, g / 4, quarter), -2 * (g % 4), 3);
    if (planes == PLANES_3)
        return _mm256_or_si256(field(line(lines, g / 4, quarter), -2 * (g % 4), 3), field(line(lines, 2, quarter), 2 - g, 4));
    __m256i four = field(line(lines, g / 2, quarter), g % 2 ? -4 : 0, 15);
    if (planes == PLANES_5)
        return _mm256_or_si256(four, field(line(lines, 4, quarter), 4 - g, 16));
    if (planes == PLANES_6)
        return _mm256_or_si256(four, field(line(lines, 4 + g / 4, quarter), 4 - 2 * (g % 4), 48));
    return planes == PLANES_4 ? four : levels(four, planes);
}

INLINE __m256 halves_to_float(const unsigned char *p, int quarter)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(p + 16 * quarter)));
}

struct scale {
    __m256 d, m; // value = d * q + m
};

INLINE __m256i scale_byte(const unsigned char *lines, uint32_t index, int quarter)
{
    return _mm256_srl_epi32(line(lines, (int)(index / 4), quarter), _mm_cvtsi32_si128((int)(index % 4 * 8)));
}

INLINE struct scale scale_with_min(const unsigned char *header, __m256i s, __m256i m, int quarter)
{
    return (struct scale){ _mm256_mul_ps(halves_to_float(header, quarter), _mm256_cvtepi32_ps(s)),
                           _mm256_fnmadd_ps(halves_to_float(header + 64, quarter), _mm256_cvtepi32_ps(m), _mm256_setzero_ps()) };
}

INLINE struct scale scale_6bit(const unsigned char *header, uint32_t sub, int quarter)
{
    const __m256i low = _mm256_set1_epi32(15), high = _mm256_set1_epi32(48);
    __m256i bits = scale_byte(header + 128, sub, quarter);
    __m256i top = _mm256_srl_epi32(line(header + 128, 2, quarter), _mm_cvtsi32_si128((int)(sub % 4 * 8 + sub / 4 * 2)));
    __m256i s = _mm256_or_si256(_mm256_and_si256(bits, low), _mm256_and_si256(_mm256_slli_epi32(top, 4), high));
    __m256i m = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(bits, 4), low), _mm256_and_si256(top, high));
    return scale_with_min(header, s, m, quarter);
}

INLINE __m256 scale_signed(const unsigned char *header, uint32_t index, int quarter)
{
    __m128i left = _mm_cvtsi32_si128((int)(24 - index % 4 * 8));
    __m256i bits = _mm256_sll_epi32(line(header + 64, (int)(index / 4), quarter), left);
    return _mm256_mul_ps(halves_to_float(header, quarter), _mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 24)));
}

// half: for formats with a scale for each 16 columns, the first or second 16.
INLINE struct scale scale_of(const unsigned char *header, const enum panel_scales scales, uint32_t sub, int half, int quarter)
{
    const __m256i low = _mm256_set1_epi32(15);
    __m256 zero = _mm256_setzero_ps();

    if (scales == SCALES_6BIT)
        return scale_6bit(header, sub, quarter);
    if (scales == SCALES_BYTE32)
        return (struct scale){ scale_signed(header, sub, quarter), zero };
    if (scales == SCALES_BYTE16)
        return (struct scale){ scale_signed(header, 2 * sub + (uint32_t)half, quarter), zero };
    if (scales == SCALES_NIBBLES16) {
        __m256i bits = scale_byte(header + 128, 2 * sub + (uint32_t)half, quarter);
        return scale_with_min(header, _mm256_and_si256(bits, low), _mm256_and_si256(_mm256_srli_epi32(bits, 4), low), quarter);
    }
    if (scales == SCALES_BF16) {
        __m256i d = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(header + 16 * quarter)));
        return (struct scale){ _mm256_castsi256_ps(_mm256_slli_epi32(d, 16)), zero };
    }
    return (struct scale){ halves_to_float(header, quarter), scales == SCALES_DM ? halves_to_float(header + 64, quarter) : zero };
}

#define X_BLOCK(t, c, b) ((const struct product_block *)((t)->x + (c) * (t)->x_stride) + (b))
#define X_SUPER(t, c, b) ((const struct product_super *)((t)->x + (c) * (t)->x_stride) + (b))

// acc += w * x over 4 columns. The empty asm keeps the compiler from gathering eight products before it adds them, and spilling.
INLINE __m256i dot(__m256i acc, __m256i w, __m256i x, const enum panel_planes planes, const bool vnni)
{
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);

    if (vnni) {
        __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "x"(x));
        return acc;
    }
    if (planes == PLANES_8 || planes == PLANES_IQ4) {
        __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), low), x);
        __m256i rest = _mm256_maddubs_epi16(_mm256_and_si256(w, low), x);
        acc = _mm256_add_epi32(acc, _mm256_slli_epi32(_mm256_madd_epi16(high, ones), 4));
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(rest, ones));
    } else {
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    }
    __asm__("" : "+x"(acc));
    return acc;
}

// Weights of at most 4 bits: 16-bit sums hold a whole sub-block.
INLINE bool sums_in_16_bits(const enum panel_planes planes)
{
    return planes == PLANES_4 || planes == PLANES_2 || planes == PLANES_3;
}

INLINE __m256i dot_16(__m256i acc, __m256i w, __m256i x)
{
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(acc));
    return acc;
}

// 16 rows (the quarters `quarter` and the next) of groups [first, last) of a sub-block, and where the first row of X has its bytes for all
// of it.
struct range {
    const unsigned char *lines;
    const int8_t *q;
    int first, last, quarter;
};
typedef __m256i acc_t[2][ROWS_INT];

// acc: the sums, from start[c] on.
INLINE void dot_groups(acc_t acc, const struct product_tile *t, const struct range r, const enum panel_planes planes,
                       const __m256i *start, const int C, const bool vnni)
{
    const bool narrow = !vnni && sums_in_16_bits(planes);

    UNROLL for (int c = 0; c < C; c++) acc[0][c] = acc[1][c] = narrow ? _mm256_setzero_si256() : start[c];
    UNROLL for (int g = r.first; g < r.last; g++)
    {
        __m256i w0 = group(r.lines, planes, g, r.quarter), w1 = group(r.lines, planes, g, r.quarter + 1);
        UNROLL for (int c = 0; c < C; c++)
        {
            __m256i x = broadcast(r.q + (size_t)c * t->x_stride + 4 * g);
            acc[0][c] = narrow ? dot_16(acc[0][c], w0, x) : dot(acc[0][c], w0, x, planes, vnni);
            acc[1][c] = narrow ? dot_16(acc[1][c], w1, x) : dot(acc[1][c], w1, x, planes, vnni);
        }
    }
    UNROLL for (int i = 0; i < 2 && narrow; i++) UNROLL for (int c = 0; c < C; c++) acc[i][c] =
        _mm256_add_epi32(_mm256_madd_epi16(acc[i][c], _mm256_set1_epi16(1)), start[c]);
}

INLINE void add_block(const struct product_tile *t, const unsigned char *header, uint32_t block, const enum quant Q, const int C,
                      const bool vnni)
{
    const struct panel_shape s = panel_shapes[Q];

    for (int quarter = 0; quarter < QUARTERS; quarter += 2) {
        struct range r = { header + s.header_bytes, X_BLOCK(t, 0, block)->q, 0, 8, quarter };
        __m256i start[ROWS_INT];
        acc_t acc;
        UNROLL for (int c = 0; c < C; c++) start[c] =
            s.offset_bits ? _mm256_slli_epi32(broadcast(&X_BLOCK(t, c, block)->minus_sum), (int)s.offset_bits)
                          : _mm256_setzero_si256();
        dot_groups(acc, t, r, s.planes, start, C, vnni);
        UNROLL for (int i = 0; i < 2; i++)
        {
            struct scale w = scale_of(header, s.scales, 0, 0, quarter + i);
            UNROLL for (int c = 0; c < C; c++)
            {
                const struct product_block *x = X_BLOCK(t, c, block);
                float *y = t->y + c * PANEL_ROWS + (quarter + i) * 8;
                __m256 d = _mm256_mul_ps(w.d, broadcast_float(&x->scale));
                __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[i][c]), d, _mm256_load_ps(y));
                _mm256_store_ps(y, panel_has_mins(s.scales) ? _mm256_fmadd_ps(w.m, broadcast_float(&x->sum), sum) : sum);
            }
        }
    }
}

INLINE void tile_blocks(const struct product_tile *t, const enum quant Q, const int C, const bool vnni)
{
    const unsigned char *w = t->w;

    for (uint32_t block = 0; block < t->n_cols / PANEL_SUB; block++, w += panel_block_bytes(Q)) {
        prefetch(w, panel_block_bytes(Q));
        add_block(t, w, block, Q, C, vnni);
    }
}

// Blocks of 256 columns, as in tile_avx512.c; their sums are in memory too.
struct super {
    const struct product_tile *t;
    const unsigned char *header;
    uint32_t block;
    float (*sums)[PANEL_ROWS]; // [rows]
};

INLINE __m256i start_unit(const struct product_super *x, const struct panel_shape s, uint32_t unit)
{
    if (s.offset_bits == 0)
        return _mm256_setzero_si256();
    int32_t sum = panel_by_16(s.scales) ? x->minus_sum[unit] : x->minus_sum[2 * unit] + x->minus_sum[2 * unit + 1];
    return _mm256_slli_epi32(_mm256_set1_epi32(sum), (int)s.offset_bits);
}

INLINE void add_unit(const struct super at, uint32_t sub, const int half, const enum quant Q, const int C, const bool vnni)
{
    const struct panel_shape s = panel_shapes[Q];
    const bool by16 = panel_by_16(s.scales);
    const uint32_t unit = by16 ? 2 * sub + (uint32_t)half : sub;
    __m256i start[ROWS_INT];

    UNROLL for (int c = 0; c < C; c++) start[c] = start_unit(X_SUPER(at.t, c, at.block), s, unit);
    for (int quarter = 0; quarter < QUARTERS; quarter += 2) {
        struct range r = { at.header + s.header_bytes + sub * s.sub_bytes, X_SUPER(at.t, 0, at.block)->q + sub * PANEL_SUB,
                           half * 4, by16 ? half * 4 + 4 : 8, quarter };
        acc_t acc;
        dot_groups(acc, at.t, r, s.planes, start, C, vnni);
        UNROLL for (int i = 0; i < 2; i++)
        {
            __m256 d = scale_of(at.header, s.scales, sub, half, quarter + i).d;
            UNROLL for (int c = 0; c < C; c++)
            {
                float *sum = at.sums[c] + (quarter + i) * 8;
                __m256i bits = _mm256_sllv_epi32(acc[i][c], broadcast(&X_SUPER(at.t, c, at.block)->left[sub]));
                _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(bits), d, _mm256_load_ps(sum)));
            }
        }
    }
}

INLINE __m256i min_pair(const unsigned char *header, const enum panel_scales scales, const int pair, int quarter)
{
    const unsigned char *lines = header + 128;
    const int odd = pair % 2 * 8;
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(line(lines, pair / 2, quarter), odd + 4), _mm256_set1_epi16(15));

    if (scales == SCALES_NIBBLES16)
        return low;
    __m256i top = _mm256_srli_epi16(line(lines, 2, quarter), odd + pair / 2 * 2);
    return _mm256_or_si256(low, _mm256_and_si256(top, _mm256_set1_epi16(48)));
}

INLINE void subtract_mins(const struct super at, const enum panel_scales scales, const int C, int quarter)
{
    const int n_pairs = panel_by_16(scales) ? 8 : 4;
    __m256 d = _mm256_mul_ps(halves_to_float(at.header + 64, quarter), _mm256_set1_ps(1 << SUPER_SUM_SHIFT));
    __m256i acc[ROWS_INT];

    UNROLL for (int c = 0; c < C; c++) acc[c] = _mm256_setzero_si256();
    UNROLL for (int p = 0; p < n_pairs; p++)
    {
        __m256i m = min_pair(at.header, scales, p, quarter);
        UNROLL for (int c = 0; c < C; c++)
        {
            const struct product_super *x = X_SUPER(at.t, c, at.block);
            acc[c] =
                _mm256_add_epi32(acc[c], _mm256_madd_epi16(m, broadcast(n_pairs == 8 ? x->sums_16 + 2 * p : x->sums_32 + 2 * p)));
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        float *sum = at.sums[c] + quarter * 8;
        _mm256_store_ps(sum, _mm256_fnmadd_ps(d, _mm256_cvtepi32_ps(acc[c]), _mm256_load_ps(sum)));
    }
}

INLINE void tile_supers(const struct product_tile *t, const enum quant Q, const int C, const bool vnni)
{
    const struct panel_shape s = panel_shapes[Q];
    _Alignas(32) float sums[ROWS_INT][PANEL_ROWS];
    struct super at = { t, t->w, 0, sums };

    for (; at.block < t->n_cols / PANEL_SUPER; at.block++, at.header += panel_block_bytes(Q)) {
        memset(sums, 0, sizeof sums);
        prefetch(at.header, s.header_bytes);
        for (uint32_t sub = 0; sub < SUPER_SUBS; sub++) {
            prefetch(at.header + s.header_bytes + sub * s.sub_bytes, s.sub_bytes);
            add_unit(at, sub, 0, Q, C, vnni);
            if (panel_by_16(s.scales))
                add_unit(at, sub, 1, Q, C, vnni);
        }
        for (int quarter = 0; quarter < QUARTERS; quarter++) {
            if (panel_has_mins(s.scales))
                subtract_mins(at, s.scales, C, quarter);
            UNROLL for (int c = 0; c < C; c++)
            {
                float *y = t->y + c * PANEL_ROWS + quarter * 8;
                __m256 scale = broadcast_float(&X_SUPER(t, c, at.block)->scale);
                _mm256_store_ps(y, _mm256_fmadd_ps(_mm256_load_ps(sums[c] + quarter * 8), scale, _mm256_load_ps(y)));
            }
        }
    }
}

INLINE void tile_int(const struct product_tile *t, const enum quant Q, const int C, const bool vnni)
{
    for (int i = 0; i < C * PANEL_ROWS; i += 8)
        _mm256_store_ps(t->y + i, _mm256_setzero_ps());
    if (panel_shapes[Q].columns == PANEL_SUPER)
        tile_supers(t, Q, C, vnni);
    else
        tile_blocks(t, Q, C, vnni);
}

// Exact products: 32 columns of the panel as fp32 in L1, then multiplications and additions by column, 16 rows at a time.
typedef float columns_t[PANEL_SUB][PANEL_ROWS];

INLINE void decode_sub(columns_t out, const unsigned char *header, uint32_t sub, const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q];
    const unsigned char *lines = header + s.header_bytes + sub * s.sub_bytes;
    const __m256 offset = _mm256_set1_ps(s.offset_bits ? (float)(1 << s.offset_bits) : 0);

    for (int quarter = 0; quarter < QUARTERS; quarter++)
        UNROLL for (int g = 0; g < 8; g++)
        {
            struct scale w = scale_of(header, s.scales, sub, g / 4, quarter);
            __m256i four = group(lines, s.planes, g, quarter);
            UNROLL for (int i = 0; i < 4; i++)
            {
                __m256i q = _mm256_and_si256(_mm256_srli_epi32(four, 8 * i), _mm256_set1_epi32(255));
                __m256 v = _mm256_sub_ps(_mm256_cvtepi32_ps(q), offset);
                _mm256_store_ps(&out[4 * g + i][8 * quarter], _mm256_fmadd_ps(w.d, v, w.m));
            }
        }
}

INLINE void decode_float(columns_t out, const unsigned char *w, uint32_t n, const enum quant Q)
{
    for (uint32_t k = 0; k < n; k++)
        UNROLL for (int quarter = 0; quarter < QUARTERS; quarter++)
        {
            __m256 v;
            if (Q == QUANT_F32)
                v = _mm256_load_ps((const float *)(const void *)(w + k * 128 + quarter * 32));
            else if (Q == QUANT_F16)
                v = halves_to_float(w + k * 64, quarter);
            else if (k % 2)
                v = _mm256_castsi256_ps(_mm256_and_si256(line(w, (int)(k / 2), quarter), _mm256_set1_epi32((int)0xffff0000)));
            else
                v = _mm256_castsi256_ps(_mm256_slli_epi32(line(w, (int)(k / 2), quarter), 16));
            _mm256_store_ps(&out[k][8 * quarter], v);
        }
}

INLINE void multiply_columns(const struct product_tile *t, columns_t w, uint32_t first, uint32_t n, const int C)
{
    for (int quarter = 0; quarter < QUARTERS; quarter += 2) {
        __m256 sum[2][ROWS_FLOAT];
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < 2; i++) sum[i][c] =
            _mm256_load_ps(t->y + c * PANEL_ROWS + (quarter + i) * 8);
        for (uint32_t k = 0; k < n; k++) {
            __m256 w0 = _mm256_load_ps(&w[k][quarter * 8]), w1 = _mm256_load_ps(&w[k][quarter * 8 + 8]);
            UNROLL for (int c = 0; c < C; c++)
            {
                __m256 x = broadcast_float((const float *)(const void *)(t->x + c * t->x_stride) + first + k);
                sum[0][c] = _mm256_fmadd_ps(w0, x, sum[0][c]);
                sum[1][c] = _mm256_fmadd_ps(w1, x, sum[1][c]);
            }
        }
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < 2; i++)
            _mm256_store_ps(t->y + c * PANEL_ROWS + (quarter + i) * 8, sum[i][c]);
    }
}

INLINE void tile_exact(const struct product_tile *t, const enum quant Q, const int C)
{
    const struct panel_shape s = panel_shapes[Q];
    const uint32_t n_subs = s.columns > PANEL_SUB ? s.columns / PANEL_SUB : 1,
                   block_bytes = s.header_bytes + n_subs * s.sub_bytes;
    _Alignas(64) columns_t w;

    for (int i = 0; i < C * PANEL_ROWS; i += 8)
        _mm256_store_ps(t->y + i, _mm256_setzero_ps());
    for (uint32_t first = 0; first < t->n_cols; first += PANEL_SUB) {
        uint32_t n = t->n_cols - first < PANEL_SUB ? t->n_cols - first : PANEL_SUB;
        const unsigned char *at = t->w + (uint64_t)(first / s.columns) * block_bytes;
        if (s.planes == PLANES_FLOAT)
            decode_float(w, at, n, Q);
        else
            decode_sub(w, at, first / PANEL_SUB % n_subs, Q);
        multiply_columns(t, w, first, n, C);
    }
}

#define TILE_INT(kind, Q, C)                                        \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_int(t, QUANT_##Q, C, false);                           \
    }
#define TILE_VNNI(kind, Q, C)                                       \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_int(t, QUANT_##Q, C, true);                            \
    }
#define TILE_EXACT(kind, Q, C)                                      \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_exact(t, QUANT_##Q, C);                                \
    }
#define UP_TO_2(M, kind, Q) M(kind, Q, 1) M(kind, Q, 2)
#define UP_TO_4(M, kind, Q) UP_TO_2(M, kind, Q) M(kind, Q, 3) M(kind, Q, 4)
#define NAME(kind, Q, C)    , kind##_##Q##_##C
#define TILES(kind, M, Q)  \
    UP_TO_ROWS(M, kind, Q) \
    static product_tile_fn *const kind##_##Q[] = { NULL UP_TO_ROWS(NAME, kind, Q) };
#define INT_TILES(Q)   TILES(int, TILE_INT, Q) TILES(vnni, TILE_VNNI, Q)
#define EXACT_TILES(Q) TILES(exact, TILE_EXACT, Q)
#define INTEGER_FORMATS(M) \
    M(Q4_0) M(Q4_1) M(Q5_0) M(Q5_1) M(Q8_0) M(Q2_K) M(Q3_K) M(Q4_K) M(Q5_K) M(Q6_K) M(IQ4_NL) M(IQ4_XS) M(MXFP4)
#define ALL_FORMATS(M) M(F32) M(F16) M(BF16) INTEGER_FORMATS(M)
INTEGER_FORMATS(INT_TILES)
ALL_FORMATS(EXACT_TILES)

// Largest magnitude by its bits, so that a NaN wins and the whole block becomes NaN.
SIMD static float block_top(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();

    for (int i = 0; i < PANEL_SUB; i += 8)
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + i)), mask));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    int bits = _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    float largest;
    memcpy(&largest, &bits, 4);
    return largest;
}

SIMD static void quantise_sub(const float *x, float factor, int8_t *out)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // the packs work within 128 bits
    __m256i q[4];

    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(factor)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_storeu_si256((__m256i *)out, _mm256_permutevar8x32_epi32(bytes, order));
}

static const struct int8_kernels int8_kernels = { block_top, quantise_sub };

static void quantise(const float *x, uint32_t n, struct product_block *out)
{
    int8_blocks(&int8_kernels, x, n, out);
}

static void quantise_super(const float *x, uint32_t n, struct product_super *out)
{
    int8_supers(&int8_kernels, x, n, out);
}

SIMD static void store(const struct product_store *s)
{
    for (uint32_t r = 0; r < s->n_rows; r++) {
        const float *y = s->y + r * PANEL_ROWS, *add = s->add ? s->add + r * s->add_stride : NULL;
        float *out = s->out + r * s->stride;
        for (uint32_t i = 0; i < s->n_cols; i++) {
            float v = s->bias ? y[i] + s->bias[i] : y[i];
            out[i] = add ? v + add[i] : v;
        }
    }
}

#define INT_ENTRY(Q)   [QUANT_##Q] = int_##Q,
#define VNNI_ENTRY(Q)  [QUANT_##Q] = vnni_##Q,
#define EXACT_ENTRY(Q) [QUANT_##Q] = exact_##Q,
#define COMMON                                                                                                       \
    .exact = { ALL_FORMATS(EXACT_ENTRY) }, .integer_rows = ROWS_INT, .exact_rows = ROWS_FLOAT, .quantise = quantise, \
    .quantise_super = quantise_super, .store = store, .rows = &row_kernels_avx2, .pack = pack_avx2

const struct product_kernels product_avx2 = { .integer = { INTEGER_FORMATS(INT_ENTRY) }, COMMON };
const struct product_kernels product_avx_vnni = { .integer = { INTEGER_FORMATS(VNNI_ENTRY) }, COMMON };
#endif
