// test_picture_api.c - the pictures of ingot.h: from memory, a file and pixels, and what is refused.
#include "testing.h"
#include "image/image.h"
#include "ingot.h"

static const uint8_t pixels[] = { 1, 2, 3, 4, 5, 6, 99, 7, 8, 9, 10, 11, 12 };

static void pixels_are_copied(void **state)
{
    struct ingot_error error = { 0 };
    uint8_t rgb[sizeof pixels];
    uint32_t width = 0, height = 0;

    (void)state;
    memcpy(rgb, pixels, sizeof rgb);
    struct ingot_picture *p = ingot_picture_from_rgb(rgb, 2, 2, 7, &error);
    assert_non_null(p);
    memset(rgb, 0, sizeof rgb);
    ingot_picture_size(p, &width, &height);
    assert_true(width == 2 && height == 2);
    assert_memory_equal(ingot_picture_rgb(p), ((uint8_t[]){ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }), 12);
    ingot_picture_free(p);
    p = ingot_picture_from_rgb(pixels, 1, 4, 0, NULL);
    assert_memory_equal(ingot_picture_rgb(p), pixels, 12);
    ingot_picture_free(p);
    ingot_picture_free(NULL);
}

static void wrong_sizes_are_refused(void **state)
{
    struct ingot_error error = { 0 };

    (void)state;
    assert_null(ingot_picture_from_rgb(pixels, 2, 2, 5, &error));
    assert_string_equal(error.message, "rows of 5 bytes; 2 pixels take 6");
    assert_null(ingot_picture_from_rgb(pixels, 0, 2, 0, &error));
    assert_int_equal(error.code, INGOT_INPUT);
    assert_null(ingot_picture_from_rgb(pixels, 20000, 2, 0, &error));
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_null(ingot_picture_from_rgb(pixels, 20000, 2, 0, NULL));
}

static void a_file_is_read(void **state)
{
    static const char path[] = SOURCE_DIR "/tests/fuzz/corpus/png/exif6";
    struct ingot_error error = { 0 };
    uint32_t width = 0, height = 0;

    (void)state;
    if (!picture_png_library())
        skip();
    struct ingot_picture *p = ingot_picture_from_file(path, &error);
    assert_non_null(p);
    ingot_picture_size(p, &width, &height); // 11 x 6, lying
    assert_true(width == 6 && height == 11);
    ingot_picture_free(p);
    assert_null(ingot_picture_from_file(SOURCE_DIR "/README.md", &error));
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    assert_non_null(strstr(error.message, "README.md: the bytes are no picture"));
    assert_null(ingot_picture_from_file("/nowhere/at.png", &error));
    assert_non_null(strstr(error.message, "/nowhere/at.png"));
    assert_null(ingot_picture_from_file("/dev/zero", NULL));
    assert_null(ingot_picture_from_file("https://127.0.0.1/at.png", &error));
    assert_int_equal(error.code, INGOT_INPUT);
    assert_non_null(strstr(error.message, "nothing is fetched from the network"));
}

static void bytes_are_read(void **state)
{
    struct ingot_error error = { 0 };

    (void)state;
    assert_null(ingot_picture_from_memory("GIF89a", 6, &error));
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    assert_null(ingot_picture_from_memory(NULL, 0, &error));
    assert_string_equal(error.message, "the picture has no bytes; PNG, JPEG and WebP are read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_copied),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(bytes_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
