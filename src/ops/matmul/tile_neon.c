// tile_neon.c - the product's kernels for AArch64: NEON, and SDOT or SMMLA where present, on the panels of panel.h.
//
// A line of a panel is eight registers of 4 rows by 4 columns, and SDOT multiplies one with 4 bytes of an activation row. A sub-block is
// done 16 rows of W at a time for up to 4 rows of X: 16 accumulators, 8 registers of X; sums live in y. Integers are made signed first,
// so accumulators start at zero. Every output takes the same chain of fp32 operations as in tile_avx512.c.
// SMMLA multiplies 2 rows of 8 columns with 2 rows of X: two groups of columns are zipped for it. Both instructions are written as
// assembly, so that the rest of the program may be built for any ARMv8. Tested under qemu; no speed has been measured.
#include "ops/matmul/product.h"
#if defined(CPU_ARM)
#include <arm_neon.h>
#include "quant/iq4_nl.h"
#include "quant/mxfp4.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#if defined(INGOT_FEW_TILES) // see tile_avx512.c
enum { ROWS_INT = 2, ROWS_FLOAT = 2 };
#define UP_TO_ROWS UP_TO_2
#else
enum { ROWS_INT = 4, ROWS_FLOAT = 4 };
#define UP_TO_ROWS UP_TO_4
#endif
enum { HALVES = 2, FOURS = 4 }; // a half is 16 rows of a panel, in registers of 4

INLINE uint8x16_t line(const unsigned char *p, int l, int half, int four)
{
    return vld1q_u8(p + l * PANEL_LINE + half * 64 + four * 16);
}

// bits << left, or >> when negative, then masked: moves a field of a byte to its place.
INLINE uint8x16_t field(uint8x16_t bits, int left, int mask)
{
    return vandq_u8(vshlq_u8(bits, vdupq_n_s8((int8_t)left)), vdupq_n_u8((uint8_t)mask));
}

struct spot {
    int g, half, four; // group of 4 columns; half and quarter-half of the rows
};

// Columns 4g..4g+3 of 4 rows of a sub-block, as they are stored.
INLINE uint8x16_t stored(const unsigned char *lines, const enum panel_planes planes, const struct spot s)
{
    if (planes == PLANES_8)
        return line(lines, s.g, s.half, s.four);
    if (planes == PLANES_2 || planes == PLANES_3) {
        uint8x16_t two = field(line(lines, s.g / 4, s.half, s.four), -2 * (s.g % 4), 3);
        return planes == PLANES_2 ? two : vorrq_u8(two, field(line(lines, 2, s.half, s.four), 2 - s.g, 4));
    }
    uint8x16_t four = field(line(lines, s.g / 2, s.half, s.four), s.g % 2 ? -4 : 0, 15);
    if (planes == PLANES_5)
        return vorrq_u8(four, field(line(lines, 4, s.half, s.four), 4 - s.g, 16));
    if (planes == PLANES_6)
        return vorrq_u8(four, field(line(lines, 4 + s.g / 4, s.half, s.four), 4 - 2 * (s.g % 4), 48));
    return four;
}

// The same as signed integers.
INLINE int8x16_t group(const unsigned char *lines, const enum quant Q, const struct spot s)
{
    static const int8_t iq4[16] = IQ4_NL_LEVELS, mxfp4[16] = MXFP4_LEVELS;
    const enum panel_planes planes = panel_shapes[Q].planes;
    const uint32_t offset_bits = panel_shapes[Q].offset_bits;
    uint8x16_t q = stored(lines, planes, s);

    if (planes == PLANES_IQ4 || planes == PLANES_MXFP4)
        return vqtbl1q_s8(vld1q_s8(planes == PLANES_IQ4 ? iq4 : mxfp4), q);
    if (offset_bits == 0)
        return vreinterpretq_s8_u8(q);
    return vreinterpretq_s8_u8(vsubq_u8(q, vdupq_n_u8((uint8_t)(1u << offset_bits))));
}

