// test_golden_cuda.c - every architecture's logits on an NVIDIA GPU: through graphs, pages and the engine.
// Skipped where there is none. The golden weights are fp32 or fp16: no activation is quantised.
// test_golden_cuda PATTERN runs some of the tests.
#include "device/cuda/cuda.h"
#include "device_pairs.h"
#include "models/golden_cost.h"
#include "models/lora_families.h"
#include "models/shipped_eyes.h"

static bool gpu_exists(void)
{
    struct err err = { 0 };
    bool exists = cuda_n_devices(&err) > 0;

    if (!exists)
        print_message("skipped: %s\n", err.message);
    return exists;
}

static void reference_logits_on_the_gpu(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++) {
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cuda", 512, true });
        check_golden(&(struct golden_run){ golden_variants[i], "", "cuda", 7, true });
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cuda", 512, false });
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cuda", 1, false });
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cuda", 9, false });
    }
}

static void trellis_codes_give_the_reference_logits_on_the_gpu(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_TRELLIS; i++)
        check_golden_within(&(struct golden_run){ golden_trellis[i], "", "cuda", 512, true }, NULL,
                            golden_trellis_gate(golden_trellis[i]));
    check_golden(&(struct golden_run){ "exl3", "", "cuda", 9, false });
    check_golden(&(struct golden_run){ "exl3", "", "cuda", 1, false });
    check_golden(&(struct golden_run){ "exl3", "", "cuda", 512, false });
    check_golden(&(struct golden_run){ "exl3-experts", "", "cuda", 1, true });
}

// In fp32 alone: an activation that is rounded may choose another expert. test_cuda_experts and ingot verify
// look at the other kernels.
static void mixtures_give_the_reference_logits_on_the_gpu(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++) {
        check_golden(&(struct golden_run){ golden_mixtures[i], "/model.gguf", "cuda", 512, true });
        check_golden(&(struct golden_run){ golden_mixtures[i], "", "cuda", 7, true });
    }
}

static void adapters_give_the_logits_of_merged_weights_on_the_gpu(void **state)
{
    static const struct golden_run runs[] = { { .device = "cuda", .n_batch = 512, .exact = true },
                                              { .device = "cuda", .n_batch = 7, .exact = true },
                                              { .device = "cuda", .n_batch = 1 },
                                              { .device = "cuda", .n_batch = 512 } };

    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_LORAS; i++)
        for (uint32_t r = 0; r < sizeof runs / sizeof *runs; r++)
            check_golden_lora(&golden_loras[i], r, &runs[r]);
    lora_families_begin(state);
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++)
        check_family(golden_variants[i], "cuda");
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        check_family(golden_hybrids[i], "cuda");
    lora_families_end(state);
}

static void hybrids_give_the_reference_logits_on_the_gpu(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++) {
        check_golden(&(struct golden_run){ golden_hybrids[i], "/model.gguf", "cuda", 512, true });
        check_golden(&(struct golden_run){ golden_hybrids[i], "", "cuda", 7, true });
        check_golden(&(struct golden_run){ golden_hybrids[i], "/model.gguf", "cuda", 1, true });
    }
}

static void invariant_logits_in_any_chunks(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (int exact = 0; exact < 2; exact++) {
        check_invariant("ingot-7m", SOURCE_DIR "/models/ingot-7m-q8_0.gguf", "cuda", exact);
        for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
            check_invariant(golden_hybrids[i], NULL, "cuda", exact);
        for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++)
            check_invariant(golden_mixtures[i], NULL, "cuda", exact);
        for (size_t i = 0; i < N_GOLDEN_WINDOWS; i++)
            check_invariant(golden_windows[i], NULL, "cuda", exact);
    }
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        check_kept(golden_hybrids[i], "cuda");
    for (size_t i = 0; i < N_GOLDEN_WINDOWS; i++)
        check_kept(golden_windows[i], "cuda");
}

static bool append_text(void *arg, const struct ingot_event *event)
{
    char *text = arg;
    size_t n = strlen(text);
    assert_true(n + event->n_bytes < 2000);
    memcpy(text + n, event->text, event->n_bytes + 1);
    return true;
}

static void ask(const char *device, bool exact, const char *const *questions, char (*answers)[2000],
                uint32_t n)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = device;
    o.exact = exact;
    struct ingot_engine *engine = open_or_fail(&o);
    r.sampling.temperature = 0;
    r.max_tokens = 100;
    r.n_messages = 1;
    for (uint32_t i = 0; i < n; i++) {
        struct ingot_message message = { .role = "user", .content = questions[i] };
        r.messages = &message;
        answers[i][0] = 0;
        if (!ingot_generate(engine, &r, append_text, answers[i], NULL, &error))
            fail_msg("%s", error.message);
    }
    ingot_engine_close(engine);
}

