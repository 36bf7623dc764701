// tile_avx512.c - product kernels for AVX-512 with VNNI, and with BF16 where present.
//
// A register holds 4 columns of 16 weight rows, so VPDPBUSD multiplies it by a broadcast of 4 bytes of an
// activation row and no sum across lanes is ever needed. 32 weight rows by 6 activation rows give 12
// accumulators and 12 fp32 sums; everything else is loads. The two pipes for VPDPBUSD also do all fp32
// multiplications, so a block costs 96 of one and 24 of the other: at best 80 % of peak. Where activations
// have a scale for 256 columns (product.h) they leave 82 % for formats with minimums, 88 without.
// Formats differ only in how a group of 4 columns and the scales are unpacked, which the constants of panel.h
// decide at compile time. Array sizes are constants: a size from a parameter makes arrays in memory and costs
// two thirds of the speed.
#include "gemm/cpu/product.h"
#include "gemm/cpu/tile_amx.h"
#if defined(CPU_X86)
#include <immintrin.h>
#include "quant/mxfp4.h"

#define SIMD      TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#define SIMD_BF16 TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")
#define INLINE    static inline __attribute__((always_inline)) SIMD
#define UNROLL    _Pragma("GCC unroll 16")

// The most rows of activations in a tile; FILE: in one of tile_avx2.c. Every size is a function of its own
// for every format, which sanitizers take minutes to compile; two sizes show them the same code.
#if defined(INGOT_FEW_TILES)
enum { ROWS_INT = 2, ROWS_EXACT = 2, ROWS_BF16 = 2, ROWS_FILE = 2 };
#define UP_TO_INT   UP_TO_2
#define UP_TO_EXACT UP_TO_2
#define UP_TO_BF16  UP_TO_2
#else
enum { ROWS_INT = 6, ROWS_EXACT = 6, ROWS_BF16 = 12, ROWS_FILE = 4 };
#define UP_TO_INT   UP_TO_6
#define UP_TO_EXACT UP_TO_6
#define UP_TO_BF16  UP_TO_12
#endif
enum { HALVES = 2, PREFETCH = 8192 };

INLINE __m512i line(const unsigned char *p, int l, int h)
{
    return _mm512_load_si512(p + l * PANEL_LINE + h * 64);
}

INLINE __m512i broadcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

INLINE __m512 broadcast_float(const void *p)
{
    return _mm512_castsi512_ps(broadcast(p));
}

INLINE void prefetch(const unsigned char *w, uint32_t bytes)
{
    UNROLL for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)w + PREFETCH + i, _MM_HINT_T0);
}

// Into the second cache: blocks of 256, which come in runs of 512 bytes and more, arrive faster so (measured:
// bench/results/2026-11-28-cpu-experts.md), and so do experts' blocks of 32
// (bench/results/2026-11-29-cpu-zen4.md).
INLINE void prefetch_run(const unsigned char *w, uint32_t bytes)
{
    UNROLL for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)w + PREFETCH + i, _MM_HINT_T1);
}

// bits << left, or >> when negative, then masked: moves a bit field of each byte to its place.
INLINE __m512i field(__m512i bits, int left, int mask)
{
    __m512i moved = left > 0   ? _mm512_slli_epi16(bits, left)
                    : left < 0 ? _mm512_srli_epi16(bits, -left)
                               : bits;
    return _mm512_and_si512(moved, _mm512_set1_epi8((char)mask));
}

INLINE __m512i levels(__m512i index, const enum panel_planes planes)
{
    static const int8_t iq4[16] = PANEL_IQ4_LEVELS, mxfp4[16] = PANEL_MXFP4_LEVELS;
    __m128i table = _mm_loadu_si128((const __m128i *)(planes == PLANES_IQ4 ? iq4 : mxfp4));
    __m128i offset = _mm_set1_epi8(planes == PLANES_IQ4 ? -128 : 16);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_add_epi8(table, offset)), index);
}

