// product.c - see product.h: chooses packings and tiles, and splits rows. The kernels are in tile_*.c.
#include "gemm/cpu/product.h"
#include "gemm/cpu/product_sets.h"

// Rows of a block of the split: more than L2 holds, since rows arrive from L3 in time, and panels are read
// and expanded less often.
enum { ROWS_CACHE_BYTES = 6000 << 10 };
enum { EXPAND_TILES = 3 }; // from this number of tiles on, expanding a panel pays

const struct product_kernels *product_kernels_of(uint32_t features)
{
#define CHOOSE(needs, set, vector, unused)      \
    if ((((uint32_t)(needs)) & ~features) == 0) \
        return &product_##set;
    PRODUCT_SETS(CHOOSE, )
#undef CHOOSE
    return NULL;
}

void product_init(struct weight_product *p, const struct product_kernels *kernels, const struct weight *w,
                  bool exact)
{
    *p = (struct weight_product){ .kernels = kernels, .w = w, .packing = PACKING_F32, .next_panel = 1 };
    if (!exact && w->format == QUANT_BF16 && kernels->bf16)
        p->packing = PACKING_BF16;
    if (!exact && kernels->integer[w->format])
        p->packing = product_integer_packing(w->format);
    p->tiles = p->packing == PACKING_F32    ? kernels->exact[w->format]
               : p->packing == PACKING_BF16 ? kernels->bf16
                                            : kernels->integer[w->format];
    p->max_rows = p->packing == PACKING_F32    ? kernels->exact_rows
                  : p->packing == PACKING_BF16 ? kernels->bf16_rows
                                               : kernels->integer_rows;
    CHECK(w->layout == LAYOUT_FILE || w->layout == LAYOUT_PANELS);
}

static size_t row_bytes(enum packing packing, uint32_t n_cols)
{
    if (packing == PACKING_INT8)
        return n_cols + n_cols / PANEL_SUB * (size_t)(2 * sizeof(float) + sizeof(int32_t));
    if (packing == PACKING_INT8_SUPER)
        return n_cols / PANEL_SUPER * sizeof(struct product_super);
    return packing == PACKING_BF16 ? (size_t)(n_cols + n_cols % 2) * 2 : (size_t)n_cols * 4;
}

size_t product_packed_bytes(enum packing packing, uint32_t n_cols)
{
    return (row_bytes(packing, n_cols) + 63) / 64 * 64;
}

void product_prepare(const struct product_kernels *kernels, enum packing packing, const float *x,
                     uint32_t n_cols, void *out)
{
    if (packing == PACKING_INT8)
        kernels->quantise(x, n_cols, out);
    else if (packing == PACKING_INT8_SUPER)
        kernels->quantise_super(x, n_cols, out);
    else if (packing == PACKING_BF16)
        kernels->round(x, n_cols, out);
    else
        memcpy(out, x, (size_t)n_cols * 4);
}

struct product_packings product_packings_of(const struct weight_product *products, uint32_t n,
                                            uint32_t n_cols)
{
    struct product_packings f = { .bytes = product_packed_bytes(PACKING_F32, n_cols) };

    for (uint32_t i = 0; i < n; i++) {
        enum packing packing = products[i].packing;
        if (packing == PACKING_F32 || f.at[packing])
            continue;
        f.at[packing] = f.bytes;
        f.bytes += product_packed_bytes(packing, n_cols);
    }
    return f;
}

void product_normalise(const struct product_kernels *kernels, const struct product_packings *packings,
                       const struct product_norm *norm, const float *in, unsigned char *out)
{
    norm->rmsnorm(in, norm->scale, (float *)out, norm->n_cols, norm->eps);
    for (enum packing packing = 0; packing < N_PACKINGS; packing++)
        if (packings->at[packing])
            product_prepare(kernels, packing, (const float *)out, norm->n_cols, out + packings->at[packing]);
}

static size_t packed_bytes(const struct weight *w)
{
    return w->layout == LAYOUT_PANELS ? 0 : (panel_bytes(w->format, w->n_cols) + 63) / 64 * 64;
}

static product_tile_fn *const *wide_tiles(const struct weight_product *p)
{
    return p->packing == PACKING_INT8 || p->packing == PACKING_INT8_SUPER ? p->kernels->wide[p->w->format]
                                                                          : NULL;
}

