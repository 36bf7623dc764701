// test_tile_amx.c - the tiles for AMX give the same bits as those for AVX-512, on any processor that has the
// latter: the few instructions of AMX that they use are played here, as the manual describes them (Intel SDM
// volume 2, LDTILECFG, TILELOADD, TDPBSSD, TILESTORED). Whether the hardware does the same is what
// test_matmul shows on a machine that has it.
#include "op_harness.h"
#include "gemm/cpu/tile_amx.h"
#if defined(CPU_X86)
#include <immintrin.h>

enum { N_TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static struct tile_config configured;
static _Alignas(64) uint8_t tiles[N_TILES][TILE_ROWS][TILE_BYTES];

static void load_config(const void *p)
{
    memcpy(&configured, p, sizeof configured);
    assert_int_equal(configured.palette, 1);
    for (int i = 0; i < N_TILES; i++) {
        // the six in use have rows, and columns in whole words
        assert_in_range(configured.rows[i], i < 6, TILE_ROWS);
        assert_in_range(configured.row_bytes[i], i < 6 ? 4 : 0, TILE_BYTES);
        assert_int_equal(configured.row_bytes[i] % 4, 0);
    }
    memset(tiles, 0, sizeof tiles);
}

static void load_tile(int to, const unsigned char *p, size_t stride)
{
    memset(tiles[to], 0, sizeof tiles[to]);
    for (int r = 0; r < configured.rows[to]; r++)
        memcpy(tiles[to][r], p + (size_t)r * stride, configured.row_bytes[to]);
}

static void store_tile(int from, unsigned char *p, size_t stride)
{
    for (int r = 0; r < configured.rows[from]; r++)
        memcpy(p + (size_t)r * stride, tiles[from][r], configured.row_bytes[from]);
}

static int32_t word(int tile, int row, int column)
{
    int32_t v;
    memcpy(&v, tiles[tile][row] + 4 * column, 4);
    return v;
}

static int32_t dot_of_4(int a, int row, int b, int column, int k)
{
    int32_t sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (int8_t)tiles[a][row][4 * k + i] * (int8_t)tiles[b][k][4 * column + i];
    return sum;
}

static void multiply_tiles(int to, int a, int b)
{
    assert_int_equal(configured.rows[a], configured.rows[to]);
    assert_int_equal(configured.row_bytes[b], configured.row_bytes[to]);
    assert_int_equal(configured.rows[b], configured.row_bytes[a] / 4);
    for (int row = 0; row < configured.rows[to]; row++)
        for (int column = 0; column < configured.row_bytes[to] / 4; column++) {
            int32_t sum = word(to, row, column);
            for (int k = 0; k < configured.rows[b]; k++)
                sum += dot_of_4(a, row, b, column, k);
            memcpy(tiles[to][row] + 4 * column, &sum, 4);
        }
}

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_release
#define _tile_loadconfig(p)           load_config(p)
#define _tile_loadd(to, p, stride)    load_tile(to, (const unsigned char *)(p), (size_t)(stride))
#define _tile_stored(from, p, stride) store_tile(from, (unsigned char *)(p), (size_t)(stride))
#define _tile_zero(i)                 memset(tiles[i], 0, sizeof tiles[i])
#define _tile_dpbssd(to, a, b)        multiply_tiles(to, a, b)
#define _tile_release()               memset(tiles, 0xee, sizeof tiles)
#define amx_tiles                     played_tiles
#include "gemm/cpu/tile_amx.c"
#undef amx_tiles

enum { MAX_COLS = 18 * PANEL_SUB, OUTSIDE = 0x5a };

struct panels { // of 32 rows: as in memory, and for the tiles
    unsigned char *packed, *expanded;
};

static struct panels random_panels(enum quant q, uint32_t n_cols)
{
    const struct quant_info *info = quant_info(q);
    const struct panel_shape s = panel_wide(q);
    const size_t bytes = (size_t)PANEL_ROWS * n_cols / info->block_elements * info->block_bytes;
    unsigned char *blocks = mem_alloc(bytes);
    struct panels p = { mem_alloc_aligned(panel_bytes(q, n_cols), 64),
                        mem_alloc_aligned((size_t)n_cols / PANEL_SUB * (s.header_bytes + s.sub_bytes), 64) };

    for (size_t i = 0; i < bytes; i += info->block_bytes)
        bench_block(q, blocks + i);
    product_amx.pack(&(struct panel_source){ blocks, PANEL_ROWS, n_cols, q }, 0, p.packed);
    product_amx.expand(q, p.packed, n_cols, p.expanded);
    mem_free(blocks);
    return p;
}

static unsigned char *random_rows(uint32_t n_rows, uint32_t n_cols)
{
    const size_t stride = product_packed_bytes(PACKING_INT8, n_cols);
    unsigned char *x = mem_alloc_aligned(n_rows * stride, 64);
    float row[MAX_COLS];

    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t c = 0; c < n_cols; c++)
            row[c] = bench_normal();
        product_amx.quantise(row, n_cols, x + r * stride);
    }
    return x;
}

