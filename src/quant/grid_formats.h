// grid_formats.h - the smallest formats of GGUF, 1.6 to 3.4 bits a weight: blocks of 256 whose weights are
// points of a grid (IQ1, IQ2, IQ3) or ternary digits (TQ).
//
// Eight or four neighbours are one index into a table (grids.h), times signs, times a scale for each 16 or
// 32. No kernel multiplies them as they are: they are spread into blocks of q8_16.h when they are loaded.
#pragma once
#include "quant/q8_16.h"

struct iq2_xxs { // of each 32: four bytes of indices, then four times 7 bits of signs and 4 of scale
    u16 d;
    u8 q[64];
};
struct iq2_xs { // of each 8: 9 bits of index, 7 of signs
    u16 d, q[32];
    u8 scales[8]; // of each 16
};
struct iq2_s { // indices have 10 bits
    u16 d;
    u8 low[32], signs[32], high[8], scales[8];
};
struct iq3_xxs { // of each 4 a byte of index; then of each 32 signs and a scale as in iq2_xxs
    u16 d;
    u8 q[64], signs[32];
};
struct iq3_s { // indices have 9 bits; scales are of 32
    u16 d;
    u8 low[64], high[8], signs[32], scales[4];
};
struct iq1_s { // of each 32: four times 3 bits of index, 3 of scale, the direction of the shift
    u16 d;
    u8 low[32];
    u16 high[8];
};
struct iq1_m { // of each 8: 3 bits of index, the direction of the shift. d is in the tops of four words of
               // scales, which have four times 3 bits below
    u8 low[32], high[16], scales[8];
};
struct tq1_0 { // five digits to a byte, and four
    u8 q[48], last[4];
    u16 d;
};
struct tq2_0 {
    u8 q[64];
    u16 d;
};
STATIC_ASSERT(sizeof(struct iq2_xxs) == 66 && sizeof(struct iq2_xs) == 74 && sizeof(struct iq2_s) == 82);
STATIC_ASSERT(sizeof(struct iq3_xxs) == 98 && sizeof(struct iq3_s) == 110);
STATIC_ASSERT(sizeof(struct iq1_s) == 50 && sizeof(struct iq1_m) == 56);
STATIC_ASSERT(sizeof(struct tq1_0) == 54 && sizeof(struct tq2_0) == 66);

// The same numbers as q8_16.
void grid_iq2_xxs_spread(const struct iq2_xxs *b, struct q8_16 *out);
void grid_iq2_xs_spread(const struct iq2_xs *b, struct q8_16 *out);
void grid_iq2_s_spread(const struct iq2_s *b, struct q8_16 *out);
void grid_iq3_xxs_spread(const struct iq3_xxs *b, struct q8_16 *out);
void grid_iq3_s_spread(const struct iq3_s *b, struct q8_16 *out);
void grid_iq1_s_spread(const struct iq1_s *b, struct q8_16 *out);
void grid_iq1_m_spread(const struct iq1_m *b, struct q8_16 *out);
void grid_tq1_0_spread(const struct tq1_0 *b, struct q8_16 *out);
void grid_tq2_0_spread(const struct tq2_0 *b, struct q8_16 *out);
