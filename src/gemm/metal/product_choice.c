// product_choice.c - which kernel multiplies, at which rows, columns and depth, and why; see
// product_choice.h.
//
// The rows are those of the largest step a tape can get. Nothing here was tuned on Apple hardware: sizes are
// published ones.
//
//   variant  rows  tile (weights x rows x columns)   threads  source and reason
//   plain    any   16 x 16                           256      vllm-apple's naive kernel (GEMM_METAL.md): a
//                                                             thread a pair. For widths that are no multiple
//                                                             of 8
//   head     1     256 x 1, the row in 16 KiB of     256      vllm-apple's large-N plan: the row once from
//                  threadgroup memory                         memory, weights streamed past it. From 32,768
//                                                             outputs on: LM heads have 32,000 and more,
//                                                             layers less. 16 KiB are half of what a
//                                                             threadgroup may have
//   parts    1     64 x 1, as head               512      attn_out: the attention before it leaves a row in
//                                                             parts, and each threadgroup adds them up. Few
//                                                             threadgroups do so: of 4,096 outputs 64. By
//                                                             tools/metal_times it pays up to some five
//                                                             parts in use, and costs less than 1 % beyond
//   one      1     16 x 1; 4 weight rows a           128      llama.cpp, N_R0_Q4_0 = 4 in ggml-metal-impl.h:
//                  simdgroup                                  four weight rows share the activations that a
//                                                             lane holds. More rows, or both scales of a
//                                                             piece early, cost threads in flight:
//                                                             2026-11-22-agx-kernel-counts.md
//   few      2-8   16 x 8; 2 weight rows a           128      llama.cpp, ggml-metal-ops.cpp: vector kernels
//                  simdgroup                                  for 2 to 8 rows. 2 x 8 sums and 2 x 16 weights
//                                                             fit the registers
//            9-16  16 x 16 x 32, columns split over  128      simdgroup matrices from where llama.cpp takes
//                  4 simdgroups                               them (ne11_mm_min = 8, same file); each weight
//                                                             is still read once
//   many     17+   64 x 64 x 32, padded by 16 bytes  128      MLX, matmul.cpp: 64 x 64 by 2 x 2 simdgroups in
//                                                             fp32; llama.cpp's mul_mm: 64 weight rows,
//                                                             NK = 32; padding as MLX's loader
//   some     2+    16 x 4; 2 weight rows a           128      for invariant: each row has the bits of `one`.
//                  simdgroup                                  Eight rows leave fewer threads
//   tiled    2+    64 x 64 x 16, 4 x 4 a thread      256      vllm-apple's tiled kernel. For exact: fp32
//                                                             multiply-adds in a known order; how a simdgroup
//                                                             matrix rounds inside is not documented
//
// few and many have two kinds: weights staged as half for F16 and every quantised format (11 bits hold d * q
// to 2^-12), as float for BF16 and F32, whose range half lacks.
#include "gemm/metal/product_choice.h"
#include "base/divide.h"

// Kernels index blocks with 32 bits: in shorts, blocks of MXFP4, which have an odd number of bytes, in bytes.
#define MAX_BYTES ((uint64_t)1 << 32)

enum { LARGE_N = 32768, HEAD_ROW_BYTES = 16384, ANY_ROWS = INT32_MAX };

static bool half_is_enough(const struct product_plan *product)
{
    for (uint32_t i = 0; i < 3; i++) {
        enum quant q = product->w[i] ? product->w[i]->format : QUANT_F16;
        if (q == QUANT_F32 || q == QUANT_BF16)
            return false;
    }
    return true;
}

// Tiles of `size` pairs; no tile covers two matrices.
static uint32_t n_tiles(const struct product_plan *product, uint32_t size)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < (product->mode >= PRODUCT_ROPE ? 3u : 1u); i++)
        n += divide_up(product_pairs(product->mode, product->w[i]->n_rows), size);
    return n;
}

struct product_case {
    const struct product_plan *product;
    uint32_t rows, n_cols;
    bool invariant;
};

static bool has_odd_width(const struct product_case *c)
{
    return c->n_cols % 8 != 0;
}
static bool reads_parts(const struct product_case *c)
{
    return c->product->parts;
}
static bool is_head(const struct product_case *c)
{
    return c->product->mode == PRODUCT_PLAIN && c->product->w[0]->n_rows >= LARGE_N &&
           c->n_cols * 4 <= HEAD_ROW_BYTES;
}
static bool is_invariant(const struct product_case *c)
{
    return c->invariant;
}
static bool is_exact(const struct product_case *c)
{
    return c->product->exact;
}
static bool takes_half(const struct product_case *c)
{
    return half_is_enough(c->product);
}

