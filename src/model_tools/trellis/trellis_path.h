// trellis_path.h - the best path through EXL3's trellis for a tile of 256 numbers: Viterbi's algorithm (1967)
// with a ring for an end, as in QTIP (Tseng et al., 2024).
//
// A step has 65,536 states, each with 2^bits predecessors. The ring is closed by two walks: one that begins
// in the middle finds the bits that lie over the beginning, the second begins and ends with them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "quant/exl3.h"

struct trellis_path; // the room for one tile's walks: one for each thread

struct trellis_path *trellis_path_create(uint32_t bits, enum exl3_codebook codebook); // NULL: no memory
void trellis_path_free(struct trellis_path *path);                                    // NULL is allowed

// Writes the code of a tile of [input][output], 16 * bits words, and the numbers it decodes to.
void trellis_path_find(struct trellis_path *path, const float tile[EXL3_TILE][EXL3_TILE], uint16_t *code,
                       float decoded[EXL3_TILE][EXL3_TILE]);
