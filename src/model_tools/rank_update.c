// rank_update.c - see rank_update.h. Threads take squares of C; tiles of a square go through registers, so
// that the squares' panels of P are read from the cache and C once.
#include "model_tools/rank_update.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "device/cpu/cpu.h"
#if defined(CPU_X86)
#include <immintrin.h>
#endif

enum { WIDTH = RANK_UPDATE_WIDTH, SQUARE = 4 }; // panels

// tile[i][j] += a[.][i] b[.][j], over k rows.
typedef void tile_fn(double tile[WIDTH][WIDTH], const double *a, const double *b, uint32_t k);

struct update_work {
    const struct rank_update *u;
    tile_fn *tile;
    atomic_uint next; // square
};

static void tile_plain(double tile[WIDTH][WIDTH], const double *a, const double *b, uint32_t k)
{
    for (uint32_t r = 0; r < k; r++, a += WIDTH, b += WIDTH)
        for (uint32_t i = 0; i < WIDTH; i++)
            for (uint32_t j = 0; j < WIDTH; j++)
                tile[i][j] = fma(a[i], b[j], tile[i][j]);
}

#if defined(CPU_X86)
#define SIMD_AVX2   TARGET("avx2,fma")
#define SIMD_AVX512 TARGET("avx512f")
// The tile in parts of `rows` and of three vectors, which stay in registers.
#define TILE_BODY(vector, lanes, rows, load, store, spread, add_product)                         \
    for (uint32_t i = 0; i < WIDTH; i += (rows))                                                 \
        for (uint32_t j = 0; j < WIDTH; j += 3 * (lanes)) {                                      \
            vector sums[rows][3];                                                                \
            for (uint32_t x = 0; x < (rows); x++)                                                \
                for (uint32_t y = 0; y < 3; y++)                                                 \
                    sums[x][y] = load(&tile[i + x][j + y * (lanes)]);                            \
            for (uint32_t r = 0; r < k; r++) {                                                   \
                const double *right = b + r * WIDTH + j;                                         \
                vector v[3] = { load(right), load(right + (lanes)), load(right + 2 * (lanes)) }; \
                for (uint32_t x = 0; x < (rows); x++) {                                          \
                    vector left = spread(a[r * WIDTH + i + x]);                                  \
                    for (uint32_t y = 0; y < 3; y++)                                             \
                        sums[x][y] = add_product(left, v[y], sums[x][y]);                        \
                }                                                                                \
            }                                                                                    \
            for (uint32_t x = 0; x < (rows); x++)                                                \
                for (uint32_t y = 0; y < 3; y++)                                                 \
                    store(&tile[i + x][j + y * (lanes)], sums[x][y]);                            \
        }

SIMD_AVX2 static void tile_avx2(double tile[WIDTH][WIDTH], const double *a, const double *b, uint32_t k)
{
    TILE_BODY(__m256d, 4, 4, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd);
}

SIMD_AVX512 static void tile_avx512(double tile[WIDTH][WIDTH], const double *a, const double *b, uint32_t k)
{
    TILE_BODY(__m512d, 8, 8, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd);
}
#endif

static tile_fn *best_tile(void)
{
#if defined(CPU_X86)
    if (cpu_features() & CPU_AVX512)
        return tile_avx512;
    if (cpu_features() & CPU_AVX2)
        return tile_avx2;
#endif
    return tile_plain;
}

static double *row_of(const struct rank_update *u, size_t i)
{
    return u->c + (u->stride ? i * u->stride : i * (i + 1) / 2);
}

// The columns of row i of C in a panel: up to the diagonal.
static uint32_t n_in_row(uint32_t i, uint32_t panel)
{
    return i - panel * WIDTH < WIDTH ? i - panel * WIDTH + 1 : WIDTH;
}

static void update_tile(const struct update_work *w, uint32_t down, uint32_t across)
{
    const struct rank_update *u = w->u;
    const size_t panel = (size_t)u->k * WIDTH;
    const uint32_t first = down * WIDTH, n = u->n - first < WIDTH ? u->n - first : WIDTH;
    double tile[WIDTH][WIDTH] = { 0 };

    for (uint32_t i = 0; i < n; i++) {
        const double *row = row_of(u, first + i) + across * WIDTH;
        for (uint32_t j = 0; j < n_in_row(first + i, across); j++)
            tile[i][j] = u->sign * row[j];
    }
    w->tile(tile, u->p + down * panel, u->p + across * panel, u->k);
    for (uint32_t i = 0; i < n; i++) {
        double *row = row_of(u, first + i) + across * WIDTH;
        for (uint32_t j = 0; j < n_in_row(first + i, across); j++)
            row[j] = u->sign * tile[i][j];
    }
}

static void update_squares(void *arg, unsigned thread)
{
    struct update_work *w = arg;
    const uint32_t n = rank_update_panels(w->u->n), side = (n + SQUARE - 1) / SQUARE;

    (void)thread;
    for (uint32_t at;
         (at = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < side * (side + 1) / 2;) {
        uint32_t row = 0;
        for (; at > row; row++)
            at -= row + 1;
        for (uint32_t across = at * SQUARE; across < (at + 1) * SQUARE; across++)
            for (uint32_t down = row * SQUARE; down < (row + 1) * SQUARE && down < n; down++)
                if (across <= down)
                    update_tile(w, down, across);
    }
}

void rank_update(const struct rank_update *u, struct thread_pool *pool)
{
    struct update_work w = { .u = u, .tile = best_tile() };

    thread_pool_run(pool, update_squares, &w);
}
