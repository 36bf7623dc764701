// exl3.c - see exl3.h.
#include "quant/exl3.h"
#include <string.h>
#include "quant/half.h"

static f32 float_of(u32 bits)
{
    f32 v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// To eleven significant bits, to the nearest, ties to even: a half, for what is no smaller than its numbers
// get here.
static f32 rounded(f32 v)
{
    u32 bits;
    memcpy(&bits, &v, sizeof bits);
    return float_of((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

// Halves from 2^-3 to 2 alone.
static f32 of_common_half(u32 half)
{
    return float_of((half & 0x8000) << 16 | (((half & 0x7fff) << 13) + (112u << 23)));
}

// The sum of a word's two halves, whose exponents are all alike but for two bits.
static f32 sum_of_halves(u32 x)
{
    x = (x & 0x8fff8fff) ^ 0x3b603b60;
    return rounded(of_common_half(x & 0xffff) + of_common_half(x >> 16));
}

// A multiple of the sum of four bytes, less its mean: fp16's fused multiply-add, which fp32 holds exactly
// before it is rounded.
static f32 from_bytes(u32 x)
{
    u32 sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
    return rounded((f32)(1024 + sum) * 0x1.bb8p-8f - 0x1.4c4p3f);
}

f32 exl3_value(u32 state, enum exl3_codebook codebook)
{
    return codebook == EXL3_MUL1  ? from_bytes(state * EXL3_MARK_MUL1)
           : codebook == EXL3_MCG ? sum_of_halves(state * EXL3_MARK_MCG)
                                  : sum_of_halves(state * 89226354u + 64248484u);
}

// The 16 bits that end behind a position, in a ring of words whose highest bit is the first.
static u32 state_at(const u16 *tile, u32 bits, u32 position)
{
    const u32 end = position * bits + bits, first = end < 16 ? end + 256 * bits - 16 : end - 16;
    const u32 w = first / 32, next = w + 1 == 8 * bits ? 0 : w + 1;
    u64 window = (u64)((u32)tile[2 * w + 1] << 16 | tile[2 * w]) << 32 |
                 ((u32)tile[2 * next + 1] << 16 | tile[2 * next]);

    return (u32)(window >> (48 - first % 32)) & 0xffff;
}

void exl3_decode(const u16 *tile, u32 bits, enum exl3_codebook codebook, f32 out[EXL3_TILE][EXL3_TILE])
{
    u32 states[EXL3_TILE * EXL3_TILE];
    f32 values[EXL3_TILE * EXL3_TILE];

    for (u32 p = 0; p < EXL3_TILE * EXL3_TILE; p++)
        states[p] = state_at(tile, bits, p);
    for (u32 p = 0; p < EXL3_TILE * EXL3_TILE; p++) // a loop that compilers vectorise
        values[p] = exl3_value(states[p], codebook);
    for (u32 p = 0; p < EXL3_TILE * EXL3_TILE; p++) {
        u32 t = p / 8, i = p % 8;
        out[t % 4 * 2 + i % 2 + i / 2 % 2 * 8][t / 4 + i / 4 * 8] = values[p];
    }
}

// Sylvester's matrix of 128 on the rows of a block, unscaled: sums and differences of rows 1, 2, 4, ...
// apart.
static void turn_rows(f32 block[EXL3_BLOCK][EXL3_BLOCK])
{
    for (u32 apart = 1; apart < EXL3_BLOCK; apart *= 2)
        for (u32 r = 0; r < EXL3_BLOCK; r++) {
            if (r & apart)
                continue;
            for (u32 c = 0; c < EXL3_BLOCK; c++) {
                f32 a = block[r][c], b = block[r + apart][c];
                block[r][c] = a + b;
                block[r + apart][c] = a - b;
            }
        }
}

static void transpose(f32 block[EXL3_BLOCK][EXL3_BLOCK])
{
    for (u32 r = 0; r < EXL3_BLOCK; r++)
        for (u32 c = 0; c < r; c++) {
            f32 v = block[r][c];
            block[r][c] = block[c][r];
            block[c][r] = v;
        }
}

void exl3_decode_block(const struct exl3 *m, u32 in, u32 out, f32 block[EXL3_BLOCK][EXL3_BLOCK])
{
    f32 tile[EXL3_TILE][EXL3_TILE];

    for (u32 i = 0; i < 8; i++)
        for (u32 o = 0; o < 8; o++) {
            u64 at = (u64)(in * 8 + i) * (m->n_out / EXL3_TILE) + out * 8 + o;
            exl3_decode(m->trellis + at * 16 * m->bits, m->bits, m->codebook, tile);
            for (u32 r = 0; r < EXL3_TILE; r++)
                memcpy(&block[16 * i + r][16 * o], tile[r], sizeof tile[r]);
        }
}

void exl3_product_block(const struct exl3 *m, u32 in, u32 out, f32 block[EXL3_BLOCK][EXL3_BLOCK])
{
    f32 factors[EXL3_BLOCK];

    exl3_decode_block(m, in, out, block);
    turn_rows(block); // inputs
    transpose(block);
    turn_rows(block); // outputs
    for (u32 i = 0; i < EXL3_BLOCK; i++)
        factors[i] = half_to_float(m->suh[in * EXL3_BLOCK + i]);
    for (u32 o = 0; o < EXL3_BLOCK; o++) {
        f32 factor = half_to_float(m->svh[out * EXL3_BLOCK + o]) / EXL3_BLOCK;
        for (u32 i = 0; i < EXL3_BLOCK; i++)
            block[o][i] *= factor * factors[i];
    }
}

struct exl3 exl3_at(const void *at, u32 n_in, u32 n_out, u32 bits, enum exl3_codebook codebook)
{
    const u16 *codes = at, *suh = codes + exl3_codes_bytes(n_in, n_out, bits) / 2;

    return (struct exl3){ codes, suh, suh + n_in, n_in, n_out, bits, codebook };
}

void exl3_turn(f32 numbers[EXL3_BLOCK])
{
    for (u32 apart = 1; apart < EXL3_BLOCK; apart *= 2)
        for (u32 i = 0; i < EXL3_BLOCK; i += 2 * apart)
            for (u32 k = i; k < i + apart; k++) {
                f32 a = numbers[k], b = numbers[k + apart];
                numbers[k] = a + b;
                numbers[k + apart] = a - b;
            }
    for (u32 i = 0; i < EXL3_BLOCK; i++)
        numbers[i] *= 0.08838834764831845f; // 1 / sqrt(128)
}