// Group g (columns 4g..4g+3) of rows 16h..16h+15 of a sub-block, as unsigned bytes.
INLINE __m512i group(const unsigned char *lines, const enum panel_planes planes, const int g, const int h)
{
    const int two_left = 4 - 2 * (g % 4);

    if (planes == PLANES_8)
        return line(lines, g, h);
    if (planes == PLANES_2)
        return field(line(lines, g / 4, h), -2 * (g % 4), 3);
    if (planes == PLANES_3)
        return _mm512_or_si512(field(line(lines, g / 4, h), -2 * (g % 4), 3),
                               field(line(lines, 2, h), 2 - g, 4));
    __m512i four = field(line(lines, g / 2, h), g % 2 ? -4 : 0, 15);
    if (planes == PLANES_5)
        return _mm512_or_si512(four, field(line(lines, 4, h), 4 - g, 16));
    if (planes == PLANES_6)
        return _mm512_or_si512(four, field(line(lines, 4 + g / 4, h), two_left, 48));
    return planes == PLANES_4 ? four : levels(four, planes);
}

INLINE __m512 halves_to_float(const unsigned char *p, int h)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(p + 32 * h)));
}

struct avx512_scale {
    __m512 d, m; // value = d * q + m
};

// Byte number `index` of the lanes of four lines of scales.
INLINE __m512i scale_byte(const unsigned char *lines, uint32_t index, int h)
{
    return _mm512_srl_epi32(line(lines, (int)(index / 4), h), _mm_cvtsi32_si128((int)(index % 4 * 8)));
}

INLINE struct avx512_scale scale_6bit(const unsigned char *header, uint32_t sub, int h)
{
    const __m512i low = _mm512_set1_epi32(15), high = _mm512_set1_epi32(48);
    __m512i bits = scale_byte(header + 128, sub, h);
    __m512i top =
        _mm512_srl_epi32(line(header + 128, 2, h), _mm_cvtsi32_si128((int)(sub % 4 * 8 + sub / 4 * 2)));
    __m512i s =
        _mm512_or_si512(_mm512_and_si512(bits, low), _mm512_and_si512(_mm512_slli_epi32(top, 4), high));
    __m512i m =
        _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(bits, 4), low), _mm512_and_si512(top, high));
    __m512 zero = _mm512_setzero_ps();
    return (struct avx512_scale){ _mm512_mul_ps(halves_to_float(header, h), _mm512_cvtepi32_ps(s)),
                                  _mm512_fnmadd_ps(halves_to_float(header + 64, h), _mm512_cvtepi32_ps(m),
                                                   zero) };
}

INLINE __m512 signed_byte(const unsigned char *lines, uint32_t index, int h)
{
    __m512i bits =
        _mm512_sll_epi32(line(lines, (int)(index / 4), h), _mm_cvtsi32_si128((int)(24 - index % 4 * 8)));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 24));
}

INLINE __m512 scale_signed(const unsigned char *header, uint32_t index, int h)
{
    return _mm512_mul_ps(halves_to_float(header, h), signed_byte(header + 64, index, h));
}

// Rows 16h.. and sub-block `sub`; in formats with a scale for each 16 columns, its first or second 16.
INLINE struct avx512_scale scale_of(const unsigned char *header, const enum panel_scales scales, uint32_t sub,
                                    int half, int h)
{
    const __m512i low = _mm512_set1_epi32(15);
    __m512 zero = _mm512_setzero_ps();

    if (scales == SCALES_6BIT)
        return scale_6bit(header, sub, h);
    if (scales == SCALES_BYTE32)
        return (struct avx512_scale){ scale_signed(header, sub, h), zero };
    if (scales == SCALES_BYTE16)
        return (struct avx512_scale){ scale_signed(header, 2 * sub + (uint32_t)half, h), zero };
    if (scales == SCALES_FLOAT16) {
        __m512 d = _mm512_load_ps((const float *)(const void *)header + 16 * h);
        d = _mm512_mul_ps(d, signed_byte(header + 128, 2 * sub + (uint32_t)half, h));
        return (struct avx512_scale){ d, zero };
    }
    if (scales == SCALES_NIBBLES16) {
        __m512i bits = scale_byte(header + 128, 2 * sub + (uint32_t)half, h);
        __m512 s = _mm512_cvtepi32_ps(_mm512_and_si512(bits, low));
        __m512 m = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(bits, 4), low));
        return (struct avx512_scale){ _mm512_mul_ps(halves_to_float(header, h), s),
                                      _mm512_fnmadd_ps(halves_to_float(header + 64, h), m, zero) };
    }
    if (scales == SCALES_BF16)
        return (struct avx512_scale){
            _mm512_castsi512_ps(_mm512_slli_epi32(
                _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(header + 32 * h))), 16)),
            zero
        };
    return (struct avx512_scale){ halves_to_float(header, h),
                                  scales == SCALES_DM ? halves_to_float(header + 64, h) : zero };
}

