// test_convert.c - safetensors folders become the GGUF files that tools/golden made of the same checkpoints.
//
// tests/golden holds each model in both formats. Converted to F32, every tensor must have the other file's
// name, shape and bits, and the same sizes must come out of binding it.
#include "testing.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "model_tools/quantize/quantize.h"
#include "models/arch.h"
#include "text/tokenizer/tokenizer.h"

static char path[64];

static int name_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ingot-convert-XXXXXX");
    close(mkstemp(path));
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static float *decoded(const struct file_tensor *t, size_t *n)
{
    const struct quant_info *info = quant_info(t->format);
    *n = (size_t)(t->bytes / info->block_bytes * info->block_elements);
    float *values = mem_alloc_array(*n, sizeof *values);
    info->decode(t->data, values, *n);
    return values;
}

static void same_tensor(const char *model, const struct file_tensor *ours, const struct file_tensor *theirs)
{
    size_t n, n_theirs, differ = 0;
    float *a = decoded(ours, &n), *b = decoded(theirs, &n_theirs);
    bool divisors = str_is(theirs->name, "rope_freqs.weight"); // made by a formula, here and there
    if (n != n_theirs || ours->n_dims != theirs->n_dims ||
        memcmp(ours->dims, theirs->dims, sizeof ours->dims) != 0)
        fail_msg("%s: %.*s has another shape", model, STR_ARG(theirs->name));
    for (size_t i = 0; i < n; i++)
        differ += divisors ? !(a[i] > b[i] * 0.9999995f && a[i] < b[i] * 1.0000005f) : a[i] != b[i];
    if (differ)
        fail_msg("%s: %.*s: %zu of %zu values differ", model, STR_ARG(theirs->name), differ, n);
    mem_free(a);
    mem_free(b);
}

static struct model_file *open_file(const char *file_path)
{
    struct model_file *f;
    struct err err = { 0 };
    assert_ok(model_file_open(&f, file_path, &err), &err);
    return f;
}

static const char *size_of(const struct model *m, uint32_t i)
{
    const struct config_key *k = &m->arch->config[i];
    return (k->is_own ? (const char *)m->own : (const char *)&m->config) + k->offset;
}

static void same_model(const char *name)
{
    char folder[256], reference[300];
    struct err err = { 0 };
    struct model a, b;
    snprintf(folder, sizeof folder, "%s/tests/golden/%s", SOURCE_DIR, name);
    snprintf(reference, sizeof reference, "%s/model.gguf", folder);
    struct quantize_options o = { .input = folder, .output = path, .type = "F32", .n_threads = 2 };
    assert_ok(quantize_file(&o, NULL, &err), &err);
    struct model_file *ours = open_file(path), *theirs = open_file(reference);
    if (model_file_n_tensors(ours) != model_file_n_tensors(theirs))
        fail_msg("%s: %zu tensors, expected %zu", name, model_file_n_tensors(ours),
                 model_file_n_tensors(theirs));
    for (size_t i = 0; i < model_file_n_tensors(theirs); i++) {
        const struct file_tensor *t = model_file_tensor_at(theirs, i);
        char tensor[128];
        snprintf(tensor, sizeof tensor, "%.*s", STR_ARG(t->name));
        if (!model_file_tensor(ours, tensor))
            fail_msg("%s: %s is missing", name, tensor);
        same_tensor(name, model_file_tensor(ours, tensor), t);
    }
    assert_ok(model_bind(&a, ours, &err), &err);
    assert_ok(model_bind(&b, theirs, &err), &err);
    for (uint32_t i = 0; i < a.arch->n_config; i++)
        assert_memory_equal(size_of(&a, i), size_of(&b, i), 4);
    assert_true(a.arch == b.arch && a.tied == b.tied && a.pairs == b.pairs &&
                a.n_parameters == b.n_parameters);
    for (uint32_t i = 0; i < a.config.rope[0].n_dims / 2; i++)
        assert_true(a.frequencies[0][i] > b.frequencies[0][i] * 0.999999f &&
                    a.frequencies[0][i] < b.frequencies[0][i] * 1.000001f);
    assert_true(a.angle_scale[0] > b.angle_scale[0] * 0.999999f &&
                a.angle_scale[0] < b.angle_scale[0] * 1.000001f);
    model_release(&a);
    model_release(&b);
    model_file_close(ours);
    model_file_close(theirs);
}

static void folders_become_the_golden_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama2",    "llama3",     "llama-linear", "llama-yarn",   "mistral", "devstral",       "smollm2",
        "tinyllama", "qwen2",      "qwen25",       "qwen3",        "mixtral", "qwen2moe",       "qwen3moe",
        "olmoe",     "granitemoe", "gptoss",       "gptoss-mxfp4", "glm45",   "deepseek2-lite", "deepseek2",
        "deepseek3", "gemma3",     "gemma3-27b",   "smollm3",      "olmo2",   "olmo3",          "granite",
        "phi4",      "phi4-mini",  "glm4",         "ministral3",   "gemma4",  "gemma4-e2b",     "lfm2",
        "lfm2moe",   "mistral4",   "mtp-glm4moe"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        same_model(names[i]);
}

