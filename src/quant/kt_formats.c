// kt_formats.c - see kt_formats.h.
#include "quant/kt_formats.h"
#include <string.h>
#include "quant/iq4_nl.h"

// n numbers of the generator: sums of four six-bit numbers, whose mean is 126.
static void put_numbers(u32 index, u32 n, i8 *q)
{
    u32 x = index + 4096;

    for (u32 i = 0; i < n; i++) {
        x *= 0xcbac1fedu;
        u32 sixes = x & 0x3f3f3f3f, pairs = (sixes & 0xff00ff) + (sixes >> 8 & 0xff00ff);
        q[i] = (i8)((i32)((pairs & 0xffff) + (pairs >> 16)) - 126);
    }
}

static void put_scale(i8 scale, u32 block, struct q8_16 *out)
{
    out->scales[2 * block] = out->scales[2 * block + 1] = scale;
}

// Nibble `i` of bytes whose low halves come first, `half` of them.
static u32 nibble(const u8 *bytes, u32 i, u32 half)
{
    return (u32)bytes[i % half] >> i / half * 4 & 15;
}

void kt_iq1_kt_spread(const struct iq1_kt *b, struct q8_16 *out)
{
    for (u32 block = 0; block < 8; block++)
        put_scale(iq4_nl_level(b->scales[block] & 15u), block, out);
    for (u32 i = 0; i < 32; i++) {
        u32 top = (u32)b->scales[i / 4] >> (4 + i % 4) & 1;
        put_numbers(b->low[i] | nibble(b->high, i, 16) << 8 | top << 12, 8, out->q + 8 * i);
    }
}

void kt_iq2_kt_spread(const struct iq2_kt *b, struct q8_16 *out)
{
    for (u32 block = 0; block < 8; block++)
        put_scale(iq4_nl_level(nibble(b->scales, block, 4)), block, out);
    for (u32 i = 0; i < 32; i++)
        put_numbers(b->index[i], 8, out->q + 8 * i);
}

void kt_iq3_kt_spread(const struct iq3_kt *b, struct q8_16 *out)
{
    for (u32 block = 0; block < 8; block++)
        put_scale((i8)nibble(b->scales, block, 4), block, out);
    for (u32 i = 0; i < 32; i++)
        put_numbers(b->index[i], 8, out->q + 8 * i);
    for (u32 i = 0; i < 256; i++) {
        i32 size = out->q[i] < 0 ? -out->q[i] : out->q[i];
        out->q[i] = (i8)(b->signs[i % 32] >> i / 32 & 1 ? -size : size);
    }
}

void kt_iq4_kt_spread(const struct iq4_kt *b, struct q8_16 *out)
{
    for (u32 block = 0; block < 8; block++) {
        u32 word;
        memcpy(&word, b->words[block], 4);
        put_scale((i8)((i32)(word >> 1 & 127) - 64), block, out);
        for (u32 g = 0; g < 8; g++) {
            u32 i = 8 * block + g, top = word >> (8 + 3 * g) & 7;
            put_numbers((b->low[i] | nibble(b->high, i, 32) << 8 | top << 12) + (word & 1) * 32768, 4,
                        out->q + 4 * i);
        }
    }
}