#define X_SUPER(t, c, b) ((const struct product_super *)((t)->x + (c) * (t)->x_stride) + (b))

typedef __m512i acc_t[HALVES][ROWS_INT];
typedef __m512 sum_t[HALVES][ROWS_INT];

struct avx512_range { // groups [first, last) of a sub-block of weights, and the address of the first row's
                      // activations
    const unsigned char *lines;
    const int8_t *q;
    int first, last;
};

INLINE void dot_groups(acc_t acc, const struct product_tile *t, const struct avx512_range r,
                       const enum panel_planes planes, const int C)
{
    UNROLL for (int g = r.first; g < r.last; g++)
    {
        __m512i w0 = group(r.lines, planes, g, 0), w1 = group(r.lines, planes, g, 1);
        UNROLL for (int c = 0; c < C; c++)
        {
            __m512i v = broadcast(r.q + (size_t)c * t->x_stride + 4 * g);
            acc[0][c] = _mm512_dpbusd_epi32(acc[0][c], w0, v);
            acc[1][c] = _mm512_dpbusd_epi32(acc[1][c], w1, v);
        }
    }
}

// For half h of the rows. Loaded where they are used: the compiler would keep the ones of a large block, or
// of both halves, and spill sums.
#define LOADED_HERE(p) __asm__("" : "+r"(p))

INLINE const void *in_row(const void *first, const struct product_tile *t, const int c)
{
    return (const unsigned char *)first + (size_t)c * t->x_stride;
}

// Accumulators start at -offset * sum of the activations, which makes the unsigned weights signed at no cost.
INLINE void add_block(sum_t sum, const struct product_tile *t, const unsigned char *header, uint32_t block,
                      const struct panel_shape s, const int C)
{
    const struct product_block x = product_block(t->x, t->n_cols, block); // of the first row
    acc_t acc;

    UNROLL for (int c = 0; c < C; c++) acc[0][c] = acc[1][c] =
        s.offset_bits ? _mm512_slli_epi32(broadcast(in_row(x.minus_sum, t, c)), s.offset_bits)
                      : _mm512_setzero_si512();
    dot_groups(acc, t, (struct avx512_range){ header + s.header_bytes, x.q, 0, 8 }, s.planes, C);
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        const float *scale = x.scale, *total = x.sum;
        LOADED_HERE(scale);
        LOADED_HERE(total);
        LOADED_HERE(header);
        struct avx512_scale w = scale_of(header, s.scales, 0, 0, h);
        UNROLL for (int c = 0; c < C; c++)
        {
            __m512 d = _mm512_mul_ps(w.d, broadcast_float(in_row(scale, t, c)));
            sum[h][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[h][c]), d, sum[h][c]);
            if (panel_has_mins(s.scales))
                sum[h][c] = _mm512_fmadd_ps(w.m, broadcast_float(in_row(total, t, c)), sum[h][c]);
        }
    }
}

INLINE void tile_blocks(const struct product_tile *t, const struct panel_shape s, const int C)
{
    const unsigned char *w = t->w;
    const bool scattered = t->scattered;
    sum_t sum;

    UNROLL for (int c = 0; c < C; c++) sum[0][c] = sum[1][c] = _mm512_setzero_ps();
    for (uint32_t block = 0; block < t->n_cols / PANEL_SUB; block++, w += s.header_bytes + s.sub_bytes) {
        if (scattered)
            prefetch_run(w, s.header_bytes + s.sub_bytes);
        else
            prefetch(w, s.header_bytes + s.sub_bytes);
        add_block(sum, t, w, block, s, C);
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < HALVES; h++)
        _mm512_store_ps(t->y + c * PANEL_ROWS + h * 16, sum[h][c]);
}

