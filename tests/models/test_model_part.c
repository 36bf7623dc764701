// test_model_part.c - models over several ranks that have a part of every layer each: the reference's logits
// for every architecture, one device's for every format, and one line for what cannot be cut.
#include <unistd.h>
#include "adapter_file.h"
#include "engine/api.h"
#include "model_tools/random/random_model.h"
#include "models/golden_lora.h"
#include "models/split/model_part.h"

static struct ingot_engine_options options_for(const char *model, const char *device, uint32_t n_ranks)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = model;
    o.device = device;
    o.n_tensor_parallel = n_ranks;
    o.n_threads = 1;
    o.n_batch = 7; // ragged steps
    return o;
}

// How many heads to share a golden model has at least in a layer, or 0 where it is refused by its kind.
static uint32_t ranks_at_most(const char *path)
{
    struct model_file *file;
    struct model m, part;
    struct err err = { 0 };
    uint32_t n = 9;

    assert_ok(model_file_open(&file, path, &err), &err);
    assert_ok(model_bind(&m, file, &err), &err);
    for (uint32_t l = 0; l < m.config.n_layers; l++) {
        const struct layer_config *c = &m.layer_configs[l];
        uint32_t heads = m.config.latent_dims ? c->n_heads : c->n_kv_heads;
        n = heads < n ? heads : n;
    }
    if (model_part_make(&part, &m, 0, 2, &err))
        model_part_release(&part);
    else if (strstr(err.message, "does not cut"))
        n = 0;
    else
        assert_non_null(strstr(err.message, "n_tensor_parallel 2 wants one for each rank"));
    model_release(&m);
    model_file_close(file);
    return n;
}

static struct closeness closeness_of(const struct ingot_engine_options *o, const struct golden *g)
{
    float *ours = run_logits(o, g);
    struct closeness c = compare_logits(g, ours);

    free(ours);
    return c;
}

// Gates: exact, a squared error of 1e-9; else half precision, 1e-4 beside what one device has. KL: 1e-3,
// beside what one device has where that is more (an expert that is chosen by a hair).
static void check_ranks(const char *name, const char *path, const char *device, uint32_t n_ranks, bool exact)
{
    struct golden g;
    struct ingot_engine_options o = options_for(path, device, n_ranks), whole = options_for(path, device, 0);

    golden_open(&g, name);
    o.exact = whole.exact = exact;
    struct closeness c = closeness_of(&o, &g), one = closeness_of(&whole, &g);
    print_message("%-13s %-9s %u ranks %s: squared error %.1e (one device %.1e), KL %.1e\n", name, device,
                  n_ranks, exact ? "exact" : "", c.worst_error, one.worst_error, c.mean_kl);
    double most_kl = 1e-3 + (!exact && one.mean_kl > 1e-3 ? one.mean_kl : 0);
    if (!(c.worst_error <= (exact ? 1e-9 : 1e-4 + one.worst_error)) || !(c.mean_kl <= most_kl) ||
        (exact && c.top1_changes))
        fail_msg("%s over %u ranks: squared error %g, KL %g, %u changed first choices", name, n_ranks,
                 c.worst_error, c.mean_kl, c.top1_changes);
    model_file_close(g.file);
}

// The names of those that are refused, in the order of the lists.
static void check_all(const char *const names[], size_t n, const char *refused)
{
    char found[512] = "";

    for (size_t i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", names[i]);
        uint32_t most = ranks_at_most(path);
        if (most == 0)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", names[i]);
        if (most < 2)
            continue;
        check_ranks(names[i], path, "cpu", 2, true);
        check_ranks(names[i], path, "cpu:plain", most < 4 ? most : 4, true);
        *strrchr(path, '/') = 0; // safetensors
        check_ranks(names[i], path, "cpu", most < 3 ? most : 3, true);
        check_ranks(names[i], path, "cpu", 2, false);
    }
    assert_string_equal(found, refused);
}

