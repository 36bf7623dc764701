// test_vision_metal.c - the Metal kernels of an encoder of pictures against the plain loops, and a whole
// tower, on the emulator.
#include "emu_modes.h"
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "ops/vision_sides.h"

static void kernels_of_a_tower(void **state)
{
    static const struct {
        uint32_t rows, most, n_cols, n_heads;
    } cases[] = { { 36, 36, 48, 3 }, { 72, 144, 36, 2 }, { 100, 144, 130, 1 }, { 1, 36, 32, 4 } };

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct op_shape c = { .rows = cases[i].rows,
                              .most_rows = cases[i].most,
                              .n_cols = cases[i].n_cols,
                              .n_heads = cases[i].n_heads };
        struct sides s;
        c.limit = 1e-10;
        sides_open(&s, gpu, &c, record_tower);
        fill_tiles(&s.plain, c.rows);
        fill_tiles(&s.fast, c.rows);
        sides_compare(&s, "tower", &c);
        sides_close(&s);
    }
}

static void a_tower_gives_the_reference_embeddings(void **state)
{
    (void)state;
    check_tower(gpu, &(struct tower_run){ "smolvlm", 3, true, 1e-4 });
    check_tower(gpu, &(struct tower_run){ "internvl", 3, true, 1e-4 });
}

static void patches_of_14_pixels_are_padded(void **state)
{
    (void)state;
    check_padded_tower(gpu, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_a_tower),
        cmocka_unit_test(a_tower_gives_the_reference_embeddings),
        cmocka_unit_test(patches_of_14_pixels_are_padded),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