// Blocks of 256 columns. A unit is 32 or 16 columns with one scale.
struct super {
    const struct product_tile *t;
    const unsigned char *header;
    const struct product_super *x; // of the first row
};

INLINE const struct product_super *row_super(const struct product_super *first, const struct product_tile *t,
                                             const int c)
{
    return (const void *)((const unsigned char *)first + (size_t)c * t->x_stride);
}

INLINE __m512 unit_scale(const unsigned char *header, const enum panel_scales scales, uint32_t unit, int h)
{
    if (scales >= SCALES_WIDE)
        return _mm512_load_ps(header + unit * PANEL_LINE + h * 64);
    return panel_by_16(scales) ? scale_of(header, scales, unit / 2, (int)(unit % 2), h).d
                               : scale_of(header, scales, unit, 0, h).d;
}

// Minimums of units 4i and 4i + 2 (pair 2i), or 4i + 1 and 4i + 3 (pair 2i + 1), as 16-bit integers.
INLINE __m512i min_pair(const unsigned char *header, const enum panel_scales scales, const int pair, int h)
{
    const unsigned char *lines = header + 128;
    const int odd = pair % 2 * 8;

    if (scales >= SCALES_WIDE)
        return line(header, (scales == SCALES_WIDE16_DM ? 16 : 8) + pair, h);
    __m512i low = _mm512_and_si512(_mm512_srli_epi16(line(lines, pair / 2, h), (unsigned)(odd + 4)),
                                   _mm512_set1_epi16(15));
    if (scales == SCALES_NIBBLES16)
        return low;
    __m512i top = _mm512_srli_epi16(line(lines, 2, h), (unsigned)(odd + pair / 2 * 2));
    return _mm512_or_si512(low, _mm512_and_si512(top, _mm512_set1_epi16(48)));
}

INLINE __m512 min_scale(const unsigned char *header, const enum panel_scales scales, int h)
{
    if (scales >= SCALES_WIDE)
        return _mm512_load_ps(header + (scales == SCALES_WIDE16_DM ? 24 : 12) * PANEL_LINE + h * 64);
    return _mm512_mul_ps(halves_to_float(header + 64, h), _mm512_set1_ps(1 << SUPER_SUM_SHIFT));
}

INLINE __m512i start_unit(const struct product_super *x, const struct panel_shape s, uint32_t unit)
{
    if (s.offset_bits == 0)
        return _mm512_setzero_si512();
    __m512i sum = panel_by_16(s.scales) ? broadcast(&x->minus_sum[unit])
                                        : _mm512_add_epi32(broadcast(&x->minus_sum[2 * unit]),
                                                           broadcast(&x->minus_sum[2 * unit + 1]));
    return _mm512_slli_epi32(sum, s.offset_bits);
}

INLINE void add_unit(sum_t sum, const struct super at, const struct panel_shape s, uint32_t sub,
                     const int half, const int C)
{
    const bool by16 = panel_by_16(s.scales);
    const uint32_t unit = by16 ? 2 * sub + (uint32_t)half : sub;
    const int32_t *left = &at.x->left[sub];
    const unsigned char *header = at.header;
    acc_t acc;

    UNROLL for (int c = 0; c < C; c++) acc[0][c] = acc[1][c] = start_unit(row_super(at.x, at.t, c), s, unit);
    dot_groups(acc, at.t,
               (struct avx512_range){ header + s.header_bytes + sub * s.sub_bytes, at.x->q + sub * PANEL_SUB,
                                      half * 4, by16 ? half * 4 + 4 : 8 },
               s.planes, C);
    LOADED_HERE(header);
    LOADED_HERE(left);
    __m512 d0 = unit_scale(header, s.scales, unit, 0), d1 = unit_scale(header, s.scales, unit, 1);
    UNROLL for (int c = 0; c < C; c++)
    {
        __m512i bits = broadcast((const unsigned char *)left + (size_t)c * at.t->x_stride);
        sum[0][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sllv_epi32(acc[0][c], bits)), d0, sum[0][c]);
        sum[1][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sllv_epi32(acc[1][c], bits)), d1, sum[1][c]);
    }
}