INLINE float32x4_t halves_to_float(const unsigned char *p, int half, int four)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)(p + 32 * half + 8 * four))));
}

struct scale {
    float32x4_t d, m; // value = d * q + m
};
struct where { // of a scale: which sub-block, for formats with a scale for each 16 columns which of them, and which rows
    uint32_t sub;
    int by16, half, four;
};

// Byte number `index` of the lanes of four lines of scales, in the low bits.
INLINE uint32x4_t scale_byte(const unsigned char *lines, uint32_t index, const struct where at)
{
    uint32x4_t bits = vreinterpretq_u32_u8(line(lines, (int)(index / 4), at.half, at.four));
    return vshlq_u32(bits, vdupq_n_s32(-(int)(index % 4 * 8)));
}

INLINE struct scale scale_with_min(const unsigned char *header, uint32x4_t s, uint32x4_t m, const struct where at)
{
    float32x4_t dmin = halves_to_float(header + 64, at.half, at.four);
    return (struct scale){ vmulq_f32(halves_to_float(header, at.half, at.four), vcvtq_f32_u32(s)),
                           vnegq_f32(vmulq_f32(dmin, vcvtq_f32_u32(m))) };
}

INLINE struct scale scale_6bit(const unsigned char *header, const struct where at)
{
    const uint32x4_t low = vdupq_n_u32(15), high = vdupq_n_u32(48);
    uint32x4_t bits = scale_byte(header + 128, at.sub, at);
    uint32x4_t top = vreinterpretq_u32_u8(line(header + 128, 2, at.half, at.four));
    top = vshlq_u32(top, vdupq_n_s32(-(int)(at.sub % 4 * 8 + at.sub / 4 * 2)));
    uint32x4_t s = vorrq_u32(vandq_u32(bits, low), vandq_u32(vshlq_n_u32(top, 4), high));
    uint32x4_t m = vorrq_u32(vandq_u32(vshrq_n_u32(bits, 4), low), vandq_u32(top, high));
    return scale_with_min(header, s, m, at);
}

INLINE float32x4_t scale_signed(const unsigned char *header, uint32_t index, const struct where at)
{
    int32x4_t bits = vreinterpretq_s32_u32(scale_byte(header + 64, index, at));
    bits = vshrq_n_s32(vshlq_n_s32(bits, 24), 24);
    return vmulq_f32(halves_to_float(header, at.half, at.four), vcvtq_f32_s32(bits));
}

INLINE struct scale scale_of(const unsigned char *header, const enum panel_scales scales, const struct where at)
{
    const uint32x4_t low = vdupq_n_u32(15);
    float32x4_t zero = vdupq_n_f32(0);

    if (scales == SCALES_6BIT)
        return scale_6bit(header, at);
    if (scales == SCALES_BYTE32)
        return (struct scale){ scale_signed(header, at.sub, at), zero };
    if (scales == SCALES_BYTE16)
        return (struct scale){ scale_signed(header, 2 * at.sub + (uint32_t)at.by16, at), zero };
    if (scales == SCALES_NIBBLES16) {
        uint32x4_t bits = scale_byte(header + 128, 2 * at.sub + (uint32_t)at.by16, at);
        return scale_with_min(header, vandq_u32(bits, low), vandq_u32(vshrq_n_u32(bits, 4), low), at);
    }
    if (scales == SCALES_BF16) {
        uint16x4_t d = vld1_u16((const uint16_t *)(const void *)(header + 32 * at.half + 8 * at.four));
        return (struct scale){ vreinterpretq_f32_u32(vshll_n_u16(d, 16)), zero };
    }
    return (struct scale){ halves_to_float(header, at.half, at.four),
                           scales == SCALES_DM ? halves_to_float(header + 64, at.half, at.four) : zero };
}

