// test_eyes.c - the mmproj file of a GGUF model: found beside it, left out, one of several, of another model.
#include <jansson.h>
#include "program.h"

#define EYES "cp " SOURCE_DIR "/tests/golden/"

static int make_text_model(void **state)
{
    make_home(state);
    shell("mkdir %s/eyes && " PROGRAM " quantize " SOURCE_DIR
          "/tests/golden/smolvlm %s/eyes/text.gguf F32 -q && rm %s/eyes/mmproj-text.gguf",
          home, home, home);
    make_picture("pixel.png");
    return 0;
}

// options: before the others, each with a blank behind it.
static void check(const char *options, int status, const char *err_part)
{
    char words[512];

    snprintf(words, sizeof words,
             "run %s-m %s/eyes/text.gguf --image %s/pixel.png --image-no-split -p x -n 2", options, home,
             home);
    struct outcome o = run_with(words, "");
    if (o.status != status || !strstr(o.err.at, err_part))
        fail_msg("%s: status %d, want %d; stderr '%s' should have '%s'", words, o.status, status, o.err.at,
                 err_part);
    outcome_free(&o);
}

static void the_only_mmproj_file_beside_a_model_is_its_eyes(void **state)
{
    (void)state;
    check("", 1, "this model has no eyes");
    shell(EYES "smolvlm/mmproj.gguf %s/eyes/mmproj-f32.gguf", home);
    check("-v ", 0, "eyes/mmproj-f32.gguf: the eyes of this model, found beside it");
    check("-v ", 0, "connector ");
    check("--no-mmproj ", 1, "this model has no eyes");
    // a path without a folder
    shell("cd %s/eyes && " PROGRAM " run -m text.gguf --image ../pixel.png -p x -n 2", home);
}

static void of_several_none_is_taken(void **state)
{
    (void)state;
    shell(EYES "smolvlm/mmproj.gguf %s/eyes/MMPROJ.GGUF && cp %s/pixel.png %s/eyes/mmproj.png", home, home,
          home);
    check("", 1, "beside it are 2 mmproj files (");
    check("", 1, "MMPROJ.GGUF");
    check("", 1, "name one with --mmproj");
    shell("rm %s/eyes/MMPROJ.GGUF", home);
    check("", 0, "");
}

// Text goes on; what was asked for has to fit.
static void the_eyes_of_another_model_are_left_out(void **state)
{
    (void)state;
    shell("rm %s/eyes/mmproj-f32.gguf && " EYES "idefics3/mmproj.gguf %s/eyes/", home, home);
    check("", 1, "they do not belong together");
    check("", 1, "this model takes no pictures now");
    shell(PROGRAM " run -m %s/eyes/text.gguf -p x -n 2", home);
    shell("! " PROGRAM " run -m %s/eyes/text.gguf --mmproj %s/eyes/mmproj.gguf -p x -n 2", home, home);
}

static void inspected(const char *words, const char *part)
{
    struct outcome o = run_with(words, "");

    if (o.status != 0 || !strstr(o.out.at, part))
        fail_msg("%s: status %d; '%s' should have '%s'", words, o.status, o.out.at, part);
    outcome_free(&o);
}

static void inspect_tells_what_a_model_sees_with(void **state)
{
    char words[256];

    (void)state;
    inspected("inspect " SOURCE_DIR "/tests/golden/smolvlm",
              "longest edge 120, tiles of 30 in patches of 5, 4 tokens a tile, at most 17 tiles");
    inspected("inspect " SOURCE_DIR "/tests/golden/idefics3/mmproj.gguf",
              "model         none: these are the eyes");
    inspected("inspect " SOURCE_DIR "/tests/golden/idefics3/mmproj.gguf",
              "3 layers, width 72, 4 heads, FFN 104");
    snprintf(words, sizeof words, "inspect %s/eyes/text.gguf", home);
    inspected(words, "eyes          cannot be used: "); // what was left beside it
    shell("rm %s/eyes/mmproj.gguf && " EYES "smolvlm/mmproj.gguf %s/eyes/", home, home);
    inspected(words, "/eyes/mmproj.gguf\", ");
    snprintf(words, sizeof words, "inspect %s/eyes/text.gguf --json", home);
    inspected(words, "\"eyes\": {\"tower\": \"idefics3\"");
}

static void bench_refuses(const char *words, const char *part, int status)
{
    char whole[256];

    snprintf(whole, sizeof whole, "bench %s -r 1 -n 2", words);
    struct outcome o = run_with(whole, "");
    assert_int_equal(o.status, status);
    assert_int_equal(o.out.n, 0);
    assert_non_null(strstr(o.err.at, part));
    outcome_free(&o);
}