INLINE void subtract_mins(sum_t sum, const struct super at, const enum panel_scales scales, const int C)
{
    const int n_pairs = panel_by_16(scales) ? 8 : 4;
    const struct product_super *first = at.x;
    const unsigned char *header = at.header;
    acc_t acc;

    LOADED_HERE(first);
    LOADED_HERE(header);
    UNROLL for (int c = 0; c < C; c++) acc[0][c] = acc[1][c] = _mm512_setzero_si512();
    UNROLL for (int p = 0; p < n_pairs; p++)
    {
        __m512i m0 = min_pair(header, scales, p, 0), m1 = min_pair(header, scales, p, 1);
        UNROLL for (int c = 0; c < C; c++)
        {
            const struct product_super *x = row_super(first, at.t, c);
            __m512i v = broadcast(n_pairs == 8 ? x->sums_16 + 2 * p : x->sums_32 + 2 * p);
            acc[0][c] = _mm512_dpwssd_epi32(acc[0][c], m0, v);
            acc[1][c] = _mm512_dpwssd_epi32(acc[1][c], m1, v);
        }
    }
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        __m512 d = min_scale(header, scales, h);
        UNROLL for (int c = 0; c < C; c++) sum[h][c] =
            _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(acc[h][c]), sum[h][c]);
    }
}

// y stays in memory: it is needed once in 256 columns, and registers are few.
INLINE void tile_supers(const struct product_tile *t, const struct panel_shape s, const int C)
{
    const bool from_memory = s.scales < SCALES_WIDE; // prefetching what is already in the cache costs time
    struct super at = { t, t->w, X_SUPER(t, 0, 0) };

    UNROLL for (int i = 0; i < C * HALVES; i++) _mm512_store_ps(t->y + 16 * i, _mm512_setzero_ps());
    for (uint32_t n = t->n_cols / PANEL_SUPER; n;
         n--, at.x++, at.header += s.header_bytes + SUPER_SUBS * s.sub_bytes) {
        sum_t sum;
        UNROLL for (int c = 0; c < C; c++) sum[0][c] = sum[1][c] = _mm512_setzero_ps();
        if (from_memory)
            prefetch_run(at.header, s.header_bytes);
        for (uint32_t sub = 0; sub < SUPER_SUBS; sub++) {
            if (from_memory)
                prefetch_run(at.header + s.header_bytes + sub * s.sub_bytes, s.sub_bytes);
            add_unit(sum, at, s, sub, 0, C);
            if (panel_by_16(s.scales))
                add_unit(sum, at, s, sub, 1, C);
        }
        if (panel_has_mins(s.scales))
            subtract_mins(sum, at, s.scales, C);
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < HALVES; h++)
        {
            float *y = t->y + c * PANEL_ROWS + h * 16;
            _mm512_store_ps(y, _mm512_fmadd_ps(sum[h][c], broadcast_float(&row_super(at.x, t, c)->scale),
                                               _mm512_load_ps(y)));
        }
    }
}

INLINE void tile_int(const struct product_tile *t, const enum quant Q, const int C)
{
    if (panel_shapes[Q].columns == PANEL_SUPER)
        tile_supers(t, panel_shapes[Q], C);
    else
        tile_blocks(t, panel_shapes[Q], C);
}

INLINE void tile_wide(const struct product_tile *t, const enum quant Q, const int C)
{
    tile_supers(t, panel_wide(Q), C);
}

// Exact products: 32 columns of the panel as fp32 [32 columns][32 rows] in L1, then plain multiplications and
// additions by column.
typedef float columns_t[PANEL_SUB][PANEL_ROWS];

INLINE void decode_sub(columns_t out, const unsigned char *header, uint32_t sub, const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q];
    const unsigned char *lines = header + s.header_bytes + sub * s.sub_bytes;
    const __m512 offset = _mm512_set1_ps(s.offset_bits ? (float)(1 << s.offset_bits) : 0);

    UNROLL for (int h = 0; h < HALVES; h++) UNROLL for (int g = 0; g < 8; g++)
    {
        struct avx512_scale w = scale_of(header, s.scales, sub, g / 4, h);
        __m512i four = group(lines, s.planes, g, h);
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m512i q = _mm512_and_si512(_mm512_srli_epi32(four, (unsigned)(8 * i)), _mm512_set1_epi32(255));
            __m512 v = _mm512_sub_ps(_mm512_cvtepi32_ps(q), offset);
            // d * q has few bits and is exact: fused or not, the result is the value that the format defines.
            _mm512_store_ps(&out[4 * g + i][16 * h], _mm512_fmadd_ps(w.d, v, w.m));
        }
    }
}

