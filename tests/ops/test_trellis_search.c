// test_trellis_search.c - the search of EXL3 codes on the CPU: vectors and any number of threads find what
// the plain loop finds, to the bit; and what is no matrix is refused.
#include "ops/trellis_search_sides.h"

static struct device *cpu_of(bool plain, unsigned n_threads)
{
    struct err err = { 0 };
    struct device *d =
        cpu_open(&(struct cpu_options){ .table = &cpu_table, .plain = plain, .n_threads = n_threads }, &err);

    assert_ok(d != NULL, &err);
    return d;
}

static void vectors_and_threads_find_the_same(void **state)
{
    struct device *plain = cpu_of(true, 1), *fast = cpu_of(false, 2);

    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        search_compare(
            plain, fast,
            &(struct search_shape){ 48, 32, bits, (enum exl3_codebook)(bits % 3), 0, 2, 1 + bits % 2 });
    device_close(plain);
    device_close(fast);
}

static void what_is_no_matrix_is_refused(void **state)
{
    static const uint32_t sizes[][3] = { { 0, 32, 3 },  { 16, 0, 3 },  { 24, 32, 3 }, { 16, 48, 3 },
                                         { 16, 32, 0 }, { 16, 32, 9 }, { 32, 32, 3 } }; // the last: no room
    struct device *d = cpu_of(false, 1);
    struct buffer room;
    struct err err = { 0 };

    (void)state;
    assert_ok(buffer_alloc(d, 16 * 32 * sizeof(float), &room, &err), &err);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tape *t = tape_create(d, (struct tape_limits){ .max_rows = 1 });
        op_trellis_search(t, &(struct trellis_search){ .w = &room,
                                                       .l = &room,
                                                       .missed = &room,
                                                       .codes = &room,
                                                       .n_in = sizes[i][0],
                                                       .n_out = sizes[i][1],
                                                       .bits = sizes[i][2] });
        assert_false(tape_seal(t, &err));
        assert_non_null(strstr(err.message, "want multiples of 16 and 32"));
        tape_destroy(t);
    }
    buffer_release(&room);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_and_threads_find_the_same),
        cmocka_unit_test(what_is_no_matrix_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