static void the_logits_are_the_reference_s(void **state)
{
    (void)state;
    check_all(golden_variants, N_GOLDEN_VARIANTS, "olmo2 olmo3 gemma4-e2b ");
}

static void the_mixtures_logits_are_the_reference_s(void **state)
{
    (void)state;
    check_all(golden_mixtures, N_GOLDEN_MIXTURES, "olmoe ");
}

// Older files have the two matrices of a head in one, whose half is turned while reading.
static void latents_of_older_files_are_cut(void **state)
{
    (void)state;
    check_ranks("deepseek2-lite", SOURCE_DIR "/tests/golden/deepseek2-lite/legacy.gguf", "cpu", 3, true);
}

static void recurrent_models_are_refused(void **state)
{
    (void)state;
    check_all(golden_hybrids, N_GOLDEN_HYBRIDS,
              "lfm2 lfm2moe qwen35 qwen35moe granitehybrid granitehybrid-moe nemotronh nemotronh-moe ");
}

static void codes_of_exl3_are_refused(void **state)
{
    struct ingot_error error;
    struct ingot_engine_options o = options_for(SOURCE_DIR "/tests/golden/exl3", "cpu", 2);
    (void)state;

    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    assert_non_null(strstr(error.message, "n_tensor_parallel does not cut weights of EXL3 yet"));
}

// ---- formats

static struct golden tokens_of(uint32_t n_vocab)
{
    static uint32_t tokens[23];

    for (uint32_t i = 0; i < 23; i++)
        tokens[i] = (i * i * 37 + 11) % n_vocab;
    return (struct golden){ .tokens = tokens, .n = 23, .n_vocab = n_vocab };
}

static void check_format(const char *shape, const char *type, uint32_t n_ranks)
{
    char path[] = "/tmp/ingot-part-XXXXXX";
    struct random_model_options made = { .shape = shape, .type = type, .output = path, .seed = 7 };
    struct golden g = tokens_of(512);
    struct err err = { 0 };

    close(mkstemp(path));
    assert_ok(random_model_file(&made, &err), &err);
    struct ingot_engine_options o = options_for(path, "cpu", 0);
    o.exact = true;
    float *one = run_logits(&o, &g);
    g.logits = one;
    for (uint32_t way = 0; way < 3; way++) { // panels, the file's blocks, the plain loops
        o = options_for(path, way == 2 ? "cpu:plain" : "cpu", n_ranks);
        o.exact = true;
        o.no_repack = way == 1;
        float *many = run_logits(&o, &g);
        struct closeness c = compare_logits(&g, many);
        print_message("%-10s %-8s %u ranks: squared error %.1e\n", shape, type, n_ranks, c.worst_error);
        assert_true(c.worst_error <= 1e-9 && c.top1_changes == 0);
        free(many);
    }
    free(one);
    unlink(path);
}

// toy-ranks has 4 KV heads with 256 columns of o each, and 6 blocks of 256 hidden numbers: shares differ.
static void every_format_is_cut_at_its_blocks(void **state)
{
    static const char *const types[] = { "F32",  "BF16", "F16",    "Q4_0",   "Q8_0",
                                         "Q5_K", "Q6_K", "IQ4_XS", "Q4_K_M", "MXFP4" };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_format("toy-ranks", types[i], 2 + i % 3);
}

