// test_golden.c - every architecture against logits of the reference implementation, at every position, from both file formats.
//
// The models are tiny and fully re-randomised, with odd sizes; tools/golden/ makes them. Gates: exact fp32 against fp32, normalised
// squared error at most 1e-9 and the same first choice wherever its margin exceeds 1e-3.
#include "models/golden.h"

static const char *const variants[] = { "llama2",  "tinyllama", "llama3", "llama-linear", "llama-yarn", "smollm2",
                                        "mistral", "devstral",  "qwen2",  "qwen25",       "qwen3" };

static void check_variant(const char *variant, const char *file, const char *device, uint32_t n_batch)
{
    struct golden g;
    char path[512];
    struct ingot_engine_options options = ingot_engine_defaults();

    golden_open(&g, variant);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", variant, file);
    options.model = path;
    options.device = device;
    options.exact = true;
    options.n_batch = n_batch;
    float *ours = run_logits(&options, &g);
    struct closeness c = compare_logits(&g, ours);
    print_message("%-13s %-12s %-9s squared error %.1e, KL %.1e\n", variant, *file ? file : "safetensors", device, c.worst_error,
                  c.mean_kl);
    if (!(c.worst_error <= 1e-9) || c.top1_changes != 0)
        fail_msg("%s%s on %s: squared error %g, %u changed first choices; want at most 1e-9 and none", variant, file, device,
                 c.worst_error, c.top1_changes);
    free(ours);
    model_file_close(g.file);
}

static void plain_loops_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_variant(variants[i], "/model.gguf", "cpu:plain", 512);
        check_variant(variants[i], "", "cpu:plain", 512);
    }
}

static void fast_exact_kernels_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_variant(variants[i], "/model.gguf", "cpu", 512);
        check_variant(variants[i], "", "cpu", 7); // in chunks
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_give_the_reference_logits),
        cmocka_unit_test(fast_exact_kernels_give_the_reference_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
