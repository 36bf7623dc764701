// trellis_search: of each of n matrices one block of 16 inputs as EXL3 (quant/exl3.h), block b, for LDLQ
// (model_tools/trellis/trellis_encode.c):
//   wanted[r][o] = w[16 b + r][o] + sum over i from 16 (b + 1) on of l[i][16 b + r] * missed[i][o]
//   codes[b][o / 16] = the code that meets 16 x 16 of these best (trellis_path.h)
//   missed[16 b + r][o] = w[16 b + r][o] - what it decodes to
//
// A row of the step is a matrix, and its position the block: so the blocks of matrices, from the last to the
// first, are plays of one tape. Every device writes the same bits: sums are in fp64, where a product of two
// fp32 is exact, in the order of i; of eight sums each has every eighth block of i, and they are added in
// turn.
#pragma once
#include "base/lang.h"
#include "quant/exl3.h"

struct trellis_search_args {
    u32 n_in, n_out; // multiples of 16 and 32
    u32 bits, codebook;
};
STATIC_ASSERT(sizeof(struct trellis_search_args) == 16);

enum { TRELLIS_SEARCH_SUMS = 8, TRELLIS_STATES = 1 << 16, TRELLIS_STEPS = EXL3_TILE * EXL3_TILE };

// The place of a position of the ring in a tile of [input][output].
SHARED_INLINE u32 trellis_input_of(u32 p)
{
    return p / 8 % 4 * 2 + p % 2 + p % 8 / 2 % 2 * 8;
}
SHARED_INLINE u32 trellis_output_of(u32 p)
{
    return p / 32 + p % 8 / 4 * 8;
}

enum { TRELLIS_SEARCH_W, TRELLIS_SEARCH_L, TRELLIS_SEARCH_MISSED, TRELLIS_SEARCH_CODES };

#ifdef HOST_C
#include "device/tape.h"

struct trellis_search {              // n: the tape's most rows
    const struct buffer *w, *missed; // [n, n_in, n_out] fp32
    const struct buffer *l;          // [n, n_in, n_in] fp32; the blocks on its diagonals are 1
    const struct buffer *codes;      // [n, n_in / 16, n_out / 16, 16 * bits] of 16 bits
    uint32_t n_in, n_out, bits;
    enum exl3_codebook codebook;
};
void op_trellis_search(struct tape *t, const struct trellis_search *s);
#endif
