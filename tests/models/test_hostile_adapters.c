// test_hostile_adapters.c - LoRA adapters that do not fit or are damaged: each is refused in one line that
// says what was found, and nothing is left behind.
#include <math.h>
#include <unistd.h>
#include "adapter_file.h"
#include "models/binding/adapter.h"
#include "open_engine.h"

#define GOLDEN(path) SOURCE_DIR "/tests/golden/" path

static struct model_file *file;
static struct model model;
static char folder[] = "/tmp/ingot-adapter-XXXXXX";
static const struct adapter_matrix Q = { "blk.0.attn_q.weight", 72, 72 };

static int open_model(void **state)
{
    struct err err = { 0 };

    (void)state;
    return mkdtemp(folder) && model_file_open(&file, GOLDEN("tinyllama/model.gguf"), &err) &&
                   model_bind(&model, file, &err)
               ? 0
               : -1;
}

static int close_model(void **state)
{
    (void)state;
    model_release(&model);
    model_file_close(file);
    shell("rm -r %s", folder);
    return 0;
}

static bool binds(struct gguf_builder *g, struct err *err)
{
    struct model_file *image;
    struct adapter a = { 0 };

    gguf_image(g);
    bool ok = model_file_open_memory(&image, g->image, g->n, "adapter.gguf", err) &&
              adapter_bind(&a, &model, image, err);
    assert_true(ok || !strchr(err->message, '\n'));
    adapter_close(&a);
    gguf_builder_free(g);
    return ok;
}

static void refuses(struct gguf_builder *g, const char *why)
{
    struct err err = { 0 };
    assert_fails(binds(g, &err), &err, why);
}

static struct gguf_builder headed(void)
{
    struct gguf_builder g = { .version = 3 };
    adapter_head(&g, "llama");
    return g;
}

static void what_a_gguf_file_says_must_fit(void **state)
{
    static const struct {
        const char *type, *arch, *kind;
        float alpha;
        const char *why;
    } cases[] = {
        { "model", "llama", "lora", 1, "general.type is 'model'; want 'adapter'" },
        { NULL, "llama", "lora", 1, "general.type is ''; want 'adapter'" },
        { "adapter", "llama", "control_vector", 1, "adapter.type is 'control_vector'; want 'lora'" },
        { "adapter", "qwen2", "lora", 1, "an adapter of a 'qwen2' model; this model is 'llama'" },
        { "adapter", "llama", "lora", 0, "adapter.lora.alpha is missing" },
        { "adapter", "llama", "lora", NAN, "adapter.lora.alpha is nan; expected a number" },
        { "adapter", "llama", "lora", -4, "adapter.lora.alpha is -4; expected a number" },
    };
    struct err err = { 0 };

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_builder g = { .version = 3 };
        if (cases[i].type)
            gguf_meta_str(&g, "general.type", cases[i].type);
        gguf_meta_str(&g, "general.architecture", cases[i].arch);
        gguf_meta_str(&g, "adapter.type", cases[i].kind);
        if (cases[i].alpha != 0)
            gguf_meta_f32(&g, "adapter.lora.alpha", cases[i].alpha);
        adapter_pair(&g, &Q, 3, 1);
        refuses(&g, cases[i].why);
    }
    struct gguf_builder good = headed(), late = headed();
    adapter_pair(&good, &Q, 3, 1);
    assert_ok(binds(&good, &err), &err);
    gguf_meta_array(&late, "adapter.alora.invocation_tokens", 4, 2, (uint32_t[]){ 5, 6 }, 8);
    adapter_pair(&late, &Q, 3, 1);
    refuses(&late, "adapter.alora.invocation_tokens is set: it adds from these tokens on");
}