INLINE void decode_float(columns_t out, const unsigned char *w, uint32_t n, const enum quant Q)
{
    for (uint32_t k = 0; k < n; k++)
        UNROLL for (int h = 0; h < HALVES; h++)
        {
            __m512 v;
            if (Q == QUANT_F32)
                v = _mm512_load_ps(w + k * 128 + h * 64);
            else if (Q == QUANT_F16)
                v = halves_to_float(w + k * 64, h);
            else if (k % 2)
                v = _mm512_castsi512_ps(
                    _mm512_and_si512(line(w, (int)(k / 2), h), _mm512_set1_epi32((int)0xffff0000)));
            else
                v = _mm512_castsi512_ps(_mm512_slli_epi32(line(w, (int)(k / 2), h), 16));
            _mm512_store_ps(&out[k][16 * h], v);
        }
}

INLINE void tile_exact(const struct product_tile *t, const enum quant Q, const int C)
{
    const struct panel_shape s = panel_shapes[Q];
    const uint32_t n_subs = s.columns > PANEL_SUB ? s.columns / PANEL_SUB : 1,
                   block_bytes = s.header_bytes + n_subs * s.sub_bytes;
    __m512 sum[HALVES][ROWS_EXACT];
    _Alignas(64) columns_t w;

    UNROLL for (int c = 0; c < C; c++) sum[0][c] = sum[1][c] = _mm512_setzero_ps();
    for (uint32_t first = 0; first < t->n_cols; first += PANEL_SUB) {
        uint32_t n = t->n_cols - first < PANEL_SUB ? t->n_cols - first : PANEL_SUB;
        const unsigned char *at = t->w + (uint64_t)(first / s.columns) * block_bytes;
        prefetch(at, n_subs > 1 ? 512 : s.sub_bytes);
        if (s.planes == PLANES_FLOAT)
            decode_float(w, at, n, Q);
        else
            decode_sub(w, at, first / PANEL_SUB % n_subs, Q);
        for (uint32_t k = 0; k < n; k++) {
            __m512 w0 = _mm512_load_ps(w[k]), w1 = _mm512_load_ps(w[k] + 16);
            UNROLL for (int c = 0; c < C; c++)
            {
                __m512 v = broadcast_float(t->x + c * t->x_stride + (first + k) * 4);
                sum[0][c] = _mm512_fmadd_ps(w0, v, sum[0][c]);
                sum[1][c] = _mm512_fmadd_ps(w1, v, sum[1][c]);
            }
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < HALVES; h++)
        _mm512_store_ps(t->y + c * PANEL_ROWS + h * 16, sum[h][c]);
}

static inline __attribute__((always_inline)) SIMD_BF16 void tile_bf16(const struct product_tile *t,
                                                                      const int C)
{
    __m512 sum[HALVES][ROWS_BF16];
    const unsigned char *w = t->w;

    UNROLL for (int c = 0; c < C; c++) sum[0][c] = sum[1][c] = _mm512_setzero_ps();
    for (uint32_t k = 0; k < t->n_cols; k += 2, w += PANEL_LINE) {
        __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
        _mm_prefetch((const char *)w + PREFETCH, _MM_HINT_T0);
        _mm_prefetch((const char *)w + PREFETCH + 64, _MM_HINT_T0);
        UNROLL for (int c = 0; c < C; c++)
        {
            int32_t pair;
            memcpy(&pair, t->x + c * t->x_stride + k * 2, 4);
            __m512i v = _mm512_set1_epi32(pair);
            sum[0][c] = _mm512_dpbf16_ps(sum[0][c], (__m512bh)w0, (__m512bh)v);
            sum[1][c] = _mm512_dpbf16_ps(sum[1][c], (__m512bh)w1, (__m512bh)v);
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int h = 0; h < HALVES; h++)
        _mm512_store_ps(t->y + c * PANEL_ROWS + h * 16, sum[h][c]);
}

INLINE void expand_lines(const unsigned char *lines, unsigned char *out, const struct panel_shape s,
                         const uint32_t offset)
{
    const __m512i more = _mm512_set1_epi8((char)(offset - (s.offset_bits ? 1u << s.offset_bits : 0)));

    UNROLL for (int g = 0; g < 8; g++) UNROLL for (int h = 0; h < HALVES; h++) _mm512_store_si512(
        out + g * PANEL_LINE + h * 64, _mm512_add_epi8(group(lines, s.planes, g, h), more));
}

INLINE void expand_header(const unsigned char *header, unsigned char *out, const struct panel_shape s)
{
    const uint32_t n_units = panel_by_16(s.scales) ? 16 : 8;
    unsigned char *mins = out + n_units * PANEL_LINE;

    for (uint32_t unit = 0; unit < n_units; unit++)
        UNROLL for (int h = 0; h < HALVES; h++)
            _mm512_store_ps(out + unit * PANEL_LINE + h * 64, unit_scale(header, s.scales, unit, h));
    if (!panel_has_mins(s.scales))
        return;
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        UNROLL for (int p = 0; p < (int)n_units / 2; p++)
            _mm512_store_si512(mins + p * PANEL_LINE + h * 64, min_pair(header, s.scales, p, h));
        _mm512_store_ps(mins + n_units / 2 * PANEL_LINE + h * 64, min_scale(header, s.scales, h));
    }
}

INLINE void expand_supers(const unsigned char *header, uint32_t n_cols, unsigned char *out,
                          const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q], wide = panel_wide(Q);

    for (uint32_t n = n_cols / PANEL_SUPER; n; n--) {
        prefetch(header, s.header_bytes);
        expand_header(header, out, s);
        header += s.header_bytes;
        out += wide.header_bytes;
        for (uint32_t sub = 0; sub < SUPER_SUBS; sub++, header += s.sub_bytes, out += wide.sub_bytes) {
            prefetch(header, s.sub_bytes);
            expand_lines(header, out, s, wide.offset_bits ? 1u << wide.offset_bits : 0);
        }
    }
}

