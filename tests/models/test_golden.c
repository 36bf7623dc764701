// test_golden.c - every architecture against logits of the reference implementation, at every position, from
// both file formats.
//
// Exact: fp32 against fp32.
#include <unistd.h>
#include "model_tools/random/random_model.h"
#include "models/golden_cost.h"

enum { N_FIRST = N_GOLDEN_VARIANTS + N_GOLDEN_MIXTURES, N_ALL = N_FIRST + N_GOLDEN_HYBRIDS };

static const char *variant_at(size_t i)
{
    if (i >= N_FIRST)
        return golden_hybrids[i - N_FIRST];
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

// Matrices of EXL3 are read as F16: a squared error of 1e-6 is what that rounding costs.
static void trellis_codes_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_TRELLIS; i++) {
        double most = golden_trellis_gate(golden_trellis[i]);
        check_golden_within(&(struct golden_run){ golden_trellis[i], "", "cpu:plain", 512, true }, NULL,
                            most);
        check_golden_within(&(struct golden_run){ golden_trellis[i], "", "cpu", 7, true }, NULL, most);
        check_golden(&(struct golden_run){ golden_trellis[i], "", "cpu", 512, false });
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

static void check_batches(const struct random_model_options *o)
{
    struct ingot_engine_options e = ingot_engine_defaults();
    struct err err = { 0 };
    uint32_t tokens[70];
    struct golden g = { .tokens = tokens, .n = 70, .n_vocab = 512 };

    for (uint32_t i = 0; i < 70; i++)
        tokens[i] = (i * 37 + 5) % 512;
    assert_ok(random_model_file(o, &err), &err);
    e.model = o->output;
    e.device = "cpu";
    float *whole = run_logits(&e, &g);
    e.n_batch = 3;
    e.n_threads = 1;
    float *parts = run_logits(&e, &g);
    assert_memory_equal(whole, parts, sizeof(float) * g.n * g.n_vocab);
    free(whole);
    free(parts);
}

// Quantised weights and int8 activations, with experts and without: logits are the same bits whatever rows
// share a step, and on any number of threads.
static void models_give_the_same_bits_in_any_batch(void **state)
{
    static const char *const shapes[] = {
        "toy-qwen3moe", "toy-qwen2moe",     "toy-mixtral",    "toy-olmoe",         "toy-granitemoe",
        "toy-gpt-oss",  "toy-glm4moe",      "toy-deepseek2",  "toy-glm47",         "toy-gemma3",
        "toy-olmo2",    "toy-glm4",         "toy-phi3",       "toy-smollm3",       "toy-granite",
        "toy-mistral3", "toy-lfm2",         "toy-lfm2moe",    "toy-qwen35",        "toy-qwen35moe",
        "toy-mistral4", "toy-gemma4",       "toy-nemotronh",  "toy-granitehybrid", "toy-granitehybrid-moe",
        "toy-olmo-3",   "toy-gemma4-dense", "toy-gemma4-e2b", "toy-deepseek3"
    };
    char path[] = "/tmp/ingot-mixture-XXXXXX";

    (void)state;
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_batches(&(struct random_model_options){
            .shape = shapes[i], .type = i % 2 ? "Q4_K_M" : "Q4_0", .output = path, .seed = 5 });
    unlink(path);
}

// With other numbers of layers than the shape has: a window's alone, and cuts between layers that share.
static void models_cut_anywhere_give_the_same_bits_too(void **state)
{
    static const char *const shapes[] = { "toy-gemma4-dense", "toy-gemma4-e2b", "toy-olmo-3" };
    char path[] = "/tmp/ingot-mixture-XXXXXX";

    (void)state;
    close(mkstemp(path));
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t n = 1; n <= 9; n++)
            check_batches(&(struct random_model_options){
                .shape = shapes[i], .type = n % 2 ? "BF16" : "Q4_0", .output = path, .n_layers = n });
    unlink(path);
}

// Layers that read another's K and V, and layers that read what the first makes of a token.
static void layers_that_lean_on_others_stay_in_one_stage(void **state)
{
    struct ingot_engine_options options = ingot_engine_defaults();
    struct ingot_error error = { 0 };

    (void)state;
    options.model = SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf";
    options.device = "cpu";
    options.stages = "3";
    assert_null(ingot_engine_open(&options, &error));
    assert_non_null(strstr(error.message, "runs such a model in one stage"));
    check_golden_split(&(struct golden_run){ "gemma4", "/model.gguf", "cpu", 7, true }, "1,3");
    check_golden_split(&(struct golden_run){ "gemma3", "", "cpu", 7, true }, "2");
}

static void a_token_is_a_submission_a_wait_and_four_bytes(void **state)
{
    (void)state;
    check_token_costs("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_give_the_reference_logits),
        cmocka_unit_test(trellis_codes_give_the_reference_logits),
        cmocka_unit_test(older_files_of_latents_give_the_reference_logits),
        cmocka_unit_test(fast_exact_kernels_give_the_reference_logits),
        cmocka_unit_test(models_give_the_same_bits_in_any_batch),
        cmocka_unit_test(models_cut_anywhere_give_the_same_bits_too),
        cmocka_unit_test(layers_that_lean_on_others_stay_in_one_stage),
        cmocka_unit_test(a_token_is_a_submission_a_wait_and_four_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
