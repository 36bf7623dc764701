// product.h - what matmul, qkv and gate_up share: rows of activations times panels of weights, in tiles of 32
// outputs and a few rows.
//
// A set of kernels (struct product_kernels) belongs to one kind of CPU and works on the panels of panel.h.
// Activations have four packings: fp32 (exact products and F32, F16 weights), bf16 pairs (BF16 weights), and
// int8 in blocks as long as the weights': 32 with a scale each, or 256 (K-quants, IQ4_XS). A packed row does
// not depend on other rows, so a step's rows may be split into tiles in any way.
//
// The bits are the same for any number of rows: sums inside 32 (or 16) columns are exact integers; each
// output then takes one chain of fp32 operations over its blocks, in ascending order, in whatever tile it is.
#pragma once
#include "device/cpu/cpu.h"
#include "gemm/cpu/int8_rows.h"
#include "gemm/gemm.h"

enum {
    PRODUCT_MAX_ROWS = 32, // of activations in a tile
    PRODUCT_FEW = 6        // with fewer or as many rows each thread packs all of them for itself
};

struct product_tile {
    const unsigned char *w; // a panel, or the file's blocks of its rows
    const unsigned char *x; // the first row, packed for the tile
    size_t x_stride;        // bytes from row to row
    float *y;               // [rows][32]
    uint32_t n_rows, n_cols;
    uint32_t n_w_rows; // of w in the file: 32, or fewer at the end of a matrix
    bool scattered;    // see struct weight_product
};
typedef void product_tile_fn(const struct product_tile *t);

struct product_store { // the end of a tile: adds bias and residual, writes the part that lies inside the
                       // matrix
    const float *y;    // [n_rows][32]
    const float *bias; // [n_cols] or NULL
    const float *add;  // [n_rows] rows, add_stride apart, or NULL
    float *out;        // [n_rows] rows
    size_t stride, add_stride;
    uint32_t n_rows, n_cols;
};

// Lays out rows [32 * panel, 32 * panel + 32) of a matrix; `to` has panel_bytes, aligned to 64.
typedef void pack_fn(const struct panel_source *from, uint32_t panel, unsigned char *to);

struct product_kernels {
    product_tile_fn *const *integer[N_WEIGHT_QUANTS]; // [rows], product_integer_packing; NULL: no such kernel
    // Panels as `expand` lays them out; NULL: used as they are.
    product_tile_fn *const *wide[N_WEIGHT_QUANTS];
    product_tile_fn *const *exact[N_WEIGHT_QUANTS]; // [rows], PACKING_F32
    product_tile_fn *const *bf16;                   // [rows], PACKING_BF16, or NULL
    uint32_t integer_rows, exact_rows, bf16_rows;   // the widest tile of each
    uint32_t wide_rows[N_PACKINGS];                 // and of wide
    pack_fn *pack;
    // Expands a panel into the layout of panel_wide.
    void (*expand)(enum quant q, const unsigned char *panel, uint32_t n_cols, unsigned char *out);
    void (*quantise)(const float *x, uint32_t n, void *out); // to PACKING_INT8
    void (*quantise_super)(const float *x, uint32_t n, struct product_super *out);
    void (*round)(const float *x, uint32_t n, uint16_t *out); // to bf16, padded with 0 to an even number
    void (*store)(const struct product_store *s);
    // [rows], up to file_rows: of weights as they lie in the file; NULL: they are packed.
    product_tile_fn *const *const *file;
    uint32_t file_rows;
};
extern product_tile_fn *const *const product_file_tiles[N_WEIGHT_QUANTS]; // for .file on x86
extern pack_fn pack_avx512, pack_avx2, pack_neon;                         // for .pack
extern const struct product_kernels product_amx, product_avx512, product_avx512_bf16, product_avx2,
    product_avx_vnni, product_neon, product_sdot, product_smmla;
