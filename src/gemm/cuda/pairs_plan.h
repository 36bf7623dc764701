// pairs_plan.h - what pairs.c, which chooses the kernels of a matrix product, and those who plan their launches know together.
#pragma once
#include "gemm/cuda/pairs.h"

enum { FEW_ROWS = 16, MANY_PAIRS = 64 }; // rows of gemm_few's tiles; pairs of gemm_many's and gemm_hopper's

enum way { WAY_INT8, WAY_PLAIN, WAY_EXACT, WAY_RING, WAY_FEW, WAY_MANY, WAY_TILES };

struct part { // the pairs of one launch have one format
    u32 format, max_rows;
    enum way way;
    bool final; // see struct pairs_plan
};

static inline u32 divide_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}
const char *pairs_format_name(u32 format); // as kernels are named

// pairs_ring.c. Can gemm_ring take rows of so many columns?
bool pairs_fit_ring(const struct cuda_plan *p, struct part part, u32 n_cols);
void pairs_launch_gemv(struct cuda_plan *p, struct pairs_params *params, struct part part);
void pairs_launch_ring(struct cuda_plan *p, struct pairs_params *params, struct part part);

// pairs_tiles.c. Can matrix m be copied in tiles? Is there gemm_hopper for such weights?
bool pairs_fit_tiles(const struct cuda_plan *p, const struct pairs_params *params, u32 m);
bool pairs_has_hopper(const struct cuda_plan *p, u32 tile_rows, u32 format);
bool pairs_launch_hopper(struct cuda_plan *p, const struct pairs_params *params, struct part part); // false: there is none
void pairs_launch_tiles(struct cuda_plan *p, struct pairs_params *params, struct part part);
