// trellis_path.h - the best path through EXL3's trellis for a tile of 256 numbers: Viterbi's algorithm (1967)
// with a ring for an end, as in QTIP (Tseng et al., 2024).
//
// A step has 65,536 states, each with 2^bits predecessors. The ring is closed by two walks: one that begins
// in the middle finds the bits that lie over the beginning, the second begins and ends with them. Of paths
// that cost the same the one with the lower bits is taken, the last ones first; costs are rounded as written,
// so every device finds the same path.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ops/trellis_search/trellis_search.h"

struct trellis_path; // the room for one tile's walks: one for each thread

size_t trellis_path_bytes(uint32_t bits); // of the memory that it lies in, 64-byte aligned
struct trellis_path *trellis_path_prepare(void *at, uint32_t bits, enum exl3_codebook codebook, bool plain);

// Writes the code of a tile of [input][output], 16 * bits words, and the numbers it decodes to.
void trellis_path_find(struct trellis_path *path, const float tile[EXL3_TILE][EXL3_TILE], uint16_t *code,
                       float decoded[EXL3_TILE][EXL3_TILE]);