// The numbers behind "token" in the lines of --json.
static void read_tokens(const char *words, unsigned tokens[8])
{
    struct outcome o = run_with(words, "");
    const char *at = o.out.at;

    assert_int_equal(o.status, 0);
    for (int i = 0; i < 8; i++) {
        at = strstr(at, "\"token\":");
        assert_non_null(at);
        assert_int_equal(sscanf(at += 8, "%u", &tokens[i]), 1);
    }
    outcome_free(&o);
}

// From a checkpoint the eyes come with the text, once in a folder, and both files together see as before.
static void quantize_keeps_the_eyes(void **state)
{
    static const char *const models[] = { "smolvlm", "internvl" };
    unsigned both[8], folder[8];
    char words[512];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        shell("mkdir %s/%s && " PROGRAM " quantize " SOURCE_DIR
              "/tests/golden/%s %s/%s/m.gguf BF16 2> %s/said",
              home, models[i], models[i], home, models[i], home);
        shell("grep -q '/mmproj-m.gguf: the eyes of the model' %s/said", home);
        snprintf(words, sizeof words, "inspect %s/%s/mmproj-m.gguf", home, models[i]);
        inspected(words, "model         none: these are the eyes");
        shell(PROGRAM " quantize " SOURCE_DIR
                      "/tests/golden/%s %s/%s/n.gguf Q8_0 -q && test ! -e %s/%s/mmproj-n.gguf",
              models[i], home, models[i], home, models[i]);
    }
    shell(PROGRAM " quantize %s/smolvlm/m.gguf %s/again.gguf Q8_0 -q && rm %s/again.gguf", home, home, home);
    snprintf(words, sizeof words, "inspect %s/mmproj-again.gguf", home);
    inspected(words, "F16 "); // no row is whole blocks
    shell("rm %s/mmproj-again.gguf", home);
    snprintf(words, sizeof words,
             "run -m %s/smolvlm/m.gguf --image %s/pixel.png -p x -n 8 --temp 0 --exact --ignore-eos --json",
             home, home);
    read_tokens(words, both);
    snprintf(words, sizeof words,
             "run -m " SOURCE_DIR
             "/tests/golden/smolvlm --image %s/pixel.png -p x -n 8 --temp 0 --exact --ignore-eos --json",
             home);
    read_tokens(words, folder);
    assert_memory_equal(both, folder, sizeof both);
}

// Every round computes all of its tiles, though the picture stays the same.
static void bench_tells_each_stage(void **state)
{
    static const char *const stages[] = { "image_read_ms", "image_split_ms", "patch_ms",       "encode_ms",
                                          "connect_ms",    "prefill_ms",     "first_token_ms", "decode_ms" };
    char words[256];

    (void)state;
    snprintf(words, sizeof words,
             "bench -m " SOURCE_DIR
             "/tests/golden/smolvlm --image 40x20 --image %s/pixel.png -n 3 -r 2 -o json",
             home);
    struct outcome o = run_with(words, "");
    json_t *rows = json_loads(o.out.at, 0, NULL);
    outcome_free(&o);
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i);
        for (size_t k = i == 0; k < sizeof stages / sizeof *stages; k++) // a drawn picture has no file
            if (!(json_real_value(json_object_get(row, stages[k])) > 0))
                fail_msg("row %zu has no %s", i, stages[k]);
        assert_int_equal(json_integer_value(json_object_get(row, "n_tiles")), i ? 17 : 9);
        assert_int_equal(json_integer_value(json_object_get(row, "n_gen")), 3);
    }
    json_decref(rows);
    inspected("bench --image 20x20 -r 1 -n 2 --image-no-split", "| 20x20 ");
    bench_refuses("--image 20x20 --image 20x0", "found '20x0', expected a picture's file", 2);
    bench_refuses(SOURCE_DIR "/models/ingot-7m-q8_0.gguf --image 20x20", "has no eyes", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_mmproj_file_beside_a_model_is_its_eyes),
        cmocka_unit_test(of_several_none_is_taken),
        cmocka_unit_test(the_eyes_of_another_model_are_left_out),
        cmocka_unit_test(inspect_tells_what_a_model_sees_with),
        cmocka_unit_test(quantize_keeps_the_eyes),
        cmocka_unit_test(bench_tells_each_stage),
    };
    return cmocka_run_group_tests(tests, make_text_model, remove_home);
}
