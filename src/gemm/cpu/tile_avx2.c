// tile_avx2.c - product kernels for AVX2, and for AVX-VNNI where present: the part that tile_vec.h leaves
// open.
//
// A line of a panel is four registers of 8 rows by 4 columns. Weights stay unsigned bytes, as both
// instructions need them. Without VNNI, VPMADDUBSW makes 16-bit sums of two products, which must not
// saturate: two products of 6-bit weights fit, and with 4-bit weights all 16 of a sub-block (8 * 3810 <
// 32768); 8-bit weights (Q8_0, IQ4) are split into 4-bit halves first.
#include "gemm/cpu/product.h"
#if defined(CPU_X86)
#include "device/cpu/vec_avx2.h"
enum { SIGNED_WEIGHTS = false };
#include "gemm/cpu/tile_vec.h"

VEC_INLINE vi look_up(table levels, vi index)
{
    return (vi)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256((__m128i)levels), (__m256i)index);
}

VEC_INLINE __m256i broadcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

VEC_INLINE vi shift_left(vi v, const int32_t *bits)
{
    return (vi)_mm256_sllv_epi32((__m256i)v, broadcast(bits));
}

VEC_INLINE vi add_pairs(vi acc, vi w, const int16_t *x)
{
    return acc + (vi)_mm256_madd_epi16((__m256i)w, broadcast(x));
}

// acc + w * x over 4 columns. The empty asm keeps the compiler from collecting eight products before it adds
// them, which spills registers.
VEC_INLINE vi dot(vi acc, __m256i w, __m256i x, const enum panel_planes planes, const enum dot kind)
{
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);

    if (kind == DOT_VNNI) {
        __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "x"(x));
        return acc;
    }
    if (planes == PLANES_8 || planes == PLANES_IQ4) {
        __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), low), x);
        __m256i rest = _mm256_maddubs_epi16(_mm256_and_si256(w, low), x);
        acc += (vi)_mm256_slli_epi32(_mm256_madd_epi16(high, ones), 4);
        acc += (vi)_mm256_madd_epi16(rest, ones);
    } else {
        acc += (vi)_mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones);
    }
    __asm__("" : "+x"(acc));
    return acc;
}

VEC_INLINE __m256i dot_16(__m256i acc, __m256i w, __m256i x)
{
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(acc));
    return acc;
}

// Weights of at most 4 bits: 16-bit sums hold a whole sub-block.
VEC_INLINE bool sums_in_16_bits(const enum panel_planes planes, const enum dot kind)
{
    return kind == DOT_MADD && (planes == PLANES_4 || planes == PLANES_2 || planes == PLANES_3);
}

VEC_INLINE void add_groups(acc_t acc, const struct tile_columns r, const enum quant Q, const int C,
                           const enum dot kind)
{
    const enum panel_planes planes = panel_shapes[Q].planes;
    const bool narrow = sums_in_16_bits(planes, kind);
    __m256i sum[PASS][TILE_ROWS];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++) sum[i][c] =
        _mm256_setzero_si256();
    UNROLL for (int g = r.first; g < r.last; g++)
    {
        __m256i w0 = (__m256i)(r.wide ? line(r.lines, g, r.v) : group(r.lines, Q, g, r.v)),
                w1 = (__m256i)(r.wide ? line(r.lines, g, r.v + 1) : group(r.lines, Q, g, r.v + 1));
        UNROLL for (int c = 0; c < C; c++)
        {
            __m256i x = broadcast(r.x + (size_t)c * r.x_stride + 4 * g);
            if (narrow) {
                sum[0][c] = dot_16(sum[0][c], w0, x);
                sum[1][c] = dot_16(sum[1][c], w1, x);
            } else {
                acc[0][c] = dot(acc[0][c], w0, x, planes, kind);
                acc[1][c] = dot(acc[1][c], w1, x, planes, kind);
            }
        }
    }
    UNROLL for (int i = 0; i < PASS && narrow; i++) UNROLL for (int c = 0; c < C; c++) acc[i][c] +=
        (vi)_mm256_madd_epi16(sum[i][c], _mm256_set1_epi16(1));
}

// factor * x, 32 of them.
VEC_INLINE __m256i rounded(const float *x, float factor)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // the pack instructions work within 128
                                                                     // bits
    __m256i q[4];

    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(factor)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, order);
}

SIMD static void round_block(const float *x, float factor, int8_t *out)
{
    _mm256_storeu_si256((__m256i *)out, rounded(x, factor));
}

#include "gemm/cpu/quantise_avx2.h"

// Panels as panel_wide lays them out, but with integers as group() gives them: small ones have the faster
// products. For the formats of `expand` alone.
VEC_INLINE void expand_header(const struct tile_place at, unsigned char *out, const enum quant Q)
{
    const enum panel_scales scales = panel_shapes[Q].scales;
    const int n_units = panel_by_16(scales) ? 16 : 8;

    for (int v = 0; v < VECTORS; v++) {
        unsigned char *to = out + v * (int)sizeof(vf);
        for (int unit = 0; unit < n_units; unit++)
            vf_store((float *)(void *)(to + unit * PANEL_LINE), unit_scale(at, Q, (uint32_t)unit, v));
        if (!panel_has_mins(scales))
            continue;
        UNROLL for (int p = 0; p < n_units / 2; p++)
        {
            vi pair = min_pair(at.header, scales, p, v);
            memcpy(to + (n_units + p) * PANEL_LINE, &pair, sizeof pair);
        }
        vf_store((float *)(void *)(to + (n_units + n_units / 2) * PANEL_LINE), min_scale(at.header, v));
    }
}