static void the_shipped_model_answers_as_on_the_processor(void **state)
{
    static const char *const questions[] = { "What is your name?",
                                             "Say hello.",
                                             "What color is the sky?",
                                             "Tell me about the moon.",
                                             "How many legs has a dog?",
                                             "What is 2 + 2?",
                                             "Who wrote you?",
                                             "Name three animals.",
                                             "Is water wet?",
                                             "What do bees make?" };
    enum { N = sizeof questions / sizeof *questions };
    static char answers[2][N][2000];

    (void)state;
    if (!gpu_exists())
        skip();
    for (int exact = 0; exact < 2; exact++) {
        ask("cpu", exact, questions, answers[0], N);
        ask("cuda", exact, questions, answers[1], N);
        for (uint32_t i = 0; i < N; i++)
            assert_string_equal(answers[0][i], answers[1][i]);
    }
}

static void the_shipped_eyes_answer(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    struct ingot_engine *engine = eyes_open(INGOT_BUILTIN_EYES, "cuda");
    eyes_check(engine, false, 1);
    eyes_check(engine, true, 1);
    ingot_engine_close(engine);
}

// Two stages of one GPU; the GPU and the CPU, in both orders; the GPU twice, and two GPUs: the activations of
// these go through host memory.
static void one_model_over_two_devices(void **state)
{
    static const char *const pairs[] = { "cuda:0", "cuda:0,cpu", "cpu,cuda:0", "cuda:0,cuda:0",
                                         "cuda:0,cuda:1" };
    struct err err = { 0 };
    (void)state;

    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs - (cuda_n_devices(&err) < 2); i++) {
        check_pair_of_devices(pairs[i], true);
        check_pair_of_devices(pairs[i], false);
        check_story_on_pair(pairs[i], 1);
    }
}

static void a_token_is_a_submission_a_wait_and_four_bytes(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    check_token_costs("cuda");
}

static void experts_on_the_processor_give_the_reference_logits(void **state)
{
    (void)state;
    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++) {
        check_golden_placed(&(struct golden_run){ golden_mixtures[i], "/model.gguf", "cuda", 512, true },
                            NULL, "cpu");
        check_golden_placed(&(struct golden_run){ golden_mixtures[i], "/model.gguf", "cuda", 7, true }, NULL,
                            "cpu:1");
    }
}

static uint64_t told_bytes; // for all of the GPU's memory

static cu_result tell_memory(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = told_bytes;
    return 0;
}

// The same kernels read the same rows.
static void inputs_in_the_hosts_memory_give_the_same_logits(void **state)
{
    struct ingot_memory m;
    struct ingot_error error;
    struct golden g;

    (void)state;
    if (!gpu_exists())
        skip();
    struct driver small = *driver_load(NULL);
    golden_open(&g, "gemma4-e2b");
    for (int exact = 0; exact < 2; exact++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        o.model = SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf";
        o.device = "cuda";
        o.exact = exact;
        o.n_batch = 512;
        assert_ok(ingot_engine_estimate(&o, &m, &error), &error);
        float *near = run_logits(&o, &g);
        told_bytes = m.weight_bytes + m.page_bytes + m.scratch_bytes - 1;
        small.memory_info = tell_memory;
        driver_replace(&small);
        struct ingot_engine *engine = open_or_fail(&o);
        assert_non_null(engine->inner.loaded->stages[0].parts.weights.input_embed->buffer.host);
        ingot_engine_close(engine);
        float *far = run_logits(&o, &g);
        driver_replace(NULL);
        assert_memory_equal(near, far, (size_t)g.n * g.n_vocab * sizeof *near);
        free(near);
        free(far);
    }
    model_file_close(g.file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reference_logits_on_the_gpu),
                                        cmocka_unit_test(trellis_codes_give_the_reference_logits_on_the_gpu),
                                        cmocka_unit_test(mixtures_give_the_reference_logits_on_the_gpu),
                                        cmocka_unit_test(
                                            adapters_give_the_logits_of_merged_weights_on_the_gpu),
                                        cmocka_unit_test(hybrids_give_the_reference_logits_on_the_gpu),
                                        cmocka_unit_test(invariant_logits_in_any_chunks),
                                        cmocka_unit_test(a_token_is_a_submission_a_wait_and_four_bytes),
                                        cmocka_unit_test(one_model_over_two_devices),
                                        cmocka_unit_test(experts_on_the_processor_give_the_reference_logits),
                                        cmocka_unit_test(inputs_in_the_hosts_memory_give_the_same_logits),
                                        cmocka_unit_test(the_shipped_model_answers_as_on_the_processor),
                                        cmocka_unit_test(the_shipped_eyes_answer) };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
