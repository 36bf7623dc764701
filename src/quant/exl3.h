// exl3.h - EXL3, the trellis codes of exllamav3 (after QTIP; Tseng et al., 2024): a matrix of n_in inputs and
// n_out outputs, both multiples of 128, in 1 to 8 bits a weight.
//
// It is no row format. A tile is 16 inputs by 16 outputs in 256 * bits bits, a ring: the state at a position
// is the 16 bits that end behind it, so neighbours share all but `bits` of them. A codebook makes a half of
// a state. With Wq the tiles, H the Hadamard matrix of 128 over sqrt(128) on each 128 rows or columns, and
// a factor for each input and output (signs, mostly):
//
//   y = svh * (H (Wq (H (suh * x))))
//
// Words are of 32 bits, little-endian, the highest bit first.
#pragma once
#include "base/lang.h"

enum { EXL3_TILE = 16, EXL3_BLOCK = 128, EXL3_MAX_BITS = 8 };
enum exl3_codebook { EXL3_3INST, EXL3_MCG, EXL3_MUL1 };

// What a checkpoint holds beside the matrix to name the last two codebooks.
#define EXL3_MARK_MCG  0xcbac1fedu
#define EXL3_MARK_MUL1 0x83dcd12du

struct exl3 {
    const u16 *trellis;    // [n_in / 16, n_out / 16, 16 * bits]
    const u16 *suh, *svh;  // halves: [n_in], [n_out]
    u32 n_in, n_out, bits; // bits: 1 to 8
    enum exl3_codebook codebook;
};

// The number of a state of 16 bits, exactly a half.
f32 exl3_value(u32 state, enum exl3_codebook codebook);
// A tile's numbers.
void exl3_decode(const u16 *tile, u32 bits, enum exl3_codebook codebook, f32 out[EXL3_TILE][EXL3_TILE]);

// 128 x 128 numbers of the matrix that x is multiplied with, transforms and factors included, in fp32:
// [output][input], from input 128 * in and output 128 * out on.
void exl3_product_block(const struct exl3 *m, u32 in, u32 out, f32 block[EXL3_BLOCK][EXL3_BLOCK]);
