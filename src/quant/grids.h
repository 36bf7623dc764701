// grids.h - the points of the grids of IQ1, IQ2 and IQ3. They are facts of these formats: chosen by their
// author from a lattice, computed by no formula. Source: ggml-common.h of llama.cpp; each point is packed
// here into 16 bits, its first coordinate lowest.
#pragma once
#include "base/lang.h"

// Eight coordinates of two bits: 0, 1, 2 for 8, 25, 43.
extern const u16 grids_iq2_xxs[256], grids_iq2_xs[512], grids_iq2_s[1024];
// Four coordinates of three bits: k for 4 + 8 k, but 62 for 7; k for 2 k + 1.
extern const u16 grids_iq3_xxs[256], grids_iq3_s[512];
// Eight coordinates of two bits: 0, 1, 2 for -1, 0, 1.
extern const u16 grids_iq1[2048];
