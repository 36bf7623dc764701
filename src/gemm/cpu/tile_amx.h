// tile_amx.h - the tiles of tile_amx.c, which tile_avx512.c puts into the set of kernels for processors with
// AMX.
#pragma once
#include "gemm/cpu/product.h"

enum { AMX_ROWS = 32 };

// [rows]; of blocks of 32 columns as panel_wide lays them out
extern product_tile_fn *const amx_tiles[AMX_ROWS + 1];
