// test_shipped_eyes.c - the shipped model that sees: held-back questions about drawn pictures, on the
// processor's fast kernels and its plain loops, split and as one tile, from every file that holds it.
#include <sys/stat.h>
#include "models/shipped_eyes.h"

#define FOLDER SOURCE_DIR "/models/ingot-eyes"
#define GGUF   SOURCE_DIR "/models/ingot-eyes-q8_0.gguf"
#define MMPROJ SOURCE_DIR "/models/mmproj-ingot-eyes-q8_0.gguf"
#if defined(INGOT_VALGRIND) || defined(__SANITIZE_THREAD__) // fifty times slower
enum { STRIDE = 7 };
#elif defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif

static void check_model(const char *model, const char *device, size_t stride)
{
    struct ingot_engine *engine = eyes_open(model, device);

    eyes_check(engine, false, stride);
    eyes_check(engine, true, stride);
    ingot_engine_close(engine);
}

static void it_answers_from_inside_the_library(void **state)
{
    (void)state;
    check_model(INGOT_BUILTIN_EYES, "cpu", STRIDE);
}

static void it_answers_from_its_files(void **state)
{
    (void)state;
    check_model(GGUF, "cpu", STRIDE); // its mmproj file lies beside it
    check_model(FOLDER, "cpu", STRIDE);
}

static void it_answers_with_the_plain_loops(void **state)
{
    (void)state;
    check_model(INGOT_BUILTIN_EYES, "cpu:plain", 3 * STRIDE);
}

static void the_text_model_inside_has_no_eyes(void **state)
{
    struct ingot_engine *engine = eyes_open(NULL, "cpu");
    struct ingot_engine_info info;

    (void)state;
    ingot_engine_info(engine, &info);
    assert_false(info.takes_pictures);
    ingot_engine_close(engine);
}

static void it_is_small(void **state)
{
    struct stat text, eyes;

    (void)state;
    assert_int_equal(stat(GGUF, &text), 0);
    assert_int_equal(stat(MMPROJ, &eyes), 0);
    assert_true(text.st_size + eyes.st_size <= 8000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_answers_from_inside_the_library),
        cmocka_unit_test(it_answers_from_its_files),
        cmocka_unit_test(it_answers_with_the_plain_loops),
        cmocka_unit_test(the_text_model_inside_has_no_eyes),
        cmocka_unit_test(it_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
