// kt_formats.h - the trellis formats of ik_llama.cpp's GGUF files, 1.75 to 4 bits a weight: blocks of 256,
// and before a row's first block the row's scale in fp32.
//
// Eight or four neighbours are one index. A generator makes an integer in -126..126 of each of them; nothing
// is shared between indices. Each 32 have a scale, an integer too. No kernel multiplies them as they are:
// they are spread into blocks of q8_16.h when they are loaded. The numbers are those of that program's row
// decoder. Its products multiply them by 1.05 (IQ2_KT) and 1.01 to 1.05 (IQ3_KT) besides, which is no part of
// the format. Files of before June 2025 have other numbers under the same ids; nothing in them tells.
#pragma once
#include "quant/q8_16.h"

enum { KT_HEAD = 4 };

struct iq1_kt { // indices of 13 bits. scales: of each 32 a level of IQ4_NL, and its four groups' top bits
    u8 scales[8], low[32], high[16];
};
struct iq2_kt { // indices of 16 bits; scales are levels of IQ4_NL
    u8 scales[4];
    u16 index[32];
};
struct iq3_kt { // the same; scales are 0..15, and numbers have signs: bit b of byte i is of block b's number
                // i
    u8 scales[4];
    u16 index[32];
    u8 signs[32];
};
struct iq4_kt { // indices of 15 bits for four. words: a bit of the generator's beginning, the scale and 64 in
                // seven, the groups' top bits in threes
    u8 words[8][4], low[64], high[32];
};
STATIC_ASSERT(sizeof(struct iq1_kt) == 56 && sizeof(struct iq2_kt) == 68);
STATIC_ASSERT(sizeof(struct iq3_kt) == 100 && sizeof(struct iq4_kt) == 128);

// The same numbers as q8_16, but for `d`, which is the row's.
void kt_iq1_kt_spread(const struct iq1_kt *b, struct q8_16 *out);
void kt_iq2_kt_spread(const struct iq2_kt *b, struct q8_16 *out);
void kt_iq3_kt_spread(const struct iq3_kt *b, struct q8_16 *out);
void kt_iq4_kt_spread(const struct iq4_kt *b, struct q8_16 *out);
