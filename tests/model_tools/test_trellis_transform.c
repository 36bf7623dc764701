// test_trellis_transform.c - a transformed matrix, turned back and multiplied with its factors, is the matrix
// again; of the wanted size; the same bits with any number of threads.
#include "testing.h"
#include <math.h>
#include "model_tools/trellis/hadamard.h"
#include "model_tools/trellis/trellis_transform.h"
#include "quant/quant.h"

enum { ROWS = 150, COLS = 200, N = 256 };

static float w[ROWS * COLS];

static void transform(unsigned n_threads, float to[N * N], uint16_t factors[2][N])
{
    struct thread_pool *pool = thread_pool_create(n_threads);
    const struct trellis_transform t = { w, ROWS, COLS, N, N, 0.8f, 5, to, factors[0], factors[1] };

    trellis_transform(&t, pool);
    thread_pool_destroy(pool);
}

static void a_matrix_comes_back(void **state)
{
    static float to[N * N], again[N * N];
    uint16_t factors[2][N], factors_again[2][N];
    uint64_t random = 9;
    double squares = 0;

    (void)state;
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        w[i] = ((float)(trellis_draw(&random) >> 40) * 0x1p-24f - 0.5f) * (i / COLS == 3 ? 20 : 1);
    transform(1, to, factors);
    transform(3, again, factors_again);
    assert_memory_equal(to, again, sizeof to);
    assert_memory_equal(factors, factors_again, sizeof factors);
    for (uint32_t i = 0; i < N * N; i++)
        squares += (double)to[i] * (double)to[i];
    assert_true(fabs(sqrt(squares / (COLS * N)) - 1 / 0.8) < 0.01); // inputs of nothing stay so
    hadamard_columns(to, N, N, N);
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t o = 0; o < N; o++)
            to[i * N + o] *= quant_half_to_float(factors[0][i]);
        hadamard_row(to + i * N, N);
        for (uint32_t o = 0; o < N; o++) {
            double got = (double)to[i * N + o] * (double)quant_half_to_float(factors[1][o]);
            double want = i < COLS && o < ROWS ? (double)w[o * COLS + i] : 0;
            assert_true(fabs(got - want) < 2e-5);
        }
    }
    assert_true(factors[1][ROWS] == 0 || factors[1][ROWS] == 0x8000); // an output of nothing
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
