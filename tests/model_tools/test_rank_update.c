// test_rank_update.c - a symmetric matrix plus or minus P^T P: the bits of a loop with fused sums, in a
// square and in a triangle, with any threads, and with the rows of P in one call or in several.
#include "testing.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "model_tools/rank_update.h"

enum { WIDTH = RANK_UPDATE_WIDTH, N_MAX = 211, K_MAX = 130 };

static double p[K_MAX][N_MAX], want[N_MAX][N_MAX], square[N_MAX][N_MAX], triangle[N_MAX * (N_MAX + 1) / 2];

static double uniform(void)
{
    static uint64_t state = 11;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53 - 0.5;
}

static void set_up(uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t j = 0; j < n; j++)
            p[i][j] = uniform();
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < N_MAX; j++) {
            want[i][j] = square[i][j] = uniform();
            if (j <= i)
                triangle[i * (i + 1) / 2 + j] = want[i][j];
        }
}

static void update_plainly(uint32_t n, uint32_t k, double sign)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j <= i; j++)
            for (uint32_t r = 0; r < k; r++)
                want[i][j] = fma(sign * p[r][i], p[r][j], want[i][j]);
}

// Rows first to first + u->k - 1 of P, in panels.
static void update(struct rank_update u, uint32_t first, struct thread_pool *pool)
{
    const uint32_t panels = rank_update_panels(u.n);
    double *room = mem_alloc_aligned((size_t)panels * u.k * WIDTH * sizeof *room, 64);

    assert_non_null(room);
    for (uint32_t i = 0; i < panels; i++)
        for (uint32_t r = 0; r < u.k; r++)
            for (uint32_t j = 0; j < WIDTH; j++)
                room[((size_t)i * u.k + r) * WIDTH + j] =
                    i * WIDTH + j < u.n ? p[first + r][i * WIDTH + j] : 0;
    u.p = room;
    rank_update(&u, pool);
    mem_free_aligned(room);
}

static void a_square_and_a_triangle_have_the_bits_of_a_loop(void **state)
{
    static const uint32_t sizes[][2] = { { 1, 2 },    { 23, 5 }, { 24, 2 },
                                         { 49, 128 }, { 96, 7 }, { N_MAX, K_MAX } };

    (void)state;
    for (uint32_t at = 0; at < sizeof sizes / sizeof *sizes; at++)
        for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
            const uint32_t n = sizes[at][0], k = sizes[at][1], half = (k + 1) / 2;
            const double sign = n_threads == 2 ? -1 : 1;
            struct thread_pool *pool = thread_pool_create(n_threads);
            set_up(n, k);
            update_plainly(n, k, sign);
            update((struct rank_update){ .c = square[0], .stride = N_MAX, .n = n, .k = k, .sign = sign }, 0,
                   pool);
            update((struct rank_update){ .c = triangle, .n = n, .k = half, .sign = sign }, 0, pool);
            update((struct rank_update){ .c = triangle, .n = n, .k = k - half, .sign = sign }, half, pool);
            assert_memory_equal(square, want, n * sizeof *want); // what is above the diagonal stays
            for (uint32_t i = 0; i < n; i++)
                assert_memory_equal(triangle + i * (i + 1) / 2, want[i], (i + 1) * sizeof **want);
            thread_pool_destroy(pool);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_square_and_a_triangle_have_the_bits_of_a_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