INLINE void expand_signed(const unsigned char *header, uint32_t n_cols, unsigned char *out,
                          const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q], wide = panel_wide(Q);

    for (uint32_t n = n_cols / PANEL_SUB; n; n--) {
        UNROLL for (int h = 0; h < HALVES; h++)
            _mm512_store_ps(out + h * 64, scale_of(header, s.scales, 0, 0, h).d);
        prefetch(header, s.header_bytes + s.sub_bytes);
        expand_lines(header + s.header_bytes, out + wide.header_bytes, s, 0);
        header += s.header_bytes + s.sub_bytes;
        out += wide.header_bytes + wide.sub_bytes;
    }
}

SIMD static void expand(enum quant q, const unsigned char *panel, uint32_t n_cols, unsigned char *out)
{
    switch (q) {
#define EXPAND(Q, name, kind)                \
    case QUANT_##Q:                          \
        kind(panel, n_cols, out, QUANT_##Q); \
        break;
        QUANT_SUPER_FORMATS(EXPAND, expand_supers)
        QUANT_SIGNED_FORMATS(EXPAND, expand_signed)
#undef EXPAND
    default:
        CHECK(!"a format that is as wide as it gets");
    }
}

#define TILE(kind, Q, C)                                            \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_##kind(t, QUANT_##Q, C);                               \
    }
#define UP_TO_2(M, kind, Q) M(kind, Q, 1) M(kind, Q, 2)
#define UP_TO_6(M, kind, Q) UP_TO_2(M, kind, Q) M(kind, Q, 3) M(kind, Q, 4) M(kind, Q, 5) M(kind, Q, 6)
#define UP_TO_12(M, kind, Q) \
    UP_TO_6(M, kind, Q) M(kind, Q, 7) M(kind, Q, 8) M(kind, Q, 9) M(kind, Q, 10) M(kind, Q, 11) M(kind, Q, 12)
#define NAME(kind, Q, C) , kind##_##Q##_##C
#define INT_TILES(Q, name, with) \
    UP_TO_INT(TILE, int, Q)      \
    static product_tile_fn *const int_##Q[] = { NULL UP_TO_INT(NAME, int, Q) };