static void shapes_must_fit(void **state)
{
    static const struct {
        uint32_t a[2], b[2];
        const char *why;
    } cases[] = {
        { { 3, 71 },
          { 72, 3 },
          "attn_q.weight.lora_a is [3, 71] with 2 dimensions; for this model it must be [3, 72]" },
        { { 3, 72 }, { 73, 3 }, "lora_b is [73, 3] with 2 dimensions; for this model it must be [72, 3]" },
        { { 3, 72 }, { 72, 4 }, "lora_b is [72, 4] with 2 dimensions; for this model it must be [72, 3]" },
        { { 1025, 72 }, { 72, 1025 }, "has rank 1025 and 2 dimensions; want 1 to 1024, and two" },
        { { 0, 72 }, { 72, 0 }, "adapter.gguf" }, // the reader's own words
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_builder g = headed();
        adapter_tensor(&g, "blk.0.attn_q.weight.lora_a", cases[i].a[0], cases[i].a[1], 1);
        adapter_tensor(&g, "blk.0.attn_q.weight.lora_b", cases[i].b[0], cases[i].b[1], 2);
        refuses(&g, cases[i].why);
    }
    struct gguf_builder g = headed();
    float numbers[72] = { 0 };
    gguf_tensor(&g, "blk.0.attn_q.weight.lora_a", 0, 1, (uint64_t[]){ 72 }, numbers, sizeof numbers);
    adapter_tensor(&g, "blk.0.attn_q.weight.lora_b", 72, 1, 2);
    refuses(&g, "and 1 dimensions; want 1 to 1024, and two");
    g = headed();
    gguf_tensor(&g, "blk.0.attn_q.weight.lora_a", 26, 2, (uint64_t[]){ 72, 1 }, numbers, sizeof numbers);
    adapter_tensor(&g, "blk.0.attn_q.weight.lora_b", 72, 1, 2);
    refuses(&g, "holds I32; want floats or blocks");
}

static void names_must_be_the_models(void **state)
{
    static const struct {
        struct adapter_matrix m;
        const char *why;
    } cases[] = {
        { { "blk.2.attn_q.weight", 72, 72 },
          "blk.2.attn_q.weight.lora_a adds to no matrix that ingot knows" },
        { { "blk.0.attn_qq.weight", 72, 72 }, "llama model of 2 layers" },
        { { "blk.0.attn_norm.weight", 1, 72 }, "it adds to blk.0.attn_norm.weight, which is no matrix" },
        { { "token_embd.weight", 257, 72 }, "it adds to token_embd.weight, which is an embedding" },
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_builder g = headed();
        adapter_pair(&g, &Q, 2, 1);
        adapter_pair(&g, &cases[i].m, 2, 7);
        refuses(&g, cases[i].why);
    }
    struct gguf_builder g = headed();
    adapter_tensor(&g, "blk.0.attn_q.weight.lora_a", 3, 72, 1);
    refuses(&g, "tensor blk.0.attn_q.weight.lora_b is missing; its other half is there");
    g = headed();
    refuses(&g, "there are no tensors in it");
}

static void numbers_must_be_finite(void **state)
{
    static const float bad[] = { NAN, 2e38f, -INFINITY }; // the second: times alpha over the rank

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        float a[72] = { 0 }, b[72] = { 0 };
        struct gguf_builder g = headed();
        *(i == 1 ? &b[5] : &a[70]) = bad[i];
        gguf_tensor(&g, "blk.0.attn_q.weight.lora_a", 0, 2, (uint64_t[]){ 72, 1 }, a, sizeof a);
        gguf_tensor(&g, "blk.0.attn_q.weight.lora_b", 0, 2, (uint64_t[]){ 1, 72 }, b, sizeof b);
        refuses(&g, i == 1 ? "lora_b holds NaN or infinity at number 5"
                           : "lora_a holds NaN or infinity at number 70");
    }
}

// The golden adapter's numbers, beside other words.
static void what_peft_says_must_be_plain(void **state)
{
    static const struct {
        const char *config, *why;
    } cases[] = {
        { "{}", "peft_type is ''; want 'LORA'" },
        { "{\"peft_type\":\"IA3\"}", "peft_type is 'IA3'; want 'LORA'" },
        { "{\"peft_type\":\"LORA\",\"r\":4}", "lora_alpha is missing" },
        { "{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":3}",
          "r is 0; expected a whole number from 1 to 1024" },
        { "{\"peft_type\":\"LORA\",\"r\":5,\"lora_alpha\":3}", "has rank 4; adapter_config.json says 5" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"use_dora\":true}",
          "use_dora is set: DoRA scales whole" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"bias\":\"all\"}", "bias is 'all'" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"fan_in_fan_out\":true}",
          "fan_in_fan_out is set" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"modules_to_save\":[\"lm_head\"]}",
          "modules_to_save is set" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"alora_invocation_tokens\":[5,6]}",
          "alora_invocation_tokens is set: it adds from these tokens on" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"use_rslora\":7}",
          "use_rslora is 7; expected true or false" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"alpha_pattern\":{\"q.*\":1}}",
          "is a regular expression" },
        { "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"alpha_pattern\":{\"q_proj\":\"x\"}}",
          "alpha_pattern.q_proj is the string" },
        { "[]", "adapter_config.json" },
    };
    struct err err = { 0 };
    struct adapter a;

    (void)state;
    shell("cp " GOLDEN("lora/tinyllama-root/adapter_model.safetensors") " %s", folder);
    assert_fails(adapter_open(&a, &model, folder, &err), &err, "no adapter_config.json in this folder");
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shell("printf '%%s' '%s' > %s/adapter_config.json", cases[i].config, folder);
        assert_fails(adapter_open(&a, &model, folder, &err), &err, cases[i].why);
        assert_null(strchr(err.message, '\n'));
    }
    shell("printf '{\"peft_type\":\"LORA\",\"lora_alpha\":3,\"alpha_pattern\":{\"x.q_proj\":1}}' > "
          "%s/adapter_config.json",
          folder);
    assert_ok(adapter_open(&a, &model, folder, &err), &err); // other words name no module here
    adapter_close(&a);
    shell("head -c 200 " GOLDEN(
              "lora/tinyllama-root/adapter_model.safetensors") " > %s/adapter_model.safetensors",
          folder);
    assert_fails(adapter_open(&a, &model, folder, &err), &err, "adapter_model.safetensors: the header");
}

