// weight_layout.h - the layout of matrices in an NVIDIA GPU's memory. Shared by C and CUDA.
//
// A quantised matrix is cut into up to four planes, each [n_rows][bytes of a row], so that a warp reads whole
// lines with 16-byte loads:
//   quants  of each 32 elements, by format one of
//             16 bytes of nibbles: byte j holds element j low and element j + 16 high; where a table gives
//             the values, word i of four bytes holds, from its low end, elements 4 i to 4 i + 3 and 4 i + 16
//             to 4 i + 19
//             8 bytes of the low two bits: bits 2 (i % 4) of byte 4 (i / 4) + b are element 4 i + b
//             32 bytes: int8
//   high    of each 32 elements: the bit above those (4 bytes: bit i of byte b is element 4 i + b), or the
//           top two bits of six (8 bytes, as the low two)
//   Q3_K    in units of 64 elements. Byte b of word i of quants: element 4 i + b in bits 5-7, 4 i + b + 16 in
//           bits 2-4, the low two bits of 4 i + b + 48. Byte b of word i / 2 of high, its lower four bits
//           where i is even: 4 i + b + 32 in bits 1-3, the top bit of 4 i + b + 48 in bit 0. So four lanes
//           with a word each find theirs at the same places
//   scales  of each 32: a half, two halves, or (MXFP4) a bf16; or of each 256: sixteen bytes, integer scales,
//           each followed by its minimum, or (IQ4_XS) eight bytes without minimums
//   deltas  of each 256: two halves, or (Q8_16) a float, which multiply the integers
// value = scale * q + offset; no value is changed. Plain numbers stay as in the file.
#pragma once
#include "base/lang.h"
#include "quant/formats.h"

#if defined(__CUDACC__)
#define SHARED_CONSTANT constexpr SHARED_INLINE // also an argument of templates
#else
#define SHARED_CONSTANT SHARED_INLINE
#endif

struct weight_planes {
    DEVICE_AT(const u8) quants;
    DEVICE_AT(const u8) high;
    DEVICE_AT(const u8) scales;
    DEVICE_AT(const u8) deltas;
    u32 n_rows, n_cols;
    u32 format;     // enum quant
    u32 row_scales; // Q8_0: all scales of a row are alike
};
STATIC_ASSERT(sizeof(struct weight_planes) == 48);

SHARED_CONSTANT u32 layout_has_super_blocks(u32 format) // of 256
{
    return (format >= QUANT_Q2_K && format <= QUANT_Q6_K) || format == QUANT_IQ4_XS || format == QUANT_Q8_16;
}
SHARED_CONSTANT u32 layout_has_table(u32 format) // quants are indices into a table
{
    return format == QUANT_IQ4_NL || format == QUANT_IQ4_XS || format == QUANT_MXFP4;
}
SHARED_CONSTANT u32 layout_has_bytes(u32 format) // quants are int8
{
    return format == QUANT_Q8_0 || format == QUANT_Q8_16;
}
SHARED_CONSTANT u64 layout_quants_bytes(u32 format, u32 n_cols) // of a row
{
    return format == QUANT_F32                            ? (u64)n_cols * 4
           : format == QUANT_F16 || format == QUANT_BF16  ? (u64)n_cols * 2
           : layout_has_bytes(format)                     ? n_cols
           : format == QUANT_Q2_K || format == QUANT_Q3_K ? n_cols / 4
                                                          : n_cols / 2;
}
SHARED_CONSTANT u32 layout_has_high_bit(u32 format) // one more bit per nibble
{
    return format == QUANT_Q5_0 || format == QUANT_Q5_1 || format == QUANT_Q5_K;
}
SHARED_CONSTANT u64 layout_high_bytes(u32 format, u32 n_cols)
{
    return format == QUANT_Q6_K                                  ? n_cols / 4
           : layout_has_high_bit(format) || format == QUANT_Q3_K ? n_cols / 8
                                                                 : 0;
}
SHARED_CONSTANT u32 layout_unit(u32 format) // blocks of 32 that lie together
{
    return format == QUANT_Q3_K ? 2 : 1;
}
SHARED_CONSTANT u32 layout_has_two_halves(u32 format) // of each 32: scale and offset
{
    return format == QUANT_Q4_1 || format == QUANT_Q5_1;
}
SHARED_CONSTANT u32 layout_zero(u32 format) // the integer that stands for 0
{
    return format == QUANT_Q4_0   ? 8
           : format == QUANT_Q5_0 ? 16
           : format == QUANT_Q3_K ? 4
           : format == QUANT_Q6_K ? 32
                                  : 0;
}
SHARED_CONSTANT u64 layout_scales_bytes(u32 format, u32 n_cols)
{
    return format <= QUANT_BF16              ? 0
           : format == QUANT_IQ4_XS          ? n_cols / 32
           : layout_has_super_blocks(format) ? n_cols / 256 * 16
                                             : n_cols / 32 * (layout_has_two_halves(format) ? 4 : 2);
}
SHARED_CONSTANT u64 layout_deltas_bytes(u32 format, u32 n_cols)
{
    return layout_has_super_blocks(format) ? n_cols / 256 * 4 : 0;
}

// 128 columns of a row, in all planes; a delta is of the 256 columns around.
SHARED_CONSTANT u32 layout_part_scales_bytes(u32 format)
{
    return layout_has_super_blocks(format) ? (u32)layout_scales_bytes(format, 256) / 2
                                           : (u32)layout_scales_bytes(format, 128);
}
SHARED_CONSTANT u32 layout_part_bytes(u32 format)
{
    return (u32)layout_quants_bytes(format, 128) + (u32)layout_high_bytes(format, 128) +
           layout_part_scales_bytes(format) + (layout_has_super_blocks(format) ? 4 : 0);
}

#ifdef HOST_C
#include "device/cuda/cuda.h"

// Sets the planes' addresses for a matrix at this address. Returns the bytes of all.
u64 weight_layout_place(struct weight_planes *p, u64 at, u32 format, u32 n_rows, u32 n_cols);
void weight_layout_pack(const struct weight_source *source, u64 from, u64 to, struct cuda_pack *pack);
// The operand's matrix for a kernel; zeroed where absent.
struct weight_planes weight_layout_of(const struct cuda_plan *p, u32 operand);
#endif

struct pack_params {
    DEVICE_AT(const u8) from;
    struct weight_planes to;
    u64 n_blocks;
};
