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

// In a device's memory: the codes as in the file, then suh, then svh.
SHARED_INLINE u64 exl3_codes_bytes(u32 n_in, u32 n_out, u32 bits)
{
    return (u64)n_in * n_out / 8 * bits;
}
SHARED_INLINE u64 exl3_bytes(u32 n_in, u32 n_out, u32 bits)
{
    return exl3_codes_bytes(n_in, n_out, bits) + 2 * ((u64)n_in + n_out);
}
SHARED_INLINE u32 exl3_bits(u64 bytes, u32 n_in, u32 n_out) // of a matrix of so many bytes; 0: it is none
{
    u64 each = (u64)n_in * n_out / 8, codes = bytes - 2 * ((u64)n_in + n_out);
    return bytes > codes && codes % each == 0 && codes / each <= EXL3_MAX_BITS ? (u32)(codes / each) : 0;
}
SHARED_INLINE u32 exl3_padded(u32 n) // rows and columns, to whole blocks
{
    return (n + EXL3_BLOCK - 1) / EXL3_BLOCK * EXL3_BLOCK;
}

#ifdef HOST_C
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

// The parts of a matrix in memory.
struct exl3 exl3_at(const void *at, u32 n_in, u32 n_out, u32 bits, enum exl3_codebook codebook);
// The tiles of a block, no transforms: [input][output].
void exl3_decode_block(const struct exl3 *m, u32 in, u32 out, f32 block[EXL3_BLOCK][EXL3_BLOCK]);
// H times 128 numbers.
void exl3_turn(f32 numbers[EXL3_BLOCK]);
#endif