#define WIDE_TILES(Q)        \
    UP_TO_INT(TILE, wide, Q) \
    static product_tile_fn *const wide_##Q[] = { NULL UP_TO_INT(NAME, wide, Q) };
#define EXACT_TILES(Q, name, with) \
    UP_TO_EXACT(TILE, exact, Q)    \
    static product_tile_fn *const exact_##Q[] = { NULL UP_TO_EXACT(NAME, exact, Q) };
QUANT_BLOCK_FORMATS(INT_TILES, )
WIDE_TILES(Q2_K)
WIDE_TILES(Q4_K) // covers Q5_K, whose wide layout is the same
WIDE_TILES(Q6_K) // covers Q3_K and Q8_16
WIDE_TILES(IQ4_XS)
QUANT_FORMATS(EXACT_TILES, )

#define TILE_BF16(kind, Q, C)                                            \
    SIMD_BF16 static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                                    \
        tile_bf16(t, C);                                                 \
    }
UP_TO_BF16(TILE_BF16, dot, BF16)
static product_tile_fn *const dot_BF16[] = { NULL UP_TO_BF16(NAME, dot, BF16) };

#include "gemm/cpu/quantise_avx512.h"

SIMD_BF16 static void round_bf16(const float *x, uint32_t n, uint16_t *out)
{
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 mask = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        __mmask16 even = (__mmask16)(mask | mask << 1);
        __m256i v = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
        if (n - i < 16 && n % 2)
            _mm256_mask_storeu_epi16(out + i, even, v);
        else
            _mm256_mask_storeu_epi16(out + i, mask, v);
    }
}

SIMD static void store(const struct product_store *s)
{
    for (uint32_t r = 0; r < s->n_rows; r++)
        for (uint32_t i = 0; i < s->n_cols; i += 16) {
            __mmask16 mask = (__mmask16)(s->n_cols - i < 16 ? (1u << (s->n_cols - i)) - 1 : 0xffff);
            __m512 v = _mm512_load_ps(s->y + r * PANEL_ROWS + i);
            if (s->bias)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, s->bias + i));
            if (s->add)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, s->add + r * s->add_stride + i));
            _mm512_mask_storeu_ps(s->out + r * s->stride + i, mask, v);
        }
}

#define INT_ENTRY(Q, name, with)   [QUANT_##Q] = int_##Q,
#define EXACT_ENTRY(Q, name, with) [QUANT_##Q] = exact_##Q,
#define WIDE                                                                                                \
    [QUANT_Q2_K] = wide_Q2_K, [QUANT_Q3_K] = wide_Q6_K, [QUANT_Q4_K] = wide_Q4_K, [QUANT_Q5_K] = wide_Q4_K, \
    [QUANT_Q6_K] = wide_Q6_K, [QUANT_IQ4_XS] = wide_IQ4_XS, [QUANT_Q8_16] = wide_Q6_K
#define AMX_ENTRY(Q, name, with) [QUANT_##Q] = amx_tiles,
#define COMMON                                                                                     \
    .integer = { QUANT_BLOCK_FORMATS(INT_ENTRY, ) }, .exact = { QUANT_FORMATS(EXACT_ENTRY, ) },    \
    .integer_rows = ROWS_INT, .exact_rows = ROWS_EXACT, .expand = expand, .quantise = quantise,    \
    .quantise_super = quantise_super, .store = store, .pack = pack_avx512, .file_rows = ROWS_FILE, \
    .file = product_file_tiles
#define SUPER_ROWS [PACKING_INT8_SUPER] = ROWS_INT
#define BF16       .bf16 = dot_BF16, .bf16_rows = ROWS_BF16, .round = round_bf16

const struct product_kernels product_avx512 = { COMMON, .wide = { WIDE }, .wide_rows = { SUPER_ROWS } };
const struct product_kernels product_avx512_bf16 = { COMMON, BF16, .wide = { WIDE },
                                                     .wide_rows = { SUPER_ROWS } };
const struct product_kernels product_amx = { COMMON, BF16,
                                             .wide = { WIDE, QUANT_SIGNED_FORMATS(AMX_ENTRY, ) },
                                             .wide_rows = { SUPER_ROWS, [PACKING_INT8] = AMX_ROWS } };
#endif