// Of every kind of layer that is cut, whatever heads the golden models have.
static void every_kind_of_layer_is_cut(void **state)
{
    static const char *const shapes[] = {
        "toy",         "toy-qwen2",   "toy-qwen3",        "toy-gemma3",     "toy-glm4",      "toy-phi3",
        "toy-smollm3", "toy-granite", "toy-mistral3",     "toy-qwen3moe",   "toy-qwen2moe",  "toy-mixtral",
        "toy-gpt-oss", "toy-glm4moe", "toy-ranks-gemma4", "toy-granitemoe", "toy-deepseek2", "toy-glm47",
        "toy-mistral4"
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_format(shapes[i], "Q8_0", 2);
}

// ---- adapters

// To every matrix of every layer, and to the head.
static void write_adapter(const char *model, const char *path)
{
    struct gguf_builder g = { .version = 3 };
    struct model_file *file;
    struct str arch;
    struct err err = { 0 };
    char name[128];

    assert_ok(model_file_open(&file, model, &err), &err);
    assert_true(model_file_string(file, "general.architecture", &arch, &err));
    snprintf(name, sizeof name, "%.*s", STR_ARG(arch));
    adapter_head(&g, name);
    for (size_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        if (t->n_dims != 2 || str_starts(t->name, STR("token_embd")))
            continue;
        snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        adapter_pair(&g, &(struct adapter_matrix){ name, (uint32_t)t->dims[0], (uint32_t)t->dims[1] },
                     2 + i % 3, (uint32_t)i);
    }
    adapter_write(&g, path);
    model_file_close(file);
}

static float *adapted_logits(struct ingot_engine_options o, const char *adapter, const struct golden *g)
{
    struct ingot_adapter one = { adapter, "it", 1 };
    struct ingot_adapter_use use = { "it", 0.05f };

    o.exact = true;
    o.adapters = &one;
    o.n_adapters = 1;
    struct ingot_engine *engine = open_or_fail(&o);
    float *logits = run_adapted(engine, g, &use, 1);
    ingot_engine_close(engine);
    return logits;
}

static void check_adapter(const char *shape, const char *type, uint32_t most_ranks)
{
    char path[] = "/tmp/ingot-part-XXXXXX", adapter[] = "/tmp/ingot-lora-XXXXXX";
    struct random_model_options made = { .shape = shape, .type = type, .output = path, .seed = 7 };
    struct golden g = tokens_of(512);
    struct err err = { 0 };

    close(mkstemp(path));
    close(mkstemp(adapter));
    assert_ok(random_model_file(&made, &err), &err);
    write_adapter(path, adapter);
    struct ingot_engine_options whole = options_for(path, "cpu", 0);
    float *one = adapted_logits(whole, adapter, &g);
    whole.exact = true;
    float *plain = run_logits(&whole, &g);
    g.logits = one;
    struct closeness without = compare_logits(&g, plain);
    assert_true(without.worst_error > 1e-3); // it adds something
    for (uint32_t n = 2; n <= most_ranks; n++) {
        float *many = adapted_logits(options_for(path, n == 2 ? "cpu:plain" : "cpu", n), adapter, &g);
        struct closeness c = compare_logits(&g, many);
        print_message("%-10s %-8s %u ranks, adapter: squared error %.1e (without it %.1e)\n", shape, type, n,
                      c.worst_error, without.worst_error);
        assert_true(c.worst_error <= 1e-9 && c.top1_changes == 0);
        free(many);
    }
    free(one);
    free(plain);
    unlink(path);
    unlink(adapter);
}

// Its rows and columns go where the matrices' are: unequal shares, joined q, k and v, shared experts.
static void adapters_are_cut_as_the_matrices(void **state)
{
    (void)state;
    check_adapter("toy-ranks", "Q4_K", 4);
    check_adapter("toy-ranks", "Q8_0", 3);
    check_adapter("toy-phi3", "Q8_0", 2);
    check_adapter("toy-glm4", "F16", 2);
}

static bool cannot_open(const char *path, uint32_t n_ranks, const char *part)
{
    struct ingot_error error;
    struct ingot_engine_options o = options_for(path, "cpu", n_ranks);
    struct ingot_engine *engine = ingot_engine_open(&o, &error);

    if (engine)
        ingot_engine_close(engine);
    else if (!strstr(error.message, part))
        fail_msg("message '%s' does not contain '%s'", error.message, part);
    return !engine;
}

static void too_many_ranks_are_told(void **state)
{
    char path[] = "/tmp/ingot-part-XXXXXX";
    struct random_model_options made = { .shape = "toy", .type = "Q4_K", .output = path, .seed = 7 };
    struct err err = { 0 };
    (void)state;

    close(mkstemp(path));
    assert_ok(random_model_file(&made, &err), &err);
    assert_true(cannot_open(path, 2,
                            "layer 0 has 1 groups of 2 KV heads, as blocks of 256 columns need them, to "
                            "share, and n_tensor_parallel 2 wants one for each rank"));
    made.type = "Q8_0";
    assert_ok(random_model_file(&made, &err), &err);
    assert_false(cannot_open(path, 2, ""));
    assert_true(cannot_open(path, 3, "layer 0 has 2 KV heads to share, and n_tensor_parallel 3"));
    assert_true(cannot_open(path, 9, "n_tensor_parallel is 9; want at most 8"));
    unlink(path);
}

// ---- what a part is

// The ranks' rows and columns of a matrix are all of it, once.
static void parts_are_the_whole(void **state)
{
    struct model_file *file;
    struct model m, parts[3];
    struct err err = { 0 };
    uint64_t kv = 0, ffn = 0, q_bytes = 0, down_bytes = 0;
    (void)state;

    char path[] = "/tmp/ingot-part-XXXXXX";
    struct random_model_options made = { .shape = "toy-ranks", .type = "Q4_K", .output = path, .seed = 7 };
    close(mkstemp(path));
    assert_ok(random_model_file(&made, &err), &err);
    assert_ok(model_file_open(&file, path, &err), &err);
    assert_ok(model_bind(&m, file, &err), &err);
    const size_t q = offsetof(struct layer_weights, q) / sizeof(void *),
                 down = offsetof(struct layer_weights, down) / sizeof(void *);
    for (uint32_t r = 0; r < 3; r++) {
        assert_ok(model_part_make(&parts[r], &m, r, 3, &err), &err);
        kv += parts[r].layer_configs[1].n_kv_heads;
        ffn += parts[r].layer_configs[1].n_ffn;
        assert_int_equal(parts[r].layer_configs[1].n_ffn % 256, 0);
        assert_int_equal(parts[r].layer_configs[1].n_heads, 2 * parts[r].layer_configs[1].n_kv_heads);
        q_bytes += model_layer(&parts[r], 1)[q]->bytes;
        down_bytes += model_layer(&parts[r], 1)[down]->bytes;
        assert_non_null(model_layer(&parts[r], 1)[q]->data); // where they lie in the file
    }
    assert_int_equal(kv, m.layer_configs[1].n_kv_heads);
    assert_int_equal(ffn, m.layer_configs[1].n_ffn);
    assert_int_equal(q_bytes, model_layer(&m, 1)[q]->bytes);
    assert_int_equal(down_bytes, model_layer(&m, 1)[down]->bytes);
    uint64_t bytes = model_layer(&parts[1], 1)[down]->bytes, n = model_layer(&parts[1], 1)[down]->dims[1];
    unsigned char *cut = malloc(bytes);
    model_tensor_read(model_layer(&parts[1], 1)[down], 0, 256 * n, cut);
    uint64_t row = bytes / 256, all = down_bytes / 256, first = model_layer(&parts[0], 1)[down]->bytes / 256;
    for (uint32_t i = 0; i < 256; i++)
        assert_memory_equal(cut + i * row, model_layer(&m, 1)[down]->data + i * all + first, row);
    free(cut);
    for (uint32_t r = 0; r < 3; r++)
        model_part_release(&parts[r]);
    model_release(&m);
    model_file_close(file);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logits_are_the_reference_s),
        cmocka_unit_test(the_mixtures_logits_are_the_reference_s),
        cmocka_unit_test(latents_of_older_files_are_cut),
        cmocka_unit_test(recurrent_models_are_refused),
        cmocka_unit_test(codes_of_exl3_are_refused),
        cmocka_unit_test(every_format_is_cut_at_its_blocks),
        cmocka_unit_test(every_kind_of_layer_is_cut),
        cmocka_unit_test(adapters_are_cut_as_the_matrices),
        cmocka_unit_test(too_many_ranks_are_told),
        cmocka_unit_test(parts_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
