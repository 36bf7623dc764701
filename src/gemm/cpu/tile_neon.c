// tile_neon.c - product kernels for AArch64: NEON, and SDOT or SMMLA where present: the part that tile_vec.h
// leaves open.
//
// A line of a panel is eight registers of 4 rows by 4 columns, and SDOT multiplies one with 4 bytes of an
// activation row: 16 accumulators, 8 registers of X. Integers are made signed first. SMMLA multiplies 2 rows
// of 8 columns with 2 rows of X: two groups of columns are zipped for it. Both instructions are written as
// assembly, so that the rest of the program may be built for any ARMv8. Tested under qemu; no speed has been
// measured.
#include "gemm/cpu/product.h"
#if defined(CPU_ARM)
#include "device/cpu/vec_neon.h"

enum { SIGNED_WEIGHTS = true };
#include "gemm/cpu/tile_vec.h"

VEC_INLINE vi look_up(table levels, vi index)
{
    return (vi)vqtbl1q_u8((uint8x16_t)levels, (uint8x16_t)index);
}

VEC_INLINE vi shift_left(vi v, const int32_t *bits)
{
    return vshlq_s32(v, vdupq_n_s32(*bits));
}

// The sum of products of each two lanes of 16 bits.
VEC_INLINE vi pairs(int16x8_t w, int16x8_t x)
{
    return vpaddq_s32(vmull_s16(vget_low_s16(w), vget_low_s16(x)), vmull_high_s16(w, x));
}

VEC_INLINE vi add_pairs(vi acc, vi w, const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return acc + pairs((int16x8_t)w, (int16x8_t)vdupq_n_s32(pair));
}

#define SDOT(lane)                                                                                           \
    __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(acc) : "w"(w), "w"(x)); \
    return acc

// acc[i] += the 4 columns of row i times 4 bytes of x, from number 4 * lane on.
VEC_INLINE vi dot(vi acc, int8x16_t w, int8x16_t x, const int lane, const enum dot kind)
{
    if (kind != DOT_PLAIN) {
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
    int8x16_t four = (int8x16_t)vdupq_n_s32(((vi)x)[lane]);
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four)), high = vmull_high_s8(w, four);
    return acc + vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}

VEC_INLINE void add_rows(acc_t acc, const struct tile_columns r, const enum quant Q, const int C,
                         const enum dot kind)
{
    UNROLL for (int g = r.first; g < r.last; g++) UNROLL for (int i = 0; i < PASS; i++)
    {
        int8x16_t w = (int8x16_t)group(r.lines, Q, g, r.v + i);
        UNROLL for (int c = 0; c < C; c++) acc[i][c] =
            dot(acc[i][c], w, vld1q_s8(r.x + (size_t)c * r.x_stride + g / 4 * 16), g % 4, kind);
    }
}

// The first or last two rows of four, 8 columns each.
VEC_INLINE int8x16_t two_rows(vi low, vi high, const bool last)
{
    return (int8x16_t)(last ? vzip2q_s32(low, high) : vzip1q_s32(low, high));
}

// As add_rows. Two rows of W and two of X make a register, [row of W][row of X]. An odd last row of X is used
// twice.
VEC_INLINE void add_matrices(acc_t acc, const struct tile_columns r, const enum quant Q, const int C)
{
    int32x4_t sum[PASS][2][(TILE_ROWS + 1) / 2];

    UNROLL for (int i = 0; i < PASS * 2; i++) UNROLL for (int c = 0; c < C; c += 2) sum[i / 2][i % 2][c / 2] =
        vdupq_n_s32(0);
    UNROLL for (int g = r.first; g < r.last; g += 2) UNROLL for (int i = 0; i < PASS; i++)
    {
        vi low = group(r.lines, Q, g, r.v + i), high = group(r.lines, Q, g + 1, r.v + i);
        UNROLL for (int c = 0; c < C; c += 2) UNROLL for (int j = 0; j < 2; j++)
        {
            const int8_t *q = r.x + (size_t)c * r.x_stride + 4 * g;
            int8x8_t x = vld1_s8(q);
            int8x16_t xx = vcombine_s8(x, c + 1 < C ? vld1_s8(q + r.x_stride) : x);
            __asm__(".arch armv8.2-a+i8mm\n\tsmmla %0.4s, %1.16b, %2.16b"
                    : "+w"(sum[i][j][c / 2])
                    : "w"(two_rows(low, high, j)), "w"(xx));
        }
    }
    UNROLL for (int i = 0; i < PASS; i++) UNROLL for (int c = 0; c < C; c++) acc[i][c] +=
        c % 2 ? vuzp2q_s32(sum[i][0][c / 2], sum[i][1][c / 2])
              : vuzp1q_s32(sum[i][0][c / 2], sum[i][1][c / 2]);
}

VEC_INLINE void add_groups(acc_t acc, const struct tile_columns r, const enum quant Q, const int C,
                           const enum dot kind)
{
    if (kind == DOT_SMMLA && C > 1)
        add_matrices(acc, r, Q, C);
    else
        add_rows(acc, r, Q, C, kind);
}

SIMD static void round_block(const float *x, float factor, int8_t *out)
{
    for (int i = 0; i < PANEL_SUB; i += 8) {
        int32x4_t q0 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), factor));
        int32x4_t q1 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), factor));
        vst1_s8(out + i, vqmovn_s16(vcombine_s16(vqmovn_s32(q0), vqmovn_s32(q1))));
    }
}

SIMD static void quantise_super(const float *x, uint32_t n, struct product_super *out)
{
    int8_supers(&int8_kernels, x, n, out);
}

QUANT_BLOCK_FORMATS(INT_TILES, PLAIN)
QUANT_BLOCK_FORMATS(INT_TILES, SDOT)
QUANT_BLOCK_FORMATS(INT_TILES, SMMLA)
QUANT_FORMATS(EXACT_TILES, EXACT)

const struct product_kernels product_neon = PRODUCT_KERNELS(PLAIN, ), product_sdot = PRODUCT_KERNELS(SDOT, ),
                             product_smmla = PRODUCT_KERNELS(SMMLA, );
#endif
