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
        assert_ok(moments_create(&m, &(struct moments_limits){ 0, 1, UINT64_MAX, pool }, &err), &err);
        const float *at = x;
        for (uint32_t i = 0; i < 3; at += parts[n_threads - 1][i++] * COLS) {
            struct moments_rows rows = { names, 2, 0, at, parts[n_threads - 1][i], COLS };
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

static void add(struct moments *m, const char *name, uint32_t layer, uint32_t n_cols)
{
    const struct str names[] = { str_from(name) };
    struct err err = { 0 };

    assert_ok(moments_add(m, &(struct moments_rows){ names, 1, layer, x, 2, n_cols }, &err), &err);
}

// The first layer is kept whatever it takes; one that does not fit as a whole is not, nor is any behind it.
static void layers_end_where_the_room_does(void **state)
{
    static const uint64_t sums = 20 * 21 / 2 * sizeof(double);
    struct thread_pool *pool = thread_pool_create(1);
    struct moments m;
    struct err err = { 0 };

    (void)state;
    assert_ok(moments_create(&m, &(struct moments_limits){ 1, 9, 5 * sums, pool }, &err), &err);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        add(&m, "blk.0.ffn_up.weight", 0, 20); // before the first
        for (uint32_t l = 1; l < 5; l++) {
            const char *const up[] = { "", "up1", "up2", "up3", "up4" };
            const char *const down[] = { "", "down1", "down2", "down3", "down4" };
            add(&m, up[l], l, 20);
            add(&m, down[l], l, 20);
        }
        assert_int_equal(m.limits.last, 3);
    }
    assert_true(moments_find(&m, STR("down1")) && moments_find(&m, STR("down2")));
    assert_null(moments_find(&m, STR("blk.0.ffn_up.weight")));
    assert_null(moments_find(&m, STR("down3")));
    assert_true(moments_find(&m, STR("down2"))->sums[0] ==
                2 * ((double)x[0] * (double)x[0] + (double)x[20] * (double)x[20]));
    moments_free(&m);
    assert_ok(moments_create(&m, &(struct moments_limits){ 4, 9, 1, pool }, &err), &err);
    add(&m, "up4", 4, 20);
    add(&m, "down4", 4, 20);
    add(&m, "up5", 5, 20);
    assert_true(m.limits.last == 5 && moments_find(&m, STR("down4")) && !moments_find(&m, STR("up5")));
    moments_free(&m);
    thread_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_plain_loop),
        cmocka_unit_test(layers_end_where_the_room_does),
    };
    return cmocka_run_group_tests(tests, make_rows, NULL);
}