VEC_INLINE void expand_lines(const unsigned char *lines, unsigned char *out, const enum quant Q)
{
    UNROLL for (int g = 0; g < 8; g++) for (int v = 0; v < VECTORS; v++)
    {
        vi bytes = group(lines, Q, g, v);
        memcpy(out + g * PANEL_LINE + v * (int)sizeof bytes, &bytes, sizeof bytes);
    }
}

VEC_INLINE void expand_supers(const unsigned char *header, uint32_t n_cols, unsigned char *out,
                              const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q], wide = panel_wide(Q);

    for (uint32_t n = n_cols / PANEL_SUPER; n; n--) {
        expand_header((struct tile_place){ .header = header }, out, Q);
        prefetch(header, s.header_bytes);
        header += s.header_bytes;
        out += wide.header_bytes;
        for (uint32_t sub = 0; sub < SUPER_SUBS; sub++, header += s.sub_bytes, out += wide.sub_bytes) {
            prefetch(header, s.sub_bytes);
            expand_lines(header, out, Q);
        }
    }
}

VEC_INLINE void expand_blocks(const unsigned char *header, uint32_t n_cols, unsigned char *out,
                              const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q], wide = panel_wide(Q);

    for (uint32_t n = n_cols / PANEL_SUB; n; n--) {
        prefetch(header, panel_block_bytes(Q));
        for (int v = 0; v < VECTORS; v++)
            vf_store((float *)(void *)out + v * VF, halves_to_float(header, v));
        expand_lines(header + s.header_bytes, out + wide.header_bytes, Q);
        header += panel_block_bytes(Q);
        out += wide.header_bytes + wide.sub_bytes;
    }
}

SIMD static void expand(enum quant q, const unsigned char *panel, uint32_t n_cols, unsigned char *out)
{
    if (q == QUANT_Q4_0)
        expand_blocks(panel, n_cols, out, QUANT_Q4_0);
    else if (q == QUANT_Q4_K)
        expand_supers(panel, n_cols, out, QUANT_Q4_K);
    else if (q == QUANT_Q5_K)
        expand_supers(panel, n_cols, out, QUANT_Q5_K);
    else
        expand_supers(panel, n_cols, out, QUANT_Q6_K);
}

#include "gemm/cpu/tile_wide_avx2.h"

// clang-format off
#define WIDE_MADD(Q, LAST)                                                \
    SIMD static void wide_MADD_##Q##_##LAST(const struct product_tile *t) \
    {                                                                     \
        tile_wide(t, QUANT_##Q, LAST);                                    \
    }
#define FOUR(Q) wide_MADD_##Q##_1, wide_MADD_##Q##_2, wide_MADD_##Q##_3, wide_MADD_##Q##_0
#define WIDE_MADD_TILES(Q)                                          \
    WIDE_MADD(Q, 0) WIDE_MADD(Q, 1) WIDE_MADD(Q, 2) WIDE_MADD(Q, 3) \
    static product_tile_fn *const wide_MADD_##Q[WIDE_ROWS + 1] = { NULL, FOUR(Q), FOUR(Q), FOUR(Q), FOUR(Q) };
#define WIDE_VNNI(kind, Q, C)                                         \
    SIMD static void wide_VNNI_##Q##_##C(const struct product_tile *t) \
    {                                                                 \
        clear(t->y, C);                                               \
        tile_supers(t, QUANT_##Q, C, DOT_VNNI, true);                 \
    }
#define WIDE_NAME(kind, Q, C) , wide_VNNI_##Q##_##C
#define WIDE_VNNI_TILES(Q)         \
    UP_TO_ROWS(WIDE_VNNI, VNNI, Q) \
    static product_tile_fn *const wide_VNNI_##Q[] = { NULL UP_TO_ROWS(WIDE_NAME, VNNI, Q) };
WIDE_MADD_TILES(Q4_0) WIDE_MADD_TILES(Q4_K) WIDE_MADD_TILES(Q5_K) WIDE_MADD_TILES(Q6_K)
WIDE_VNNI_TILES(Q4_K) WIDE_VNNI_TILES(Q5_K) WIDE_VNNI_TILES(Q6_K)
    // clang-format on

    QUANT_BLOCK_FORMATS(INT_TILES, MADD) QUANT_BLOCK_FORMATS(INT_TILES, VNNI)
        QUANT_FORMATS(EXACT_TILES, EXACT)

#include "gemm/cpu/tile_file.h"

// clang-format off
#define MORE(kind, ROWS, ...) .file = product_file_tiles, .file_rows = TILE_ROWS, .expand = expand, \
    .wide = { [QUANT_Q4_K] = wide_##kind##_Q4_K, [QUANT_Q5_K] = wide_##kind##_Q5_K, \
              [QUANT_Q6_K] = wide_##kind##_Q6_K, __VA_ARGS__ }, \
    .wide_rows = { [PACKING_INT8] = ROWS, [PACKING_INT8_SUPER] = ROWS }
const struct product_kernels
    product_avx2 = PRODUCT_KERNELS(MADD, MORE(MADD, WIDE_ROWS, [QUANT_Q4_0] = wide_MADD_Q4_0)),
    product_avx_vnni = PRODUCT_KERNELS(VNNI, MORE(VNNI, TILE_ROWS, ));
// clang-format on
#endif
