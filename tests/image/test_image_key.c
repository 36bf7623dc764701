// test_image_key.c - keys of files, pictures and tiles: the same for the same, another for any difference.
#include "testing.h"
#include "image/image_key.h"

static const struct image_processor base = { .longest_edge = 128,
                                             .tile = 64,
                                             .tokens_a_tile = 16,
                                             .split = true,
                                             .filter = IMAGE_LANCZOS,
                                             .rescale = 1 / 255.0,
                                             .mean = { 0.5F, 0.5F, 0.5F },
                                             .std = { 0.5F, 0.5F, 0.5F } };
enum { N_CHANGES = 12 };

static struct image_processor changed(int i)
{
    struct image_processor p = base;

    p.longest_edge += i == 1 ? 2 : 0;
    p.tile += i == 2;
    p.tokens_a_tile += i == 3;
    p.split = i != 4;
    p.filter = i == 5 ? IMAGE_BICUBIC : IMAGE_LANCZOS;
    p.rescale = i == 6 ? 0.5 : base.rescale;
    p.mean[i == 7 ? 0 : 1] = i == 7 || i == 8 ? 0.25F : 0.5F;
    p.std[i == 9 ? 2 : 1] = i == 9 || i == 10 ? 0.25F : 0.5F;
    p.mean[2] = i == 11 ? 0.125F : 0.5F;
    return p;
}

static void assert_all_differ(const struct sha256 *keys, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (sha256_eq(&keys[i], &keys[j]))
                fail_msg("keys %d and %d agree", j, i);
}

static void each_setting_is_part_of_the_key(void **state)
{
    struct sha256_stream *sums = sha256_open();
    uint8_t rgb[12] = { 1, 2, 3 };
    struct picture picture = { rgb, 2, 2 };
    struct sha256 keys[2 * N_CHANGES];

    (void)state;
    for (int i = 0; i < N_CHANGES; i++) {
        struct image_processor p = changed(i);
        keys[i] = image_file_key(sums, &p, rgb, sizeof rgb);
        keys[N_CHANGES + i] = image_picture_key(sums, &p, &picture);
        struct sha256 again = image_file_key(sums, &p, rgb, sizeof rgb);
        assert_true(sha256_eq(&keys[i], &again));
    }
    assert_all_differ(keys, 2 * N_CHANGES);
    sha256_close(sums);
}

static void each_pixel_and_the_shape_are_part_of_the_key(void **state)
{
    struct sha256_stream *sums = sha256_open();
    uint8_t rgb[12] = { 1, 2, 3 };
    struct picture wide = { rgb, 4, 1 }, square = { rgb, 2, 2 };
    struct sha256 keys[14] = { image_picture_key(sums, &base, &wide), image_picture_key(sums, &base, &square) };

    (void)state;
    for (int i = 0; i < 12; i++) {
        rgb[i] ^= 1;
        keys[2 + i] = image_picture_key(sums, &base, &square);
        rgb[i] ^= 1;
    }
    assert_all_differ(keys, 14);
    sha256_close(sums);
}

static void a_tile_is_known_by_its_bytes_and_its_tower(void **state)
{
    struct sha256_stream *sums = sha256_open();
    uint8_t rgb[3 * 12] = { [3] = 9, [12 + 3] = 9, [24 + 4] = 9 };
    struct image_tiles tiles = { rgb, 3, 2, 1, 2 };
    struct sha256 one = { { 1 } }, other = { { 2 } };
    struct image_processor numbers = changed(8), tile = changed(1);
    struct sha256 keys[] = { image_tile_key(sums, &one, &base, &tiles, 0), image_tile_key(sums, &one, &base, &tiles, 2),
                             image_tile_key(sums, &other, &base, &tiles, 0), image_tile_key(sums, &one, &numbers, &tiles, 0) };
    struct sha256 same = image_tile_key(sums, &one, &tile, &tiles, 1); // the bytes are there, however they were made

    (void)state;
    assert_all_differ(keys, 4);
    assert_true(sha256_eq(&keys[0], &same));
    sha256_close(sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_is_part_of_the_key),
        cmocka_unit_test(each_pixel_and_the_shape_are_part_of_the_key),
        cmocka_unit_test(a_tile_is_known_by_its_bytes_and_its_tower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