#define X_BLOCK(t, c, b) ((const struct product_block *)(const void *)((t)->x + (c) * (t)->x_stride) + (b))
#define X_SUPER(t, c, b) ((const struct product_super *)(const void *)((t)->x + (c) * (t)->x_stride) + (b))

#define SDOT(lane)                                                                                           \
    __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(acc) : "w"(w), "w"(x)); \
    return acc

enum dot { DOT_PLAIN, DOT_SDOT, DOT_SMMLA };

// acc[i] += the 4 columns of row i times 4 bytes of x, numbers 4 * lane on.
INLINE int32x4_t dot(int32x4_t acc, int8x16_t w, int8x16_t x, const int lane, const bool sdot)
{
    if (sdot) {
        switch (lane) {
        case 0:
            SDOT(0);
        case 1:
            SDOT(1);
        case 2:
            SDOT(2);
        default:
            SDOT(3);
        }
    }
    int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(vgetq_lane_s32(vreinterpretq_s32_s8(x), 0)));
    if (lane == 1)
        four = vreinterpretq_s8_s32(vdupq_n_s32(vgetq_lane_s32(vreinterpretq_s32_s8(x), 1)));
    if (lane == 2)
        four = vreinterpretq_s8_s32(vdupq_n_s32(vgetq_lane_s32(vreinterpretq_s32_s8(x), 2)));
    if (lane == 3)
        four = vreinterpretq_s8_s32(vdupq_n_s32(vgetq_lane_s32(vreinterpretq_s32_s8(x), 3)));
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four)), high = vmull_high_s8(w, four);
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

// 16 rows of groups [first, last) of a sub-block, and where the first row of X has its bytes for all of it.
struct range {
    const unsigned char *lines;
    const int8_t *q;
    int first, last, half;
};
typedef int32x4_t acc_t[FOURS][ROWS_INT];

INLINE void dot_groups(acc_t acc, const struct product_tile *t, const struct range r, const enum quant Q, const int C,
                       const bool sdot)
{
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < FOURS; i++) acc[i][c] = vdupq_n_s32(0);
    UNROLL for (int g = r.first; g < r.last; g++) UNROLL for (int i = 0; i < FOURS; i++)
    {
        int8x16_t w = group(r.lines, Q, (struct spot){ g, r.half, i });
        UNROLL for (int c = 0; c < C; c++) acc[i][c] =
            dot(acc[i][c], w, vld1q_s8(r.q + (size_t)c * t->x_stride + g / 4 * 16), g % 4, sdot);
    }
}

// The first or last two rows of four, 8 columns each.
INLINE int8x16_t two_rows(int8x16_t low, int8x16_t high, const bool last)
{
    int32x4_t a = vreinterpretq_s32_s8(low), b = vreinterpretq_s32_s8(high);
    return vreinterpretq_s8_s32(last ? vzip2q_s32(a, b) : vzip1q_s32(a, b));
}

// As dot_groups. Two rows of W by two of X make a register, [row of W][row of X]; an odd last row of X is taken twice.
INLINE void dot_matrices(acc_t acc, const struct product_tile *t, const struct range r, const enum quant Q, const int C)
{
    int32x4_t sum[FOURS][2][(ROWS_INT + 1) / 2];

    UNROLL for (int i = 0; i < FOURS * 2; i++) UNROLL for (int c = 0; c < C; c += 2) sum[i / 2][i % 2][c / 2] = vdupq_n_s32(0);
    UNROLL for (int g = r.first; g < r.last; g += 2) UNROLL for (int i = 0; i < FOURS; i++)
    {
        int8x16_t low = group(r.lines, Q, (struct spot){ g, r.half, i });
        int8x16_t high = group(r.lines, Q, (struct spot){ g + 1, r.half, i });
        UNROLL for (int c = 0; c < C; c += 2) UNROLL for (int j = 0; j < 2; j++)
        {
            const int8_t *q = r.q + (size_t)c * t->x_stride + 4 * g;
            int8x8_t x = vld1_s8(q);
            int8x16_t xx = vcombine_s8(x, c + 1 < C ? vld1_s8(q + t->x_stride) : x);
            __asm__(".arch armv8.2-a+i8mm\n\tsmmla %0.4s, %1.16b, %2.16b"
                    : "+w"(sum[i][j][c / 2])
                    : "w"(two_rows(low, high, j)), "w"(xx));
        }
    }
    UNROLL for (int i = 0; i < FOURS; i++) UNROLL for (int c = 0; c < C; c++) acc[i][c] =
        c % 2 ? vuzp2q_s32(sum[i][0][c / 2], sum[i][1][c / 2]) : vuzp1q_s32(sum[i][0][c / 2], sum[i][1][c / 2]);
}

