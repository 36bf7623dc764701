// test_eyes.c - the mmproj file of a GGUF model: found beside it, left out, one of several, of another model.
#include "program.h"

#define EYES "cp " SOURCE_DIR "/tests/golden/"

static int make_text_model(void **state)
{
    make_home(state);
    shell("mkdir %s/eyes && " PROGRAM " quantize " SOURCE_DIR
          "/tests/golden/smolvlm %s/eyes/text.gguf F32 -q",
          home, home);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_mmproj_file_beside_a_model_is_its_eyes),
        cmocka_unit_test(of_several_none_is_taken),
        cmocka_unit_test(the_eyes_of_another_model_are_left_out),
        cmocka_unit_test(inspect_tells_what_a_model_sees_with),
    };
    return cmocka_run_group_tests(tests, make_text_model, remove_home);
}
