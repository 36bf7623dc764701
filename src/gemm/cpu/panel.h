// panel.h - the CPU's weight layout: panels of 32 rows, interleaved so that one register holds 4 columns of
// many rows.
//
// A line is 128 bytes: 4 bytes of each of 32 rows. Every integer format becomes sub-blocks of 32 columns, as
// unsigned integers in planes of bits, with a header of scales for each block of the file:
//   four bits   4 lines: line p holds columns 8p..8p+3 in its low halves and 8p+4..8p+7 in its high halves
//   a fifth     1 line: bit g of byte i belongs to column 4g + i
//   two bits    2 lines: bits 2g, 2g+1 of byte i of line h belong to column 16h + 4g + i
//   a third     1 line, as the fifth
//   eight bits  8 lines: line g holds columns 4g..4g+3
// Panels of F32 and F16 hold all rows of one column after the other, BF16 pairs of columns. A panel has the
// file's bytes in another order (IQ4_XS, Q3_K and MXFP4 get slightly longer scales) and is read as one
// stream. Rows beyond the matrix repeat its last row.
#pragma once
#include "quant/iq4_nl.h"
#include "quant/mxfp4.h"
#include "quant/quant.h"

enum { PANEL_ROWS = 32, PANEL_LINE = 128, PANEL_SUB = 32, PANEL_SUPER = 256 };

enum panel_planes { // the bits of a sub-block
    PLANES_4,
    PLANES_5,
    PLANES_6,
    PLANES_8,
    PLANES_2,
    PLANES_3,
    PLANES_IQ4,   // as PLANES_4: an index into IQ4_NL's levels
    PLANES_MXFP4, // as PLANES_4: an index into MXFP4's levels
    PLANES_FLOAT, // not integers
};
#define PANEL_IQ4_LEVELS   IQ4_NL_LEVELS
#define PANEL_MXFP4_LEVELS MXFP4_LEVELS

enum panel_scales { // the header of a block, for 32 rows; d and m are fp16 [32]
    SCALES_NONE,    // plain numbers
    SCALES_D,       // d
    SCALES_DM,      // d, m: value = d * q + m
    SCALES_BF16,    // d in bf16, which holds any power of two
    SCALES_6BIT,   // d, dmin, then 3 lines: byte i of line 0: low 4 bits of scale i and min i; line 1: of i +
                   // 4; line 2: 2 upper bits of scale i, scale i + 4, min i, min i + 4
    SCALES_BYTE32, // d, then 2 lines of int8, one for each 32 columns: byte i of line l is sub-block 4l + i
    SCALES_BYTE16, // d, then 4 lines of int8, one for each 16 columns
    SCALES_FLOAT16,   // d in fp32, then as SCALES_BYTE16
    SCALES_NIBBLES16, // d, dmin, then 4 lines: scale and min << 4 for each 16 columns
    // In panels that panel_wide lays out: a line of fp32 scales for each 32 columns, or 16. With DM, for each
    // two of them also a line of minimums as pairs of int16 and a line of fp32 scales of the minimums. Pairs
    // are 0 and 2, 1 and 3, 4 and 6, ...
    SCALES_WIDE,
    SCALES_WIDE_DM,
    SCALES_WIDE16,
    SCALES_WIDE16_DM,
};

// The layout of a block in the file: byte offsets, and whole words of the integers' lower bits (q) and upper
// bits (high).
struct panel_fields {
    uint32_t d, m, scales, q, high, n_q, n_high;
};

struct panel_shape {
    enum panel_planes planes;
    enum panel_scales scales;
    uint32_t offset_bits; // integers are stored plus 1 << offset_bits; 0: as they are
    uint32_t columns;     // per block
    uint32_t header_bytes, sub_bytes;
    struct panel_fields fields;
};

