// trellis_factor.c - see trellis_factor.h.
//
// The transforms act on blocks of 128 x 128, each by itself, and only the lower triangle counts. Cholesky's
// factor goes forward by 128 columns: the block on the diagonal, by one thread; the rows below it; and their
// products with each other, taken from what lies to the right (rank_update.h), which is nearly all of the
// work. Columns that are done are not read again, so L takes their place at once.
#include "model_tools/trellis/trellis_factor.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "model_tools/rank_update.h"
#include "model_tools/trellis/hadamard.h"
#include "quant/exl3.h"
#include "quant/quant.h"

enum { TILE = EXL3_TILE, BLOCK = EXL3_BLOCK, WIDTH = RANK_UPDATE_WIDTH };

// See finish_rows.
typedef void finish_fn(double (*rows)[WIDTH], double (*block)[BLOCK], double (*done)[WIDTH]);

struct factor {
    const struct trellis_factor_source *source;
    double *l;
    uint32_t n, first;      // columns; of the block
    double (*block)[BLOCK]; // Cholesky's factor of the block on the diagonal
    double *panels;         // the rows below it, as rank_update takes them
    finish_fn *finish;
    atomic_uint next;
};

// Runs work on items 0, 1, ... of f->next.
static void run(struct factor *f, struct thread_pool *pool, void (*work)(void *arg, unsigned thread))
{
    atomic_store(&f->next, 0);
    thread_pool_run(pool, work, f);
}

static bool take(struct factor *f, uint32_t n, uint32_t *item)
{
    return (*item = atomic_fetch_add_explicit(&f->next, 1, memory_order_relaxed)) < n;
}

// ---- transforms

static double moment(const struct trellis_factor_source *s, uint32_t i, uint32_t j)
{
    size_t down = i > j ? i : j, across = i > j ? j : i;

    if (down >= s->cols)
        return 0;
    return s->moments ? s->moments[down * (down + 1) / 2 + across] : i == j;
}

static void transform_block(struct factor *f, uint32_t down, uint32_t across)
{
    const uint16_t *suh = f->source->suh;
    float block[BLOCK][BLOCK];
    double factors[BLOCK];

    for (uint32_t j = 0; j < BLOCK; j++)
        factors[j] = (double)quant_half_to_float(suh[across + j]);
    for (uint32_t i = 0; i < BLOCK; i++) {
        double factor = (double)quant_half_to_float(suh[down + i]);
        for (uint32_t j = 0; j < BLOCK; j++)
            block[i][j] = (float)(moment(f->source, down + i, across + j) * factor * factors[j]);
        hadamard_row(block[i], BLOCK);
    }
    hadamard_columns(block[0], BLOCK, BLOCK, BLOCK);
    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t j = 0; j < BLOCK && across + j <= down + i; j++)
            f->l[(size_t)(down + i) * f->n + across + j] = (double)block[i][j];
}

static void transform_blocks(void *arg, unsigned thread)
{
    struct factor *f = arg;
    const uint32_t side = f->n / BLOCK;

    (void)thread;
    for (uint32_t at; take(f, side * (side + 1) / 2, &at);) {
        uint32_t row = 0;
        for (; at > row; row++)
            at -= row + 1;
        transform_block(f, row * BLOCK, at * BLOCK);
    }
}

// With a fortieth of their mean on the diagonal.
static void raise_diagonal(struct factor *f)
{
    double sum = 0;

    for (uint32_t i = 0; i < f->n; i++)
        sum += f->l[(size_t)i * f->n + i];
    for (uint32_t i = 0; i < f->n; i++)
        f->l[(size_t)i * f->n + i] += sum > 0 ? 0.025 * sum / f->n : 1;
}

// ---- the block on the diagonal

// The diagonal's addition keeps it positive; what rounding leaves at or below zero becomes tiny.
static void factorise_block(double a[BLOCK][BLOCK])
{
    double column[BLOCK];

    for (uint32_t k = 0; k < BLOCK; k++) {
        a[k][k] = sqrt(a[k][k] > 1e-30 ? a[k][k] : 1e-30);
        for (uint32_t i = k + 1; i < BLOCK; i++)
            column[i] = a[i][k] /= a[k][k];
        for (uint32_t i = k + 1; i < BLOCK; i++)
            for (uint32_t j = k + 1; j <= i; j++)
                a[i][j] -= column[i] * column[j];
    }
}

// 16 numbers of a row of L, from Cholesky's factor: times the inverse of the block above them.
static void divide_by_block(double *row, double (*block)[BLOCK])
{
    for (uint32_t j = TILE; j-- > 0;) {
        for (uint32_t k = j + 1; k < TILE; k++)
            row[j] -= row[k] * block[k][j];
        row[j] /= block[j][j];
    }
}

static void do_diagonal(struct factor *f)
{
    double *l = f->l + (size_t)f->first * f->n + f->first;

    for (uint32_t i = 0; i < BLOCK; i++)
        memcpy(f->block[i], l + (size_t)i * f->n, BLOCK * sizeof *l);
    factorise_block(f->block);
    for (uint32_t i = 0; i < BLOCK; i++) {
        double *row = l + (size_t)i * f->n;
        const uint32_t own = i / TILE * TILE;
        memcpy(row, f->block[i], own * sizeof *row);
        for (uint32_t b = 0; b < own; b += TILE)
            divide_by_block(row + b, (double(*)[BLOCK]) & f->block[b][b]);
        for (uint32_t j = own; j < own + TILE; j++)
            row[j] = i == j;
    }
}