static void expect_row(enum quant q, const struct product_tile *one, const float *got)
{
    _Alignas(64) float want[PANEL_ROWS];
    struct product_tile t = *one;

    t.y = want;
    product_avx512.integer[q][1](&t);
    if (memcmp(want, got, sizeof want) != 0)
        fail_msg("%s, %u columns: other bits than one row has", quant_info(q)->name, t.n_cols);
}

static void compare(enum quant q, uint32_t n_cols, uint32_t n_rows)
{
    _Alignas(64) float got[(PRODUCT_MAX_ROWS + 1) * PANEL_ROWS];
    struct panels p = random_panels(q, n_cols);
    unsigned char *x = random_rows(n_rows, n_cols);
    struct product_tile t = { p.expanded, x,      product_packed_bytes(PACKING_INT8, n_cols),
                              got,        n_rows, n_cols,
                              PANEL_ROWS, false };

    memset(got, OUTSIDE, sizeof got);
    played_tiles[n_rows](&t);
    for (uint32_t r = 0; r < n_rows; r++)
        expect_row(q,
                   &(struct product_tile){ p.packed, t.x + r * t.x_stride, t.x_stride, NULL, 1, n_cols,
                                           PANEL_ROWS, false },
                   got + r * PANEL_ROWS);
    for (size_t i = n_rows * PANEL_ROWS * sizeof *got; i < sizeof got; i++)
        assert_int_equal(((unsigned char *)got)[i], OUTSIDE);
    mem_free_aligned(p.packed);
    mem_free_aligned(p.expanded);
    mem_free_aligned(x);
}

// Rows [0, n_rows) by at most `most` at a time.
static void compare_product(const struct product_kernels *kernels, uint32_t n_rows, uint32_t most)
{
    enum { COLS = 96 };
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    struct panels panels = random_panels(QUANT_Q8_0, COLS);
    struct weight w = { .format = QUANT_Q8_0, .n_rows = PANEL_ROWS, .n_cols = COLS, .layout = LAYOUT_PANELS };
    unsigned char *x = random_rows(n_rows, COLS);
    struct weight_product p;

    w.buffer.host = panels.packed;
    product_init(&p, kernels, &w, false);
    p.x = x;
    p.x_stride = product_packed_bytes(PACKING_INT8, COLS);
    void *scratch = mem_alloc_aligned(product_scratch_bytes(&p), 64);
    struct product_panel panel = product_panel(&p, 0, n_rows, scratch);
    for (uint32_t row = 0, n; row < n_rows; row += n) {
        n = product_tile_rows(row, n_rows, most < panel.max_rows ? most : panel.max_rows);
        product_run(&p, &panel, (struct tile_range){ row, row + n }, y);
        for (uint32_t r = 0; r < n; r++)
            expect_row(QUANT_Q8_0,
                       &(struct product_tile){ panels.packed, p.x + (row + r) * p.x_stride, p.x_stride, NULL,
                                               1, COLS, PANEL_ROWS, false },
                       y + r * PANEL_ROWS);
    }
    mem_free_aligned(scratch);
    mem_free_aligned(panels.packed);
    mem_free_aligned(panels.expanded);
    mem_free_aligned(x);
}

static bool processor_can(void)
{
    const uint32_t needs = CPU_AVX512 | CPU_AVX512_VNNI;
    return (cpu_features() & needs) == needs;
}

static void tiles_of_any_size_give_the_bits_of_one_row(void **state)
{
    static const uint32_t n_blocks[] = { 1, 2, 3, 8, 9, 18 };
    uint32_t n_formats = 0;

    (void)state;
    if (!processor_can())
        skip();
    for (enum quant q = QUANT_Q4_0; q < N_WEIGHT_QUANTS; q++) {
        if (product_amx.wide[q] != amx_tiles)
            continue;
        n_formats++;
        for (uint32_t i = 0; i < sizeof n_blocks / sizeof *n_blocks; i++)
            for (uint32_t n_rows = 1; n_rows <= AMX_ROWS; n_rows++)
                compare(q, PANEL_SUB * n_blocks[i], n_rows);
    }
    assert_int_equal(n_formats, 5);
}

// As gate_up asks for them where the other weight's tiles are of another size.
static void a_product_takes_any_number_of_rows(void **state)
{
    struct product_kernels kernels = product_amx;

    (void)state;
    if (!processor_can())
        skip();
    kernels.wide[QUANT_Q8_0] = played_tiles;
    for (uint32_t n_rows = 1; n_rows < 100; n_rows += 1 + n_rows / 16)
        for (uint32_t most = 12; most <= PRODUCT_MAX_ROWS; most += 20)
            compare_product(&kernels, n_rows, most);
}
#else
static void tiles_of_any_size_give_the_bits_of_one_row(void **state)
{
    (void)state;
    skip();
}

static void a_product_takes_any_number_of_rows(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tiles_of_any_size_give_the_bits_of_one_row),
                                        cmocka_unit_test(a_product_takes_any_number_of_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
