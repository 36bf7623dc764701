// test_tensor_parallel_metal.c - two Metal devices with a part of every layer each: the reference's logits,
// the CPU's text, and no race. On the emulator.
#include "engine/api.h"
#include "metal_emu.h"
#include "models/golden_lora.h"
#include "models/golden_pictures.h"

static void check_ranks(const char *name, const char *file, uint32_t n_batch, bool exact)
{
    struct golden g;
    char path[512];
    struct ingot_engine_options o = ingot_engine_defaults();

    golden_open(&g, name);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", name, file);
    o.model = path;
    o.device = "metal,metal";
    o.n_tensor_parallel = 2;
    o.n_batch = n_batch;
    o.exact = exact;
    float *ours = run_logits(&o, &g);
    struct closeness c = compare_logits(&g, ours);
    print_message("%-10s batch %u: squared error %.1e, KL %.1e\n", name, n_batch, c.worst_error, c.mean_kl);
    assert_true(c.worst_error <= (exact ? 1e-9 : 1e-4) && c.mean_kl <= 1e-3);
    free(ours);
    model_file_close(g.file);
}

static void the_logits_are_the_reference_s(void **state)
{
    static const char *const names[] = { "llama3", "qwen2", "qwen3", "gemma3", "mixtral", "qwen2moe" };
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_ranks(names[i], "/model.gguf", 512, true);
        check_ranks(names[i], "", 9, false);
    }
}

static void latents_adapters_and_pictures_are_on_all_ranks(void **state)
{
    struct golden_run run = { .device = "metal,metal", .n_batch = 9, .exact = true };
    (void)state;

    check_ranks("deepseek2-lite", "/model.gguf", 9, true);
    for (size_t i = 0; i < N_GOLDEN_LORAS; i++)
        if (strcmp(golden_loras[i].model, "granite") == 0)
            check_golden_lora_over(2, &golden_loras[i], 0, &run);
    check_picture_logits_over(2, &picture_files[1], &run);
}

// The checker sees every access of both devices' kernels.
static void the_checker_finds_nothing(void **state)
{
    (void)state;
    emu_set("check", 1);
    check_ranks("qwen3", "/model.gguf", 9, false);
    check_ranks("qwen2moe", "/model.gguf", 512, false);
    emu_set("check", 0);
}

struct answer_ids {
    uint32_t at[32], n;
};

static bool collect_id(void *arg, const struct ingot_event *event)
{
    struct answer_ids *ids = arg;

    if (event->token != UINT32_MAX && ids->n < 32)
        ids->at[ids->n++] = event->token;
    return true;
}

static struct answer_ids answer(const char *device, uint32_t n_ranks)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = "What is 12 + 30?" };
    struct ingot_error error = { 0 };
    struct answer_ids ids = { .n = 0 };

    o.device = device;
    o.n_tensor_parallel = n_ranks;
    o.n_context = 256;
    o.exact = true;
    struct ingot_engine *engine = open_or_fail(&o);
    r.sampling.temperature = 0;
    r.max_tokens = 32;
    r.messages = &message;
    r.n_messages = 1;
    if (!ingot_generate(engine, &r, collect_id, &ids, NULL, &error))
        fail_msg("%s", error.message);
    ingot_engine_close(engine);
    return ids;
}

static void the_text_is_the_cpu_s(void **state)
{
    struct answer_ids cpu = answer("cpu", 0), metal = answer("metal,metal", 2);
    (void)state;

    assert_true(cpu.n > 4 && cpu.n == metal.n);
    assert_memory_equal(cpu.at, metal.at, cpu.n * sizeof *cpu.at);
}

// It would be slower than without ranks, and nobody asked for it.
static void one_gpu_is_not_two_ranks(void **state)
{
    static const char *const names[] = { "metal", "metal:0", "auto" };
    (void)state;

    for (uint32_t i = 0; i < 3; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_error error = { 0 };
        o.device = names[i];
        o.n_tensor_parallel = 2;
        assert_null(ingot_engine_open(&o, &error));
        assert_int_equal(error.code, INGOT_INPUT);
        if (!strstr(error.message, "n_tensor_parallel 2 wants 2 GPUs, and metal:0 would be several of them "
                                   "(found: 1); leave it out"))
            fail_msg("%s: message '%s'", names[i], error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logits_are_the_reference_s),
        cmocka_unit_test(latents_adapters_and_pictures_are_on_all_ranks),
        cmocka_unit_test(the_checker_finds_nothing),
        cmocka_unit_test(the_text_is_the_cpu_s),
        cmocka_unit_test(one_gpu_is_not_two_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