// ---- the rows below it: WIDTH at a time, so that each is a lane of vectors

#define SIMD_AVX2   TARGET("avx2")
#define SIMD_AVX512 TARGET("avx512f")
#define INLINE      static inline __attribute__((always_inline))

// v -= a x
INLINE void subtract(double v[WIDTH], double a, const double x[WIDTH])
{
    for (uint32_t r = 0; r < WIDTH; r++)
        v[r] -= a * x[r];
}

INLINE void divide(double v[WIDTH], double by)
{
    for (uint32_t r = 0; r < WIDTH; r++)
        v[r] /= by;
}

// Cholesky's factor of the rows, from what the columns before leave of them: [column, row]. And L's numbers,
// `done`: each 16 of a row times the inverse of the block above them.
INLINE void finish_rows(double (*rows)[WIDTH], double (*block)[BLOCK], double (*done)[WIDTH])
{
    for (uint32_t j = 0; j < BLOCK; j++) {
        double v[WIDTH];
        memcpy(v, rows[j], sizeof v);
        for (uint32_t k = 0; k < j; k++)
            subtract(v, block[j][k], rows[k]);
        divide(v, block[j][j]);
        memcpy(rows[j], v, sizeof v);
    }
    for (uint32_t b = 0; b < BLOCK; b += TILE)
        for (uint32_t j = b + TILE; j-- > b;) {
            double v[WIDTH];
            memcpy(v, rows[j], sizeof v);
            for (uint32_t k = j + 1; k < b + TILE; k++)
                subtract(v, block[k][j], done[k]);
            divide(v, block[j][j]);
            memcpy(done[j], v, sizeof v);
        }
}

static void finish_plain(double (*rows)[WIDTH], double (*block)[BLOCK], double (*done)[WIDTH])
{
    finish_rows(rows, block, done);
}

#if defined(CPU_X86)
SIMD_AVX2 static void finish_avx2(double (*rows)[WIDTH], double (*block)[BLOCK], double (*done)[WIDTH])
{
    finish_rows(rows, block, done);
}

SIMD_AVX512 static void finish_avx512(double (*rows)[WIDTH], double (*block)[BLOCK], double (*done)[WIDTH])
{
    finish_rows(rows, block, done);
}
#endif

static finish_fn *best_finish(void)
{
#if defined(CPU_X86)
    if (cpu_features() & CPU_AVX512)
        return finish_avx512;
    if (cpu_features() & CPU_AVX2)
        return finish_avx2;
#endif
    return finish_plain;
}

static void do_panel(struct factor *f, uint32_t panel)
{
    const uint32_t first = f->first + BLOCK + panel * WIDTH, left = f->n - first,
                   n_rows = left < WIDTH ? left : WIDTH;
    double(*rows)[WIDTH] = (double(*)[WIDTH])(f->panels + (size_t)panel * BLOCK * WIDTH);
    double done[BLOCK][WIDTH], *l = f->l + (size_t)first * f->n + f->first;

    for (uint32_t j = 0; j < BLOCK; j++)
        for (uint32_t r = 0; r < WIDTH; r++)
            rows[j][r] = r < n_rows ? l[(size_t)r * f->n + j] : 0;
    f->finish(rows, f->block, done);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t j = 0; j < BLOCK; j++)
            l[(size_t)r * f->n + j] = done[j][r];
}

static void do_panels(void *arg, unsigned thread)
{
    struct factor *f = arg;
    const uint32_t n = rank_update_panels(f->n - f->first - BLOCK);

    (void)thread;
    for (uint32_t panel; take(f, n, &panel);)
        do_panel(f, panel);
}

static void factorise(struct factor *f, struct thread_pool *pool)
{
    for (f->first = 0; f->first < f->n; f->first += BLOCK) {
        const uint32_t behind = f->first + BLOCK;
        do_diagonal(f);
        run(f, pool, do_panels);
        rank_update(&(struct rank_update){ .c = f->l + (size_t)behind * (f->n + 1),
                                           .stride = f->n,
                                           .p = f->panels,
                                           .n = f->n - behind,
                                           .k = BLOCK,
                                           .sign = -1 },
                    pool);
    }
}

bool trellis_factor(const struct trellis_factor_source *source, struct thread_pool *pool, double *l,
                    struct err *err)
{
    const size_t panels = (size_t)rank_update_panels(source->n_in) * WIDTH, block = BLOCK;
    double *room = mem_alloc_aligned((block + panels) * BLOCK * sizeof *room, 64);
    struct factor f = { .source = source,
                        .l = l,
                        .n = source->n_in,
                        .finish = best_finish(),
                        .block = (double(*)[BLOCK])room,
                        .panels = room + block * BLOCK };

    if (!room)
        return err_memory(err, "the factor of moments");
    run(&f, pool, transform_blocks);
    raise_diagonal(&f);
    factorise(&f, pool);
    mem_free_aligned(room);
    return true;
}
