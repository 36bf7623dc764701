// test_moments.c - sums of x x^T: the bits of the plain loop, with any threads and with rows in any parts.
#include "testing.h"
#include <math.h>
#include "model_tools/moments.h"

enum { ROWS = 300, COLS = 150 };

static float x[ROWS * COLS];
static double want[COLS * (COLS + 1) / 2];

static int make_rows(void **state)
{
    uint64_t random = 5;

    (void)state;
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        x[i] = ((float)(random >> 40) * 0x1p-24f - 0.5f) * (i % 7 ? 1 : 1000);
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < COLS; i++)
            for (uint32_t j = 0; j <= i; j++)
                want[i * (i + 1) / 2 + j] += (double)x[r * COLS + i] * (double)x[r * COLS + j];
    return 0;
}

static void sums_have_the_bits_of_the_plain_loop(void **state)
{
    static const uint32_t parts[][3] = { { ROWS }, { 1, 128, ROWS - 129 }, { 290, 3, ROWS - 293 } };
    const struct str names[] = { STR("blk.0.attn_q.weight"), STR("blk.0.attn_k.weight") };

    (void)state;
    for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
        struct thread_pool *pool = thread_pool_create(n_threads);
        struct moments m;
        struct err err = { 0 };
        assert_ok(moments_create(&m, pool, &err), &err);
        const float *at = x;
        for (uint32_t i = 0; i < 3; at += parts[n_threads - 1][i++] * COLS) {
            struct moments_rows rows = { names, 2, at, parts[n_threads - 1][i], COLS };
            assert_ok(moments_add(&m, &rows, &err), &err);
        }
        const struct moments_entry *q = moments_find(&m, names[0]), *k = moments_find(&m, names[1]);
        assert_true(q && k && q->sums == k->sums && q->n == COLS);
        assert_memory_equal(q->sums, want, sizeof want);
        assert_null(moments_find(&m, STR("blk.0.attn_v.weight")));
        moments_free(&m);
        thread_pool_destroy(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_plain_loop),
    };
    return cmocka_run_group_tests(tests, make_rows, NULL);
}