INLINE void dot_range(acc_t acc, const struct product_tile *t, const struct range r, const enum quant Q, const int C,
                      const enum dot kind)
{
    if (kind == DOT_SMMLA && C > 1)
        dot_matrices(acc, t, r, Q, C);
    else
        dot_groups(acc, t, r, Q, C, kind != DOT_PLAIN);
}

INLINE void add_block(const struct product_tile *t, const unsigned char *header, uint32_t block, const enum quant Q, const int C,
                      const enum dot kind)
{
    const struct panel_shape s = panel_shapes[Q];

    for (int half = 0; half < HALVES; half++) {
        struct range r = { header + s.header_bytes, X_BLOCK(t, 0, block)->q, 0, 8, half };
        acc_t acc;
        dot_range(acc, t, r, Q, C, kind);
        UNROLL for (int i = 0; i < FOURS; i++)
        {
            struct scale w = scale_of(header, s.scales, (struct where){ 0, 0, half, i });
            UNROLL for (int c = 0; c < C; c++)
            {
                const struct product_block *x = X_BLOCK(t, c, block);
                float *y = t->y + c * PANEL_ROWS + half * 16 + i * 4;
                float32x4_t sum = vfmaq_f32(vld1q_f32(y), vcvtq_f32_s32(acc[i][c]), vmulq_n_f32(w.d, x->scale));
                vst1q_f32(y, panel_has_mins(s.scales) ? vfmaq_n_f32(sum, w.m, x->sum) : sum);
            }
        }
    }
}

INLINE void tile_blocks(const struct product_tile *t, const enum quant Q, const int C, const enum dot kind)
{
    const unsigned char *w = t->w;

    for (uint32_t block = 0; block < t->n_cols / PANEL_SUB; block++, w += panel_block_bytes(Q))
        add_block(t, w, block, Q, C, kind);
}

// Blocks of 256 columns, as in tile_avx512.c; their sums are in memory too.
struct super {
    const struct product_tile *t;
    const unsigned char *header;
    uint32_t block;
    float (*sums)[PANEL_ROWS]; // [rows]
};

INLINE void add_unit(const struct super at, uint32_t sub, const int by16, const enum quant Q, const int C, const enum dot kind)
{
    const struct panel_shape s = panel_shapes[Q];
    const int last = panel_by_16(s.scales) ? by16 * 4 + 4 : 8;

    for (int half = 0; half < HALVES; half++) {
        struct range r = { at.header + s.header_bytes + sub * s.sub_bytes, X_SUPER(at.t, 0, at.block)->q + sub * PANEL_SUB,
                           by16 * 4, last, half };
        acc_t acc;
        dot_range(acc, at.t, r, Q, C, kind);
        UNROLL for (int i = 0; i < FOURS; i++)
        {
            float32x4_t d = scale_of(at.header, s.scales, (struct where){ sub, by16, half, i }).d;
            UNROLL for (int c = 0; c < C; c++)
            {
                float *sum = at.sums[c] + half * 16 + i * 4;
                int32x4_t bits = vshlq_s32(acc[i][c], vdupq_n_s32(X_SUPER(at.t, c, at.block)->left[sub]));
                vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(bits), d));
            }
        }
    }
}