size_t product_scratch_bytes(const struct weight_product *p)
{
    struct panel_shape wide = panel_wide(p->w->format);
    size_t block_bytes = wide.header_bytes + wide.columns / PANEL_SUB * wide.sub_bytes;
    return packed_bytes(p->w) + (wide_tiles(p) ? p->w->n_cols / wide.columns * block_bytes : 0);
}

// Few rows, and tiles for the weight as it lies in the file.
static bool reads_file(const struct weight_product *p, uint32_t n_rows)
{
    return p->w->layout != LAYOUT_PANELS && n_rows <= p->kernels->file_rows &&
           p->kernels->file[p->w->format] &&
           (p->packing == PACKING_F32) ==
               (p->w->format == QUANT_F32); // else fp32 is multiplied by decoded integers
}

struct product_panel product_panel(const struct weight_product *p, uint32_t panel, uint32_t n_rows,
                                   void *scratch)
{
    const struct weight *w = p->w;
    struct product_panel result = { .w = (const unsigned char *)w->buffer.host +
                                         panel * panel_bytes(w->format, w->n_cols),
                                    .tiles = p->tiles,
                                    .max_rows = p->max_rows,
                                    .n_w_rows = PANEL_ROWS };
    unsigned char *wide = (unsigned char *)scratch + packed_bytes(w);

    if (reads_file(p, n_rows)) {
        uint32_t first = panel * PANEL_ROWS, left = w->n_rows - first;
        return (struct product_panel){ .w = (const unsigned char *)w->buffer.host +
                                            first * quant_row_bytes(w->format, w->n_cols),
                                       .tiles = p->kernels->file[w->format],
                                       .max_rows = p->kernels->file_rows,
                                       .n_w_rows = left < PANEL_ROWS ? left : PANEL_ROWS };
    }
    if (w->layout != LAYOUT_PANELS) {
        p->kernels->pack(&(struct panel_source){ w->buffer.host, w->n_rows, w->n_cols, w->format }, panel,
                         scratch);
        result.w = scratch;
    }
    if (n_rows > EXPAND_TILES * p->max_rows && wide_tiles(p)) {
        uint64_t bytes = panel_bytes(w->format, w->n_cols);
        bool more = w->layout == LAYOUT_PANELS && panel + p->next_panel < panel_count(w->n_rows);
        p->kernels->expand(w->format, result.w, w->n_cols, wide);
        result = (struct product_panel){ .w = wide,
                                         .tiles = wide_tiles(p),
                                         .max_rows = p->kernels->wide_rows[p->packing],
                                         .n_w_rows = PANEL_ROWS,
                                         .next = more ? result.w + p->next_panel * bytes : NULL,
                                         .next_bytes = (uint32_t)(bytes / n_rows) };
    }
    return result;
}

// Tiles leave memory idle: meanwhile a part of the next panel goes to the second cache.
static void fetch_next(struct product_panel *panel, uint32_t n_rows)
{
    const unsigned char *end = panel->next + n_rows * panel->next_bytes;

    for (const unsigned char *at = panel->next; at < end; at += 64)
        __builtin_prefetch(at, 0, 2);
    panel->next = end;
}

void product_run(const struct weight_product *p, struct product_panel *panel, struct tile_range rows,
                 float *y)
{
    if (panel->next)
        fetch_next(panel, rows.last - rows.first);
    panel->tiles[rows.last - rows.first](&(struct product_tile){ .w = panel->w,
                                                                 .x = p->x + rows.first * p->x_stride,
                                                                 .x_stride = p->x_stride,
                                                                 .y = y,
                                                                 .n_rows = rows.last - rows.first,
                                                                 .n_cols = p->w->n_cols,
                                                                 .n_w_rows = panel->n_w_rows,
                                                                 .scattered = p->scattered });
}

struct product_split product_split(uint32_t n_rows, size_t row_bytes)
{
    uint64_t n_blocks = (n_rows * (uint64_t)row_bytes + ROWS_CACHE_BYTES - 1) / ROWS_CACHE_BYTES;
    return (struct product_split){ n_rows, n_blocks < 1        ? 1
                                           : n_blocks > n_rows ? n_rows
                                                               : (uint32_t)n_blocks };
}
