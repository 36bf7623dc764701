// patches: out[r][(ch * p + y) * p + x] = table[ch][pixels[tile][y0 + y][x0 + x][ch]]
//
// The patches of square pictures as rows, in the order of a convolution's weight [hidden, 3, p, p], so that
// the convolution becomes a product; columns behind those are zeros. Row r is patch `position of r` of the
// tile `slot of r`: y0 = position / n_across * p, x0 = position % n_across * p. The table has the normalised
// value of each byte, for each channel. Pixels beyond n_across patches are not read. A position beyond the
// last patch is a row of zeros. Limits: tiles of at most 8,192 pixels a side; the engine has checked slots
// and positions.
#pragma once
#include "base/lang.h"

struct patches_args {
    u32 side;     // pixels of a tile, in both directions
    u32 patch;    // p
    u32 n_across; // side / p
    u32 n_cols;   // of out
};
STATIC_ASSERT(sizeof(struct patches_args) == 16);

enum { PATCHES_PIXELS, PATCHES_TABLE, PATCHES_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct patches {
    struct tensor out;           // [rows, 3 * patch * patch or more]
    const struct buffer *pixels; // [n_slots, side, side, 3] bytes
    const struct weight *table;  // [3, 256] fp32
    uint32_t side, patch;
};
void op_patches(struct tape *t, struct patches p);
#endif