// clang-format off
static const struct panel_shape panel_shapes[N_WEIGHT_QUANTS] = {
    [QUANT_F32]    = { PLANES_FLOAT, SCALES_NONE,      0, 1,   0,   128, { 0 } },
    [QUANT_F16]    = { PLANES_FLOAT, SCALES_NONE,      0, 1,   0,   64, { 0 } },
    [QUANT_BF16]   = { PLANES_FLOAT, SCALES_NONE,      0, 2,   0,   128, { 0 } },
    [QUANT_Q4_0]   = { PLANES_4,     SCALES_D,         3, 32,  64,  512, { .q = 2, .n_q = 4 } },
    [QUANT_Q4_1]   = { PLANES_4,     SCALES_DM,        0, 32,  128, 512, { .m = 2, .q = 4, .n_q = 4 } },
    [QUANT_Q5_0]   = { PLANES_5,     SCALES_D,         4, 32,  64,  640, { .high = 2, .q = 6, .n_q = 4 } },
    [QUANT_Q5_1]   = { PLANES_5,     SCALES_DM,        0, 32,  128, 640,
                       { .m = 2, .high = 4, .q = 8, .n_q = 4 } },
    [QUANT_Q8_0]   = { PLANES_8,     SCALES_D,         7, 32,  64,  1024, { .q = 2, .n_q = 8 } },
    [QUANT_Q2_K]   = { PLANES_2,     SCALES_NIBBLES16, 0, 256, 640, 256,
                       { .d = 80, .m = 82, .scales = 0, .q = 16, .n_q = 16 } },
    [QUANT_Q3_K]   = { PLANES_3,     SCALES_BYTE16,    2, 256, 576, 384,
                       { .d = 108, .scales = 96, .q = 32, .n_q = 16, .high = 0, .n_high = 8 } },
    [QUANT_Q4_K]   = { PLANES_4,     SCALES_6BIT,      0, 256, 512, 512,
                       { .m = 2, .scales = 4, .q = 16, .n_q = 32 } },
    [QUANT_Q5_K]   = { PLANES_5,     SCALES_6BIT,      0, 256, 512, 640,
                       { .m = 2, .scales = 4, .q = 48, .n_q = 32, .high = 16, .n_high = 8 } },
    [QUANT_Q6_K]   = { PLANES_6,     SCALES_BYTE16,    5, 256, 576, 768,
                       { .d = 208, .scales = 192, .q = 0, .n_q = 32, .high = 128, .n_high = 16 } },
    [QUANT_IQ4_NL] = { PLANES_IQ4,   SCALES_D,         7, 32,  64,  512, { .q = 2, .n_q = 4 } },
    [QUANT_IQ4_XS] = { PLANES_IQ4,   SCALES_BYTE32,    7, 256, 320, 512, { .scales = 0, .q = 8, .n_q = 32 } },
    [QUANT_MXFP4]  = { PLANES_MXFP4, SCALES_BF16,      4, 32,  64,  512, { .q = 1, .n_q = 4 } },
    [QUANT_Q8_16]  = { PLANES_8,     SCALES_FLOAT16,   7, 256, 640, 1024, { .scales = 4, .q = 20, .n_q = 64 } },
};
// clang-format on

// Whether there is a scale for each 16 columns; whether there are minimums.
static inline bool panel_by_16(enum panel_scales s)
{
    return (s >= SCALES_BYTE16 && s <= SCALES_NIBBLES16) || s == SCALES_WIDE16 || s == SCALES_WIDE16_DM;
}
static inline bool panel_has_mins(enum panel_scales s)
{
    return s == SCALES_DM || s == SCALES_6BIT || s == SCALES_NIBBLES16 || s == SCALES_WIDE_DM ||
           s == SCALES_WIDE16_DM;
}
// The expanded form of a panel with blocks of 256, kept in the cache while many rows use it: bytes, and
// scales multiplied out. A tile is so near the limit of multiplications that unpacking bits shows (measured:
// bench/results/2026-11-22-cpu-kernel-choices.md). With blocks of 32: signed bytes, for tiles of AMX.
static inline struct panel_shape panel_wide(enum quant q)
{
    const enum panel_scales scales = panel_shapes[q].scales;
    bool mins = panel_has_mins(scales), by16 = panel_by_16(scales);
    uint32_t n_scales = PANEL_SUPER / (by16 ? 16 : 32);

    if (panel_shapes[q].columns == PANEL_SUB)
        return (struct panel_shape){ PLANES_8, SCALES_WIDE, 0, PANEL_SUB, PANEL_LINE, 8 * PANEL_LINE, { 0 } };
    return (struct panel_shape){ .planes = PLANES_8,
                                 .scales = by16   ? mins ? SCALES_WIDE16_DM : SCALES_WIDE16
                                           : mins ? SCALES_WIDE_DM
                                                  : SCALES_WIDE,
                                 .offset_bits = mins ? 0 : 7,
                                 .columns = PANEL_SUPER,
                                 .header_bytes = PANEL_LINE * (n_scales + (mins ? n_scales / 2 + 1 : 0)),
                                 .sub_bytes = 8 * PANEL_LINE };
}

// Bytes from one block of a panel to the next; bytes of a panel of n_cols columns.
static inline uint32_t panel_block_bytes(enum quant q)
{
    const struct panel_shape *s = &panel_shapes[q];
    return s->header_bytes + (s->columns > PANEL_SUB ? s->columns / PANEL_SUB : 1) * s->sub_bytes;
}
static inline uint64_t panel_bytes(enum quant q, uint32_t n_cols)
{
    return (uint64_t)((n_cols + panel_shapes[q].columns - 1) / panel_shapes[q].columns) *
           panel_block_bytes(q);
}
static inline uint32_t panel_count(uint32_t n_rows)
{
    return (n_rows + PANEL_ROWS - 1) / PANEL_ROWS;
}

// A matrix in file order, whose rows [32 * panel, 32 * panel + 32) a pack function (product.h) lays out.
struct panel_source {
    const unsigned char *data; // file blocks
    uint32_t n_rows, n_cols;
    enum quant format;
};