// Minimums of units 4i and 4i + 2 (pair 2i), or 4i + 1 and 4i + 3 (pair 2i + 1), as 16-bit integers.
INLINE int16x8_t min_pair(const unsigned char *header, const enum panel_scales scales, const int pair, const struct where at)
{
    const unsigned char *lines = header + 128;
    const int odd = pair % 2 * 8;
    uint16x8_t low = vreinterpretq_u16_u8(line(lines, pair / 2, at.half, at.four));

    low = vandq_u16(vshlq_u16(low, vdupq_n_s16((int16_t) - (odd + 4))), vdupq_n_u16(15));
    if (scales == SCALES_NIBBLES16)
        return vreinterpretq_s16_u16(low);
    uint16x8_t top = vreinterpretq_u16_u8(line(lines, 2, at.half, at.four));
    top = vshlq_u16(top, vdupq_n_s16((int16_t) - (odd + pair / 2 * 2)));
    return vreinterpretq_s16_u16(vorrq_u16(low, vandq_u16(top, vdupq_n_u16(48))));
}

INLINE void subtract_mins(const struct super at, const enum panel_scales scales, const int C, const struct where rows)
{
    const int n_pairs = panel_by_16(scales) ? 8 : 4;
    float32x4_t d = vmulq_n_f32(halves_to_float(at.header + 64, rows.half, rows.four), 1 << SUPER_SUM_SHIFT);
    int32x4_t acc[ROWS_INT];

    UNROLL for (int c = 0; c < C; c++) acc[c] = vdupq_n_s32(0);
    UNROLL for (int p = 0; p < n_pairs; p++)
    {
        int16x8_t m = min_pair(at.header, scales, p, rows);
        UNROLL for (int c = 0; c < C; c++)
        {
            const struct product_super *x = X_SUPER(at.t, c, at.block);
            int32_t pair;
            memcpy(&pair, n_pairs == 8 ? x->sums_16 + 2 * p : x->sums_32 + 2 * p, 4);
            int16x8_t v = vreinterpretq_s16_s32(vdupq_n_s32(pair));
            acc[c] = vaddq_s32(acc[c], vpaddq_s32(vmull_s16(vget_low_s16(m), vget_low_s16(v)), vmull_high_s16(m, v)));
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        float *sum = at.sums[c] + rows.half * 16 + rows.four * 4;
        vst1q_f32(sum, vfmsq_f32(vld1q_f32(sum), d, vcvtq_f32_s32(acc[c])));
    }
}

INLINE void tile_supers(const struct product_tile *t, const enum quant Q, const int C, const enum dot kind)
{
    const struct panel_shape s = panel_shapes[Q];
    float sums[ROWS_INT][PANEL_ROWS];
    struct super at = { t, t->w, 0, sums };

    for (; at.block < t->n_cols / PANEL_SUPER; at.block++, at.header += panel_block_bytes(Q)) {
        memset(sums, 0, sizeof sums);
        for (uint32_t sub = 0; sub < SUPER_SUBS; sub++) {
            add_unit(at, sub, 0, Q, C, kind);
            if (panel_by_16(s.scales))
                add_unit(at, sub, 1, Q, C, kind);
        }
        for (int four = 0; four < HALVES * FOURS; four++) {
            if (panel_has_mins(s.scales))
                subtract_mins(at, s.scales, C, (struct where){ .half = four / FOURS, .four = four % FOURS });
            UNROLL for (int c = 0; c < C; c++)
            {
                float *y = t->y + c * PANEL_ROWS + four * 4;
                vst1q_f32(y, vfmaq_n_f32(vld1q_f32(y), vld1q_f32(sums[c] + four * 4), X_SUPER(t, c, at.block)->scale));
            }
        }
    }
}

INLINE void tile_int(const struct product_tile *t, const enum quant Q, const int C, const enum dot kind)
{
    memset(t->y, 0, (size_t)C * PANEL_ROWS * sizeof(float));
    if (panel_shapes[Q].columns == PANEL_SUPER)
        tile_supers(t, Q, C, kind);
    else
        tile_blocks(t, Q, C, kind);
}

// Exact products: 32 columns of the panel as fp32 in L1, then multiplications and additions by column, 16 rows at a time.
typedef float columns_t[PANEL_SUB][PANEL_ROWS];

INLINE void decode_group(columns_t out, const unsigned char *header, uint32_t sub, const enum quant Q, const struct spot s)
{
    const struct panel_shape shape = panel_shapes[Q];
    const unsigned char *lines = header + shape.header_bytes + sub * shape.sub_bytes;
    struct scale w = scale_of(header, shape.scales, (struct where){ sub, s.g / 4, s.half, s.four });
    int32x4_t q = vreinterpretq_s32_s8(group(lines, Q, s));

    for (int i = 0; i < 4; i++) {
        int32x4_t one = vshrq_n_s32(vshlq_s32(q, vdupq_n_s32(24 - 8 * i)), 24);
        // d * q has few bits and is exact: fused or not, this is the value that the format defines.
        vst1q_f32(&out[4 * s.g + i][16 * s.half + 4 * s.four], vfmaq_f32(w.m, w.d, vcvtq_f32_s32(one)));
    }
}

INLINE void decode_sub(columns_t out, const unsigned char *header, uint32_t sub, const enum quant Q)
{
    UNROLL for (int g = 0; g < 8; g++) for (int four = 0; four < HALVES * FOURS; four++)
        decode_group(out, header, sub, Q, (struct spot){ g, four / FOURS, four % FOURS });
}

INLINE float32x4_t column_numbers(const unsigned char *w, uint32_t k, int four, const enum quant Q)
{
    if (Q == QUANT_F32)
        return vld1q_f32((const float *)(const void *)(w + k * 128) + four * 4);
    if (Q == QUANT_F16)
        return halves_to_float(w + k * 64, four / FOURS, four % FOURS);
    uint32x4_t pair = vld1q_u32((const uint32_t *)(const void *)(w + k / 2 * PANEL_LINE) + four * 4);
    return vreinterpretq_f32_u32(k % 2 ? vandq_u32(pair, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(pair, 16));
}

INLINE void decode_float(columns_t out, const unsigned char *w, uint32_t n, const enum quant Q)
{
    for (uint32_t k = 0; k < n; k++)
        for (int four = 0; four < HALVES * FOURS; four++)
            vst1q_f32(&out[k][4 * four], column_numbers(w, k, four, Q));
}

INLINE void multiply_columns(const struct product_tile *t, columns_t w, uint32_t first, uint32_t n, const int C)
{
    for (int half = 0; half < HALVES; half++) {
        float32x4_t sum[FOURS][ROWS_FLOAT];
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < FOURS; i++) sum[i][c] =
            vld1q_f32(t->y + c * PANEL_ROWS + half * 16 + i * 4);
        for (uint32_t k = 0; k < n; k++)
            UNROLL for (int i = 0; i < FOURS; i++)
            {
                float32x4_t row = vld1q_f32(&w[k][half * 16 + i * 4]);
                UNROLL for (int c = 0; c < C; c++)
                {
                    const float *x = (const float *)(const void *)(t->x + c * t->x_stride);
                    sum[i][c] = vfmaq_n_f32(sum[i][c], row, x[first + k]);
                }
            }
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < FOURS; i++)
            vst1q_f32(t->y + c * PANEL_ROWS + half * 16 + i * 4, sum[i][c]);
    }
}