// The first rule that fits is taken. The last numbers: a tile's pairs of weight rows and, where the grid has
// tiles of rows too, its rows.
static const struct product_rule {
    enum product_variant variant;
    uint32_t min_rows, max_rows;
    bool (*when)(const struct product_case *c); // NULL: always
    uint32_t pairs, tile_rows, threads;
    bool stages; // the row in threadgroup memory
} rules[] = {
    { PRODUCT_VARIANT_PLAIN, 1, ANY_ROWS, has_odd_width, PLAIN_SIDE, PLAIN_SIDE, PLAIN_SIDE *PLAIN_SIDE,
      false },
    { PRODUCT_VARIANT_PARTS, 1, 1, reads_parts, PARTS_PAIRS, 0, PARTS_THREADS, true },
    { PRODUCT_VARIANT_HEAD, 1, 1, is_head, HEAD_PAIRS, 0, HEAD_THREADS, true },
    { PRODUCT_VARIANT_ONE, 1, 1, NULL, ROWS_PAIRS, 0, 128, false },
    { PRODUCT_VARIANT_SOME, 2, ANY_ROWS, is_invariant, ROWS_PAIRS, SOME_ROWS, 128, false },
    { PRODUCT_VARIANT_TILED, 2, ANY_ROWS, is_exact, TILE_PAIRS, TILE_ROWS, 256, false },
    { PRODUCT_VARIANT_FEW_HALF, 2, FEW_ROWS, takes_half, ROWS_PAIRS, 0, 128, false },
    { PRODUCT_VARIANT_FEW_FLOAT, 2, FEW_ROWS, NULL, ROWS_PAIRS, 0, 128, false },
    { PRODUCT_VARIANT_MANY_HALF, FEW_ROWS + 1, ANY_ROWS, takes_half, TILE_PAIRS, TILE_ROWS, 128, false },
    { PRODUCT_VARIANT_MANY_FLOAT, FEW_ROWS + 1, ANY_ROWS, NULL, TILE_PAIRS, TILE_ROWS, 128, false },
};

static const struct product_rule *rule_of(const struct product_plan *product, uint32_t rows, bool invariant)
{
    struct product_case c = { product, rows, product->w[0]->n_cols, invariant };

    for (uint32_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rows >= rules[i].min_rows && rows <= rules[i].max_rows && (!rules[i].when || rules[i].when(&c)))
            return &rules[i];
    CHECK(!"the last rules take every product");
    return NULL;
}

bool product_takes_parts(const struct weight *w)
{
    return w->n_cols * 4 <= HEAD_ROW_BYTES && w->n_rows < LARGE_N;
}

bool product_weight_fits(struct metal_plan *p, const struct weight *w)
{
    uint64_t most = w->format == QUANT_MXFP4 ? MAX_BYTES : 2 * MAX_BYTES;

    return w->format <= QUANT_BF16 || w->bytes <= most ||
           err_set(&p->error, ERR_UNSUPPORTED,
                   "a matrix of %llu bytes in %s; Metal kernels take at most %llu",
                   (unsigned long long)w->bytes, quant_info(w->format)->name, (unsigned long long)most);
}

void product_launch(struct metal_plan *p, const struct product_plan *product)
{
    struct product_args args = product->args;
    uint32_t rows = args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    const struct product_rule *rule = rule_of(product, rows, p->tape.invariant);
    uint32_t tiles = n_tiles(product, rule->pairs),
             row_tiles = rule->tile_rows ? divide_up(rows, rule->tile_rows) : 0;
    struct metal_kernel kernel = { .name = product->kernels[rule->variant],
                                   .n_constants = PRODUCT_N_CONSTANTS,
                                   .grid = { row_tiles ? row_tiles : tiles, row_tiles ? tiles : 1, 1 },
                                   .threads = rule->threads,
                                   .shared = rule->stages ? product->w[0]->n_cols * 4 : 0 };

    kernel.constants[PRODUCT_C_MODE] = product->mode;
    kernel.constants[PRODUCT_C_BIAS] = product->bias;
    kernel.constants[PRODUCT_C_ADD] = product->add;
    args.n_cols = product->w[0]->n_cols;
    for (uint32_t i = 0; i < 3; i++) {
        const struct weight *w = product->w[i] ? product->w[i] : product->w[0];
        if (!product_weight_fits(p, w))
            return;
        kernel.constants[PRODUCT_C_FORMAT + i] = w->format;
        args.n_out[i] = w->n_rows;
        args.row_bytes[i] = (uint32_t)(w->bytes / w->n_rows);
    }
    metal_launch_add(p, &kernel, &args, sizeof args);
}