// Experts in MXFP4 keep their bits, from a folder and from GGUF; routers, sinks and biases are F32.
static void mxfp4_is_kept(void **state)
{
    static const char folder[] = SOURCE_DIR "/tests/golden/gptoss-mxfp4";

    (void)state;
    for (int from_file = 0; from_file < 2; from_file++) {
        char input[256];
        struct err err = { 0 };
        snprintf(input, sizeof input, "%s%s", folder, from_file ? "/model.gguf" : "");
        struct quantize_options o = { .input = input, .output = path, .type = "Q8_0", .n_threads = 2 };
        assert_ok(quantize_file(&o, NULL, &err), &err);
        struct model_file *ours = open_file(path),
                          *theirs = open_file(SOURCE_DIR "/tests/golden/gptoss-mxfp4/model.gguf");
        for (size_t i = 0; i < model_file_n_tensors(ours); i++) {
            const struct file_tensor *t = model_file_tensor_at(ours, i);
            char name[128];
            snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
            const struct file_tensor *before = model_file_tensor(theirs, name);
            bool expert = str_ends(t->name, STR("_exps.weight"));
            bool product = t->n_dims == 2 && !strstr(name, "ffn_gate_inp") && !strstr(name, ".bias");
            enum quant want = expert ? QUANT_MXFP4 : product ? QUANT_Q8_0 : QUANT_F32;
            if (t->format != want)
                fail_msg("%s became %s; want %s", name, quant_info(t->format)->name, quant_info(want)->name);
            if (want != QUANT_Q8_0)
                assert_memory_equal(t->data, before->data, before->bytes);
        }
        model_file_close(ours);
        model_file_close(theirs);
    }
}

// Draft layers that are whole stay; of others nothing is left, nor are they counted.
static void draft_layers_stay_where_they_are_whole(void **state)
{
    static const char *const folders[] = { "/tests/golden/glm45-air", "/tests/golden/mtp-deepseek3" };

    (void)state;
    for (uint32_t whole = 0; whole < 2; whole++) {
        struct err err = { 0 };
        struct model m;
        char folder[256];
        snprintf(folder, sizeof folder, "%s%s", SOURCE_DIR, folders[whole]);
        struct quantize_options o = { .input = folder, .output = path, .type = "F16", .n_threads = 2 };
        assert_ok(quantize_file(&o, NULL, &err), &err);
        struct model_file *ours = open_file(path);
        assert_ok(model_bind(&m, ours, &err), &err);
        assert_int_equal(m.config.n_layers, whole ? 2 : 3);
        assert_int_equal(m.config.n_draft, whole);
        assert_int_equal(m.drafts, whole);
        model_release(&m);
        model_file_close(ours);
    }
}

// The shipped model: the folder's weights at Q8_0 are the file's, bit for bit, and so are the ids of a text.
static void the_shipped_folder_becomes_the_shipped_file(void **state)
{
    (void)state;
    static const struct str text = { "Where is the red ball? 12 + 7 = 19.\n\tCaf\xc3\xa9 <|im_end|>", 53 };
    struct err err = { 0 };
    struct tokenizer *a, *b;
    struct token_ids x = { 0 }, y = { 0 };
    struct quantize_options o = {
        .input = SOURCE_DIR "/models/ingot-7m", .output = path, .type = "Q8_0", .n_threads = 2
    };
    assert_ok(quantize_file(&o, NULL, &err), &err);
    struct model_file *ours = open_file(path), *theirs = open_file(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    assert_int_equal(model_file_n_tensors(ours), model_file_n_tensors(theirs));
    for (size_t i = 0; i < model_file_n_tensors(theirs); i++) {
        const struct file_tensor *t = model_file_tensor_at(theirs, i);
        char name[128];
        snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        const struct file_tensor *found = model_file_tensor(ours, name);
        assert_true(found && found->format == t->format && found->bytes == t->bytes);
        assert_memory_equal(found->data, t->data, t->bytes);
    }
    assert_ok(tokenizer_load(&a, ours, &err), &err);
    assert_ok(tokenizer_load(&b, theirs, &err), &err);
    for (int special = 0; special < 2; special++) {
        struct tokenize_flags flags = { .add_special = special, .parse_special = special };
        x.n = y.n = 0;
        assert_ok(tokenizer_encode(a, text, flags, &x, &err), &err);
        assert_ok(tokenizer_encode(b, text, flags, &y, &err), &err);
        assert_true(x.n == y.n && x.n > 10);
        assert_memory_equal(x.ids, y.ids, x.n * sizeof *x.ids);
    }
    assert_true(str_eq(tokenizer_chat_template(a), tokenizer_chat_template(b)) &&
                tokenizer_chat_template(a).n);
    assert_true(tokenizer_eos(a) == tokenizer_eos(b) && tokenizer_bos(a) == tokenizer_bos(b));
    token_ids_free(&x);
    token_ids_free(&y);
    tokenizer_free(a);
    tokenizer_free(b);
    model_file_close(ours);
    model_file_close(theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_become_the_golden_files),
        cmocka_unit_test(mxfp4_is_kept),
        cmocka_unit_test(draft_layers_stay_where_they_are_whole),
        cmocka_unit_test(the_shipped_folder_becomes_the_shipped_file),
    };
    return cmocka_run_group_tests(tests, name_file, remove_file);
}
