// test_serve_synth.c - a model with random weights can be chatted with and served: one of each architecture,
// written by `synth`.
#include "folder.h"
#include "server/shared.h"

static const char *const toys[] = { "toy", "toy-qwen2", "toy-qwen3" };
static char path[64];

static int make_folder(void **state)
{
    int result = folder_make(state);

    snprintf(path, sizeof path, "%s/toy.gguf", folder);
    return result;
}

static void make(const char *shape)
{
    shell(INGOT_PROGRAM " synth %s %s --type Q4_0 2>/dev/null", shape, path);
}

static void each_can_be_chatted_with(void **state)
{
    (void)state;
    char command[512], answer[4096];
    for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
        make(toys[i]);
        snprintf(command, sizeof command, INGOT_PROGRAM " run -m %s -p 'Good day' -n 16 --temp 0 2>/dev/null",
                 path);
        FILE *out = popen(command, "r");
        assert_non_null(out);
        size_t n = fread(answer, 1, sizeof answer, out);
        assert_int_equal(pclose(out), 0);
        assert_true(n >= 16); // a byte for each token at least
    }
}

static void each_can_be_served(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
        make(toys[i]);
        shared = serve_start((const char *[]){ "-m", path, NULL });
        json_t *r = post("/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief\"},{\"role\":\"user\","
                         "\"content\":\"Good day\"}],\"max_tokens\":16,\"temperature\":0}");
        assert_true(strlen(text(r, "choices.0.message.content")) >= 16);
        assert_int_equal(json_integer_value(at(r, "usage.completion_tokens")), 16);
        json_decref(r);
        assert_int_equal(serve_stop(&shared), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_can_be_chatted_with),
                                        cmocka_unit_test(each_can_be_served) };
    return cmocka_run_group_tests(tests, make_folder, folder_remove);
}