const struct product_kernels *product_kernels_of(uint32_t features); // the set for this CPU, or NULL

struct tile_range {
    uint32_t first, last;
};

// One weight and the rows that it multiplies.
struct weight_product {
    const struct product_kernels *kernels;
    const struct weight *w;
    product_tile_fn *const *tiles;
    const unsigned char *x; // packed rows, or NULL until product_rows sets them
    size_t x_stride;
    uint32_t max_rows, next_panel; // of a tile; so many panels on lies the one that is used next
    enum packing packing;
    bool scattered; // panels are used in another order than they lie in memory, as experts' are
};
void product_init(struct weight_product *p, const struct product_kernels *kernels, const struct weight *w,
                  bool exact);
static inline enum packing product_integer_packing(enum quant q)
{
    return panel_shapes[q].columns == PANEL_SUPER ? PACKING_INT8_SUPER : PACKING_INT8;
}
size_t product_packed_bytes(enum packing packing, uint32_t n_cols); // of one row, in whole cache lines
// Packs one fp32 row; PACKING_F32 copies.
void product_prepare(const struct product_kernels *kernels, enum packing packing, const float *x,
                     uint32_t n_cols, void *out);

// A normalised row and its packings for several weights, one after the other: the input of qkv and gate_up.
struct product_packings {
    size_t at[N_PACKINGS], bytes; // the fp32 row comes first; 0 for the others: not needed
};
struct product_packings product_packings_of(const struct weight_product *products, uint32_t n,
                                            uint32_t n_cols);
struct product_norm {
    void (*rmsnorm)(const float *in, const float *scale, float *out, uint32_t n_cols, float eps);
    const float *scale;
    uint32_t n_cols;
    float eps;
};
void product_normalise(const struct product_kernels *kernels, const struct product_packings *packings,
                       const struct product_norm *norm, const float *in, unsigned char *out);

// A panel's bytes: in the weight, or packed now into scratch where the weight lies as in the file; for few
// rows the file's own, where there are tiles for them. One of a K-quant that serves more than a few tiles is
// expanded once, with the same bits (measured: bench/results/2026-11-22-cpu-kernel-choices.md).
struct product_panel {
    const unsigned char *w, *next; // next: used after an expanded one, or NULL
    product_tile_fn *const *tiles;
    uint32_t max_rows;   // of a tile
    uint32_t n_w_rows;   // see struct product_tile
    uint32_t next_bytes; // of next, fetched for each row
};
struct product_panel product_panel(const struct weight_product *p, uint32_t panel, uint32_t n_rows,
                                   void *scratch);
size_t product_scratch_bytes(const struct weight_product *p);
void product_run(const struct weight_product *p, struct product_panel *w, struct tile_range rows, float *y);

// Prefetches the lines that a tile will write while it computes.
static inline void product_expect(const float *out, size_t stride, uint32_t n_rows)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        __builtin_prefetch(out + r * stride, 1);
        __builtin_prefetch(out + r * stride + 16, 1);
    }
}

// Splits rows into blocks that stay in the cache while panels stream by, and blocks evenly into tiles.
struct product_split {
    uint32_t n_rows, n_blocks;
};
struct product_split product_split(uint32_t n_rows, size_t row_bytes);
static inline uint32_t product_block_first(const struct product_split *s, uint32_t block)
{
    return (uint32_t)((uint64_t)s->n_rows * block / s->n_blocks);
}
// The number of rows of the next tile of the rows [at, end): all tiles get about as many. Where a tile may
// have 16 and more, it gets a multiple of four: AVX2's are computed by four rows at a time.
static inline uint32_t product_tile_rows(uint32_t at, uint32_t end, uint32_t max_rows)
{
    uint32_t n = end - at, n_tiles = (n + max_rows - 1) / max_rows, even = (n + n_tiles - 1) / n_tiles;
    return max_rows < 16 || n_tiles == 1 ? even : (even + 3) / 4 * 4;
}
