// tile_amx.c - product kernels for many rows on CPUs with AMX, for formats with one scale for 32 columns and
// no minimums.
//
// A line of a panel is what the hardware reads as 4 columns of 16 weight rows, and an activation row's bytes
// are the other operand, so nothing is rearranged. Rows whose blocks cross cache lines would load slowly: a
// block's 32 bytes lie in one (struct product_block). The sums of a block are exact integers. They leave
// through L1, since a tile cannot be scaled, and then take the same operations as in tile_avx512.c: the same
// bits. Blocks are multiplied four ahead of the one that is scaled, so that the tiles work beside the vector
// pipes. Formats with minimums or a scale for each 16 columns gain nothing and have no such
// tiles.
//
// Speed and cycles: bench/results/2026-11-22-cpu-kernel-choices.md, 2026-11-28-cpu-threads.md. Four products
// of 32 rows with both halves of a panel are slower: their sums take 16 KiB.
//
// BF16 has no such tiles: TDPBF16PS adds in another order than VDPBF16PS, which serves few rows.
#include "gemm/cpu/tile_amx.h"
#if defined(CPU_X86)
#include <immintrin.h>

#define SIMD   TARGET("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8")
#define INLINE static inline __attribute__((always_inline)) SIMD
#define UNROLL _Pragma("GCC unroll 16")

// GCC 12 does not know that loading tiles and their configuration reads memory.
#define WRITTEN_FOR_TILES __asm__ volatile("" ::: "memory")

// Hides a pointer from the compiler, so that row addresses are counted from it: the compiler would keep an
// address for each row, in vector registers.
#define COUNTED_FROM(p) __asm__("" : "+r"(p))

enum { LANES = 16, SIDE = 16, W_BYTES = 64 };
enum { AHEAD = 4, RING = 8 }; // blocks whose sums wait; places for them
enum { SCALES_BYTES = PANEL_LINE, BLOCK_BYTES = SCALES_BYTES + 8 * PANEL_LINE }; // of panel_wide

struct amx_config { // of LDTILECFG
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

typedef int32_t amx_sums[SIDE][LANES];

// 16 rows and half a panel. FEW: there are fewer rows.
struct amx_part {
    const unsigned char *w, *x; // the first block's scales; the first row
    size_t x_stride;
    uint32_t n_rows, n_cols;
};

// Tiles 0, 2 and 4: sums, activations and weights of even blocks; 1, 3 and 5: of odd ones.
INLINE void configure(uint32_t n_rows)
{
    struct amx_config config = { .palette = 1 };

    for (int i = 0; i < 2; i++) {
        config.row_bytes[i] = config.row_bytes[4 + i] = W_BYTES;
        config.rows[i] = config.rows[2 + i] = (uint8_t)n_rows;
        config.row_bytes[2 + i] = PANEL_SUB;
        config.rows[4 + i] = PANEL_SUB / 4;
    }
    WRITTEN_FOR_TILES;
    _tile_loadconfig(&config);
}

INLINE const unsigned char *weights_of(const struct amx_part *p, uint32_t block)
{
    return p->w + (size_t)block * BLOCK_BYTES + SCALES_BYTES;
}

// The sums of a block go to its place in the ring. ODD: the block's number.
INLINE void multiply(const struct amx_part *p, uint32_t block, amx_sums *ring, const bool ODD)
{
    if (block >= p->n_cols / PANEL_SUB)
        return;
    const int8_t *x = product_block(p->x, p->n_cols, block).q;
    if (ODD) {
        _tile_loadd(3, x, p->x_stride);
        _tile_loadd(5, weights_of(p, block), PANEL_LINE);
        _tile_zero(1);
        _tile_dpbssd(1, 3, 5);
        _tile_stored(1, ring[block % RING], W_BYTES);
    } else {
        _tile_loadd(2, x, p->x_stride);
        _tile_loadd(4, weights_of(p, block), PANEL_LINE);
        _tile_zero(0);
        _tile_dpbssd(0, 2, 4);
        _tile_stored(0, ring[block % RING], W_BYTES);
    }
}

// Scales and adds one block's sums, as tile_avx512.c does.
INLINE void add(__m512 *total, const struct amx_part *p, uint32_t block, amx_sums sums, const bool FEW)
{
    const __m512 d = _mm512_load_ps(p->w + (size_t)block * BLOCK_BYTES);
    const unsigned char *x = (const void *)product_block(p->x, p->n_cols, block).scale;

    COUNTED_FROM(x);
    UNROLL for (uint32_t c = 0; c < SIDE; c++) if (!FEW || c < p->n_rows)
    {
        float scale;
        memcpy(&scale, x + c * p->x_stride, sizeof scale);
        total[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[c])),
                                   _mm512_mul_ps(d, _mm512_set1_ps(scale)), total[c]);
    }
}

INLINE void run_part(const struct amx_part *p, float *y, const bool FEW)
{
    const uint32_t n_blocks = p->n_cols / PANEL_SUB;
    _Alignas(64) amx_sums ring[RING];
    __m512 total[SIDE];

    UNROLL for (uint32_t c = 0; c < SIDE; c++) total[c] = _mm512_setzero_ps();
    for (uint32_t block = 0; block < AHEAD; block += 2) {
        multiply(p, block, ring, false);
        multiply(p, block + 1, ring, true);
    }
    for (uint32_t block = 0; block < n_blocks; block += 2) {
        multiply(p, block + AHEAD, ring, false);
        add(total, p, block, ring[block % RING], FEW);
        multiply(p, block + AHEAD + 1, ring, true);
        if (block + 1 < n_blocks)
            add(total, p, block + 1, ring[(block + 1) % RING], FEW);
    }
    UNROLL for (uint32_t c = 0; c < SIDE; c++) if (!FEW || c < p->n_rows)
        _mm512_store_ps(y + c * PANEL_ROWS, total[c]);
}

// 16 rows, or fewer, from `row` on.
INLINE void run_rows(const struct product_tile *t, uint32_t row, const bool FEW)
{
    struct amx_part p = {
        .x = t->x + row * t->x_stride, .x_stride = t->x_stride, .n_rows = t->n_rows, .n_cols = t->n_cols
    };

    for (uint32_t half = 0; half < PANEL_ROWS / LANES; half++) {
        p.w = t->w + half * W_BYTES;
        run_part(&p, t->y + row * PANEL_ROWS + half * LANES, FEW);
    }
}

SIMD static void tile_few(const struct product_tile *t)
{
    configure(t->n_rows);
    run_rows(t, 0, true);
    _tile_release();
}

// The first 16 rows and the last 16, which may overlap.
SIMD static void tile_many(const struct product_tile *t)
{
    configure(SIDE);
    run_rows(t, 0, false);
    if (t->n_rows > SIDE)
        run_rows(t, t->n_rows - SIDE, false);
    _tile_release();
}

product_tile_fn *const amx_tiles[AMX_ROWS + 1] = { [1 ... SIDE - 1] = tile_few,
                                                   [SIDE... AMX_ROWS] = tile_many };
#endif
