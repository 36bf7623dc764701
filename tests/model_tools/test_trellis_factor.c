// test_trellis_factor.c - the factor of moments gives the transformed moments again.
#include "testing.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "model_tools/trellis/trellis_factor.h"
#include "quant/exl3.h"
#include "quant/quant.h"

enum { COLS = 300, N = 384, ROWS = 700, TILE = EXL3_TILE };

static double moments[COLS * (COLS + 1) / 2], want[N * N], l[N * N], blocks[N * N];
static uint16_t suh[N];
static uint64_t random_state = 3;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53 - 0.5;
}

// Rows whose neighbours move together, and one input that is much larger.
static int make_moments(void **state)
{
    static float x[COLS];

    (void)state;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < COLS; i++)
            x[i] = (float)(uniform() * (i == 7 ? 30 : 1)) + (i ? 0.6f * x[i - 1] : 0);
        for (uint32_t i = 0; i < COLS; i++)
            for (uint32_t j = 0; j <= i; j++)
                moments[i * (i + 1) / 2 + j] += (double)x[i] * (double)x[j];
    }
    for (uint32_t i = 0; i < N; i++)
        suh[i] = quant_float_to_half((float)(0.5 + uniform() / 2) * (i % 3 ? 1 : -1));
    return 0;
}

// Sylvester's matrix over sqrt(128).
static double sign_of(uint32_t i, uint32_t j)
{
    return (__builtin_popcount(i & j) & 1 ? -1 : 1) / sqrt(128);
}

// H of the numbers of each 128, `stride` apart.
static void turn(double *x, uint32_t stride)
{
    double turned[N] = { 0 };

    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < EXL3_BLOCK; j++)
            turned[i] += sign_of(i % EXL3_BLOCK, j) * x[(i / EXL3_BLOCK * EXL3_BLOCK + j) * stride];
    for (uint32_t i = 0; i < N; i++)
        x[i * stride] = turned[i];
}

// H S M S H, and a fortieth of the diagonal's mean.
static void transform(const double *m)
{
    double sum = 0;

    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double x = i >= COLS ? 0 : m ? m[i * (i + 1) / 2 + j] : i == j;
            want[i * N + j] = want[j * N + i] =
                x * (double)quant_half_to_float(suh[i]) * (double)quant_half_to_float(suh[j]);
        }
    for (uint32_t i = 0; i < N; i++)
        turn(want + i * N, 1);
    for (uint32_t i = 0; i < N; i++)
        turn(want + i, N);
    for (uint32_t i = 0; i < N; i++)
        sum += want[i * N + i];
    for (uint32_t i = 0; i < N; i++)
        want[i * N + i] += 0.025 * sum / N;
}

// (L D L^T)[i][j], of the blocks before j's alone where `before`.
static double product(uint32_t i, uint32_t j, bool before)
{
    uint32_t last = before ? j / TILE * TILE : j / TILE * TILE + TILE;
    double sum = 0;

    for (uint32_t k = 0; k < last; k++) {
        double d = 0; // D is symmetric in exact numbers: its lower triangle counts
        for (uint32_t b = k / TILE * TILE; b < k / TILE * TILE + TILE; b++)
            d += l[j * N + b] * (b < k ? blocks[k * N + b] : blocks[b * N + k]);
        sum += l[i * N + k] * d;
    }
    return sum;
}

static void check_factor(const double *m, unsigned n_threads)
{
    struct thread_pool *pool = thread_pool_create(n_threads);
    struct trellis_factor_source s = { m, suh, COLS, N };
    struct err err = { 0 };
    double missed = 0, all = 0;

    memset(l, 0, sizeof l);
    assert_ok(trellis_factor(&s, pool, l, &err), &err);
    thread_pool_destroy(pool);
    transform(m);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = i / TILE * TILE; j < N; j++)
            assert_true(l[i * N + j] == (i == j));
    for (uint32_t j = 0; j < N; j++) // D's blocks are what the blocks before leave over
        for (uint32_t i = j; i < j / TILE * TILE + TILE; i++)
            blocks[i * N + j] = want[i * N + j] - product(i, j, true);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < i / TILE * TILE; j++) {
            double d = product(i, j, false) - want[i * N + j];
            missed += d * d;
            all += want[i * N + j] * want[i * N + j];
        }
    print_message("missed %g of %g\n", missed, all);
    assert_true(missed <= 1e-13 * all); // transforms are in fp32
}

static void the_factor_gives_the_moments_again(void **state)
{
    (void)state;
    check_factor(moments, 1);
}

static void threads_change_no_bit(void **state)
{
    static double one[N * N];

    (void)state;
    check_factor(moments, 1);
    memcpy(one, l, sizeof one);
    check_factor(moments, 4);
    assert_memory_equal(one, l, sizeof one);
}

static void without_moments_all_inputs_count_alike(void **state)
{
    (void)state;
    check_factor(NULL, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_factor_gives_the_moments_again),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(without_moments_all_inputs_count_alike),
    };
    return cmocka_run_group_tests(tests, make_moments, NULL);
}
