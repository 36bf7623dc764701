// rope_store_metal.h - the geometry of the Metal kernels that take a simdgroup for each head. Shared by C and
// MSL.
#pragma once
#include "ops/rope_store/rope_store.h"

enum { HEADS_IN_GROUP = 4 }; // simdgroups of a threadgroup

// Function constants of heads.metalh; after those of a product, which may stand in the same file.
enum { HEADS_C_Q_NORM = 7, HEADS_C_K_NORM, HEADS_N_CONSTANTS };