// What is multiplied by an operation of its own is known when the tape is recorded.
static void what_experts_share_is_refused(void **state)
{
    static const struct adapter_matrix matrices[] = { { "blk.1.ffn_gate_shexp.weight", 44, 56 },
                                                      { "blk.0.ffn_gate_inp.weight", 6, 56 } };
    struct ingot_engine_options o = ingot_engine_defaults();
    char path[96];
    struct ingot_adapter adapter = { path, "x", 1 };
    struct ingot_error error;

    (void)state;
    o.model = GOLDEN("qwen2moe/model.gguf");
    o.device = "cpu";
    o.adapters = &adapter;
    o.n_adapters = 1;
    for (uint32_t i = 0; i < 2; i++) {
        struct gguf_builder g = { .version = 3 };
        snprintf(path, sizeof path, "%s/shared.gguf", folder);
        adapter_head(&g, "qwen2moe");
        adapter_pair(&g, &matrices[i], 2, 1);
        adapter_write(&g, path);
        assert_fails(ingot_engine_open(&o, &error), &error,
                     "which qwen2moe models multiply in a way that ingot cannot add to");
        assert_non_null(strstr(error.message, matrices[i].name));
    }
    struct gguf_builder g = { .version = 3 };
    float numbers[7 * 2 * 56] = { 0 };
    adapter_head(&g, "qwen2moe");
    gguf_tensor(&g, "blk.0.ffn_gate_exps.weight.lora_a", 0, 3, (uint64_t[]){ 56, 2, 6 }, numbers,
                6 * 2 * 56 * 4);
    gguf_tensor(&g, "blk.0.ffn_gate_exps.weight.lora_b", 0, 3, (uint64_t[]){ 2, 18, 6 }, numbers,
                6 * 2 * 18 * 4);
    adapter_write(&g, path);
    assert_fails(ingot_engine_open(&o, &error), &error,
                 "it adds to blk.0.ffn_gate_exps.weight, a stack of matrices, as of experts");
}

// In both formats its numbers lie in other orders.
static void some_architectures_want_their_own_format(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    char path[96];
    struct ingot_adapter adapter = { path, "x", 1 };
    struct gguf_builder g = { .version = 3 };
    struct ingot_error error;

    (void)state;
    snprintf(path, sizeof path, "%s/foreign.gguf", folder);
    adapter_head(&g, "granitehybrid");
    adapter_tensor(&g, "blk.0.ffn_down.weight.lora_a", 2, 1, 1);
    adapter_tensor(&g, "blk.0.ffn_down.weight.lora_b", 1, 2, 1);
    adapter_write(&g, path);
    o.model = GOLDEN("granitehybrid");
    o.device = "cpu";
    o.adapters = &adapter;
    o.n_adapters = 1;
    assert_fails(ingot_engine_open(&o, &error), &error, "want an adapter in the model's own format");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_gguf_file_says_must_fit),
        cmocka_unit_test(shapes_must_fit),
        cmocka_unit_test(names_must_be_the_models),
        cmocka_unit_test(numbers_must_be_finite),
        cmocka_unit_test(what_peft_says_must_be_plain),
        cmocka_unit_test(what_experts_share_is_refused),
        cmocka_unit_test(some_architectures_want_their_own_format),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
