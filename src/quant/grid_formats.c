// grid_formats.c - see grid_formats.h.
#include "quant/grid_formats.h"
#include <stdbool.h>
#include <string.h>
#include "quant/grids.h"

// Eight weights of IQ2: their magnitudes and signs.
static void put_twos(u16 point, u32 signs, i8 *q)
{
    static const i8 levels[4] = { 8, 25, 43, 0 };

    for (u32 i = 0; i < 8; i++)
        q[i] = (i8)(signs >> i & 1 ? -levels[point >> 2 * i & 3] : levels[point >> 2 * i & 3]);
}

// Four weights of IQ3, whose levels these are.
static void put_threes(u16 point, u32 signs, const i8 levels[8], i8 *q)
{
    for (u32 i = 0; i < 4; i++)
        q[i] = (i8)(signs >> i & 1 ? -levels[point >> 3 * i & 7] : levels[point >> 3 * i & 7]);
}

// Eight weights of IQ1: -1, 0 or 1, moved by an eighth. In eighths.
static void put_ones(u16 point, bool down, i8 *q)
{
    for (u32 i = 0; i < 8; i++)
        q[i] = (i8)(8 * ((point >> 2 * i & 3) - 1) + (down ? -1 : 1));
}

// Seven signs and an eighth that makes their number even.
static u32 even_signs(u32 seven)
{
    return seven | (u32)__builtin_parity(seven) << 7;
}

static u32 word_at(const u8 *at)
{
    u32 w;
    memcpy(&w, at, 4);
    return w;
}

static i8 odd_scale(u32 bits)
{
    return (i8)(2 * bits + 1);
}

void grid_iq2_xxs_spread(const struct iq2_xxs *b, struct q8_16 *out)
{
    out->d = half_to_float(b->d) * 0.125f;
    for (u32 g = 0; g < 8; g++) {
        u32 signs = word_at(b->q + 8 * g + 4);
        out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(signs >> 28);
        for (u32 i = 0; i < 4; i++)
            put_twos(grids_iq2_xxs[b->q[8 * g + i]], even_signs(signs >> 7 * i & 127),
                     out->q + 32 * g + 8 * i);
    }
}

// Scales of each 16, two to a byte.
static void put_scales_of_16(const u8 scales[8], struct q8_16 *out)
{
    for (u32 g = 0; g < 16; g++)
        out->scales[g] = odd_scale(scales[g / 2] >> g % 2 * 4 & 15u);
}

void grid_iq2_xs_spread(const struct iq2_xs *b, struct q8_16 *out)
{
    out->d = half_to_float(b->d) * 0.125f;
    put_scales_of_16(b->scales, out);
    for (u32 i = 0; i < 32; i++)
        put_twos(grids_iq2_xs[b->q[i] & 511], even_signs(b->q[i] >> 9), out->q + 8 * i);
}

void grid_iq2_s_spread(const struct iq2_s *b, struct q8_16 *out)
{
    out->d = half_to_float(b->d) * 0.125f;
    put_scales_of_16(b->scales, out);
    for (u32 i = 0; i < 32; i++)
        put_twos(grids_iq2_s[b->low[i] | (b->high[i / 4] >> i % 4 * 2 & 3) << 8], b->signs[i],
                 out->q + 8 * i);
}

void grid_iq3_xxs_spread(const struct iq3_xxs *b, struct q8_16 *out)
{
    static const i8 levels[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };

    out->d = half_to_float(b->d) * 0.25f;
    for (u32 g = 0; g < 8; g++) {
        u32 word = word_at(b->signs + 4 * g);
        out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(word >> 28);
        for (u32 i = 0; i < 8; i++)
            put_threes(grids_iq3_xxs[b->q[8 * g + i]], even_signs(word >> i / 2 * 7 & 127) >> i % 2 * 4,
                       levels, out->q + 32 * g + 4 * i);
    }
}

void grid_iq3_s_spread(const struct iq3_s *b, struct q8_16 *out)
{
    static const i8 levels[8] = { 1, 3, 5, 7, 9, 11, 13, 15 };

    out->d = half_to_float(b->d);
    for (u32 g = 0; g < 16; g++)
        out->scales[g] = odd_scale(b->scales[g / 4] >> g / 2 % 2 * 4 & 15u);
    for (u32 i = 0; i < 64; i++)
        put_threes(grids_iq3_s[b->low[i] | (b->high[i / 8] >> i % 8 & 1) << 8],
                   (u32)b->signs[i / 2] >> i % 2 * 4, levels, out->q + 4 * i);
}

void grid_iq1_s_spread(const struct iq1_s *b, struct q8_16 *out)
{
    out->d = half_to_float(b->d) * 0.125f;
    for (u32 g = 0; g < 8; g++) {
        out->scales[2 * g] = out->scales[2 * g + 1] = odd_scale(b->high[g] >> 12 & 7u);
        for (u32 i = 4 * g; i < 4 * g + 4; i++)
            put_ones(grids_iq1[b->low[i] | (b->high[g] >> i % 4 * 3 & 7) << 8], b->high[g] >> 15,
                     out->q + 8 * i);
    }
}

void grid_iq1_m_spread(const struct iq1_m *b, struct q8_16 *out)
{
    u16 words[4], d = 0;

    memcpy(words, b->scales, sizeof words);
    for (u32 i = 0; i < 4; i++)
        d = (u16)(d | (words[i] >> 12) << 4 * i);
    out->d = half_to_float(d) * 0.125f;
    for (u32 g = 0; g < 16; g++)
        out->scales[g] = odd_scale(words[g / 4] >> g % 4 * 3 & 7u);
    for (u32 i = 0; i < 32; i++) {
        u32 nibble = (u32)b->high[i / 2] >> i % 2 * 4;
        put_ones(grids_iq1[b->low[i] | (nibble & 7) << 8], nibble >> 3 & 1, out->q + 8 * i);
    }
}

static void set_ternary(u16 d, struct q8_16 *out)
{
    out->d = half_to_float(d);
    memset(out->scales, 1, sizeof out->scales);
}

// A byte holds its digits as a fraction of 256: each times three brings the next to the top.
static i8 digit(u32 byte, u32 n)
{
    static const u32 powers[5] = { 1, 3, 9, 27, 81 };
    return (i8)((i32)((byte * powers[n] & 255) * 3 >> 8) - 1);
}

void grid_tq1_0_spread(const struct tq1_0 *b, struct q8_16 *out)
{
    set_ternary(b->d, out);
    for (u32 i = 0; i < 160; i++)
        out->q[i] = digit(b->q[i % 32], i / 32);
    for (u32 i = 0; i < 80; i++)
        out->q[160 + i] = digit(b->q[32 + i % 16], i / 16);
    for (u32 i = 0; i < 16; i++)
        out->q[240 + i] = digit(b->last[i % 4], i / 4);
}

void grid_tq2_0_spread(const struct tq2_0 *b, struct q8_16 *out)
{
    set_ternary(b->d, out);
    for (u32 i = 0; i < 256; i++)
        out->q[i] = (i8)((b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1);
}
