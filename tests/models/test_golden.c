// test_golden.c - every architecture against logits of the reference implementation, at every position, from
// both file formats.
//
// Exact: fp32 against fp32.
#include <unistd.h>
#include "model_tools/random_model.h"
#include "models/golden.h"

enum { N_ALL = N_GOLDEN_VARIANTS + N_GOLDEN_MIXTURES };

static const char *variant_at(size_t i)
{
    return i < N_GOLDEN_VARIANTS ? golden_variants[i] : golden_mixtures[i - N_GOLDEN_VARIANTS];
}

static void plain_loops_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        check_golden(&(struct golden_run){ variant_at(i), "/model.gguf", "cpu:plain", 512, true });
        check_golden(&(struct golden_run){ variant_at(i), "", "cpu:plain", 512, true });
    }
}

// kv_b in one piece, and sizes as files had them before.
static void older_files_of_latents_give_the_reference_logits(void **state)
{
    (void)state;
    check_golden(&(struct golden_run){ "deepseek2-lite", "/legacy.gguf", "cpu:plain", 512, true });
    check_golden(&(struct golden_run){ "deepseek2-lite", "/legacy.gguf", "cpu", 512, false });
}

static void fast_exact_kernels_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        check_golden(&(struct golden_run){ variant_at(i), "/model.gguf", "cpu", 512, true });
        check_golden(&(struct golden_run){ variant_at(i), "", "cpu", 7, true }); // in chunks
    }
}

// Experts with quantised weights and int8 activations: logits are the same bits whatever rows share a step,
// and on any number of threads.
static void mixtures_give_the_same_bits_in_any_batch(void **state)
{
    static const char *const shapes[] = { "toy-qwen3moe", "toy-qwen2moe",   "toy-mixtral",
                                          "toy-olmoe",    "toy-granitemoe", "toy-gpt-oss",
                                          "toy-glm4moe",  "toy-deepseek2",  "toy-glm47" };
    char path[] = "/tmp/ingot-mixture-XXXXXX";
    uint32_t tokens[70];
    struct golden g = { .tokens = tokens, .n = 70, .n_vocab = 512 };

    (void)state;
    close(mkstemp(path));
    for (uint32_t i = 0; i < 70; i++)
        tokens[i] = (i * 37 + 5) % 512;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct random_model_options o = {
            .shape = shapes[i], .type = i % 2 ? "Q4_K_M" : "Q4_0", .output = path, .seed = 5
        };
        struct ingot_engine_options e = ingot_engine_defaults();
        struct err err = { 0 };
        assert_ok(random_model_file(&o, &err), &err);
        e.model = path;
        e.device = "cpu";
        float *whole = run_logits(&e, &g);
        e.n_batch = 3;
        e.n_threads = 1;
        float *parts = run_logits(&e, &g);
        assert_memory_equal(whole, parts, sizeof(float) * g.n * g.n_vocab);
        free(whole);
        free(parts);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_give_the_reference_logits),
        cmocka_unit_test(older_files_of_latents_give_the_reference_logits),
        cmocka_unit_test(fast_exact_kernels_give_the_reference_logits),
        cmocka_unit_test(mixtures_give_the_same_bits_in_any_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