INLINE void tile_exact(const struct product_tile *t, const enum quant Q, const int C)
{
    const struct panel_shape s = panel_shapes[Q];
    const uint32_t n_subs = s.columns > PANEL_SUB ? s.columns / PANEL_SUB : 1,
                   block_bytes = s.header_bytes + n_subs * s.sub_bytes;
    _Alignas(64) columns_t w;

    memset(t->y, 0, (size_t)C * PANEL_ROWS * sizeof(float));
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

#define TILE_SDOT(kind, Q, C)                                  \
    static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                          \
        tile_int(t, QUANT_##Q, C, DOT_SDOT);                   \
    }
#define TILE_SMMLA(kind, Q, C)                                 \
    static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                          \
        tile_int(t, QUANT_##Q, C, DOT_SMMLA);                  \
    }
#define TILE_INT(kind, Q, C)                                   \
    static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                          \
        tile_int(t, QUANT_##Q, C, DOT_PLAIN);                  \
    }
#define TILE_EXACT(kind, Q, C)                                 \
    static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                          \
        tile_exact(t, QUANT_##Q, C);                           \
    }
#define UP_TO_2(M, kind, Q) M(kind, Q, 1) M(kind, Q, 2)
#define UP_TO_4(M, kind, Q) UP_TO_2(M, kind, Q) M(kind, Q, 3) M(kind, Q, 4)
#define NAME(kind, Q, C)    , kind##_##Q##_##C
#define TILES(kind, M, Q)  \
    UP_TO_ROWS(M, kind, Q) \
    static product_tile_fn *const kind##_##Q[] = { NULL UP_TO_ROWS(NAME, kind, Q) };
#define INT_TILES(Q)   TILES(int, TILE_INT, Q) TILES(sdot, TILE_SDOT, Q) TILES(smmla, TILE_SMMLA, Q)
#define EXACT_TILES(Q) TILES(exact, TILE_EXACT, Q)
#define INTEGER_FORMATS(M) \
    M(Q4_0) M(Q4_1) M(Q5_0) M(Q5_1) M(Q8_0) M(Q2_K) M(Q3_K) M(Q4_K) M(Q5_K) M(Q6_K) M(IQ4_NL) M(IQ4_XS) M(MXFP4)
#define ALL_FORMATS(M) M(F32) M(F16) M(BF16) INTEGER_FORMATS(M)
INTEGER_FORMATS(INT_TILES)
ALL_FORMATS(EXACT_TILES)

// Largest magnitude by its bits, so that a NaN wins and the whole block becomes NaN.
static float block_top(const float *x)
{
    uint32x4_t top = vdupq_n_u32(0);

    for (int i = 0; i < PANEL_SUB; i += 4)
        top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
    uint32_t bits = vmaxvq_u32(top);
    float largest;
    memcpy(&largest, &bits, 4);
    return largest;
}

static void quantise_sub(const float *x, float factor, int8_t *out)
{
    for (int i = 0; i < PANEL_SUB; i += 8) {
        int32x4_t q0 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), factor));
        int32x4_t q1 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), factor));
        vst1_s8(out + i, vqmovn_s16(vcombine_s16(vqmovn_s32(q0), vqmovn_s32(q1))));
    }
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

static void store(const struct product_store *s)
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
#define SDOT_ENTRY(Q)  [QUANT_##Q] = sdot_##Q,
#define SMMLA_ENTRY(Q) [QUANT_##Q] = smmla_##Q,
#define EXACT_ENTRY(Q) [QUANT_##Q] = exact_##Q,
#define COMMON                                                                                                       \
    .exact = { ALL_FORMATS(EXACT_ENTRY) }, .integer_rows = ROWS_INT, .exact_rows = ROWS_FLOAT, .quantise = quantise, \
    .quantise_super = quantise_super, .store = store, .rows = &row_kernels_neon, .pack = pack_neon

const struct product_kernels product_neon = { .integer = { INTEGER_FORMATS(INT_ENTRY) }, COMMON };
const struct product_kernels product_sdot = { .integer = { INTEGER_FORMATS(SDOT_ENTRY) }, COMMON };
const struct product_kernels product_smmla = { .integer = { INTEGER_FORMATS(SMMLA_ENTRY) }, COMMON };
#endif
