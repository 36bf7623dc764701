// product_choice.c - which kernel multiplies, at which rows, columns and depth, and why; see product_choice.h.
//
// The rows are those of the largest step a tape can get. Nothing here was tuned on Apple hardware: sizes are published ones.
//
//   rung    rows   tile (weights x rows x columns)     threads  source and reason
//   plain   any    16 x 16                             256      vllm-apple's naive kernel (GEMM_METAL.md). Widths that are no multiple
//                                                               of 8; a thread a pair
//   head    1      256 x 1, the row in 16 KiB          256      vllm-apple's large-N plan: the row once from memory, weights streamed
//                  of threadgroup memory                        past it. From 32,768 outputs on: LM heads have 32,000 and more, layers
//                                                               less. 16 KiB are half of what a threadgroup may have
//   one     1      16 x 1; 4 weight rows a simdgroup   128      llama.cpp, N_R0_Q4_0 = 4 in ggml-metal-impl.h: four weight rows share
//                                                               the activations that a lane holds
//   few     2-8    16 x 8; 2 weight rows a simdgroup   128      llama.cpp, ggml-metal-ops.cpp: vector kernels for 2 to 8 rows. 2 x 8
//                                                               sums and 2 x 16 weights fit the registers
//           9-16   16 x 16 x 32, columns shared out    128      simdgroup matrices from where llama.cpp switches to them (ne11_mm_min
//                  over 4 simdgroups                            = 8, same file); each weight is still read once
//   many    17+    64 x 64 x 32, padded by 16 bytes    128      MLX, matmul.cpp: 64 x 64 by 2 x 2 simdgroups in fp32; llama.cpp's mul_mm:
//                                                               64 weight rows, NK = 32; padding as MLX's loader
//   tiled   2+     64 x 64 x 16, 4 x 4 a thread        256      vllm-apple's tiled kernel. exact: fp32 multiply-adds in a known order;
//                                                               how a simdgroup matrix rounds inside is not documented
//
// few and many come in two kinds: weights staged as half for F16 and every quantised format (11 bits hold d * q to 2^-12), as float for
// BF16 and F32, whose range half lacks.
#include "gemm/metal/product_choice.h"
#include <stdio.h>
#include <string.h>

enum { LARGE_N = 32768, HEAD_ROW_BYTES = 16384, ONE_ROW = 1 };

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static bool half_is_enough(const struct product_plan *product)
{
    for (uint32_t i = 0; i < 3; i++) {
        enum quant q = product->w[i] ? product->w[i]->format : QUANT_F16;
        if (q == QUANT_F32 || q == QUANT_BF16)
            return false;
    }
    return true;
}

// Tiles of `size` pairs; matrices share none.
static uint32_t n_tiles(const struct product_plan *product, uint32_t size)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < (product->mode >= PRODUCT_ROPE ? 3u : 1u); i++)
        n += divide_up(product_pairs(product->mode, product->w[i]->n_rows), size);
    return n;
}

struct rung {
    const char *name;
    uint32_t grid[3], threads, shared;
};

static struct rung choose(const struct product_plan *product, uint32_t rows)
{
    uint32_t n_cols = product->w[0]->n_cols;
    bool half = half_is_enough(product);

    if (n_cols % 8 != 0)
        return (
            struct rung){ "plain", { divide_up(rows, PLAIN_SIDE), n_tiles(product, PLAIN_SIDE), 1 }, PLAIN_SIDE * PLAIN_SIDE, 0 };
    if (rows == ONE_ROW && product->mode == PRODUCT_PLAIN && product->w[0]->n_rows >= LARGE_N && n_cols * 4 <= HEAD_ROW_BYTES)
        return (struct rung){ "head", { n_tiles(product, HEAD_PAIRS), 1, 1 }, HEAD_THREADS, n_cols * 4 };
    if (rows == ONE_ROW)
        return (struct rung){ "one", { n_tiles(product, ROWS_PAIRS), 1, 1 }, 128, 0 };
    if (product->exact)
        return (struct rung){ "tiled", { divide_up(rows, TILE_ROWS), n_tiles(product, TILE_PAIRS), 1 }, 256, 0 };
    if (rows <= FEW_ROWS)
        return (struct rung){ half ? "few_half" : "few_float", { n_tiles(product, ROWS_PAIRS), 1, 1 }, 128, 0 };
    return (struct rung){
        half ? "many_half" : "many_float", { divide_up(rows, TILE_ROWS), n_tiles(product, TILE_PAIRS), 1 }, 128, 0
    };
}

void product_launch(struct metal_plan *p, const struct product_plan *product)
{
    struct product_args args = product->args;
    uint32_t rows = args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    struct rung rung = choose(product, rows);
    struct metal_kernel kernel = { .n_constants = PRODUCT_N_CONSTANTS, .threads = rung.threads, .shared = rung.shared };
    char name[32];

    snprintf(name, sizeof name, "%s_%s", product->op, rung.name);
    kernel.name = name;
    memcpy(kernel.grid, rung.grid, sizeof kernel.grid);
    kernel.constants[PRODUCT_C_MODE] = product->mode;
    kernel.constants[PRODUCT_C_BIAS] = product->bias;
    kernel.constants[PRODUCT_C_ADD] = product->add;
    args.n_cols = product->w[0]->n_cols;
    for (uint32_t i = 0; i < 3; i++) {
        const struct weight *w = product->w[i] ? product->w[i] : product->w[0];
        kernel.constants[PRODUCT_C_FORMAT + i] = w->format;
        args.n_out[i] = w->n_rows;
        args.row_bytes[i] = (uint32_t)(w->bytes / w->n_rows);
    }
    metal_launch_add(p, &kernel, &args, sizeof args);
}
