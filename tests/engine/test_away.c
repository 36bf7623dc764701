// test_away.c - experts on another device than the rest of their layers: the bits of one device where both
// compute alike, the reference's logits where they do not.
#include "engine/stage/away.h"
#include "engine/api.h"
#include "engine/api/verify.h"
#include "engine/stage/plan.h"
#include "models/golden.h"

#define MIXTURE(name) SOURCE_DIR "/tests/golden/" name "/model.gguf"

static float *logits_with(const char *path, const struct golden *g, const char *stages, const char *experts)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = path;
    o.device = stages ? "cpu,cpu" : "cpu";
    o.stages = stages;
    o.experts = experts;
    o.n_batch = 9;
    return run_logits(&o, g);
}

// Of every architecture: all experts, and those of the last layer, also behind a border between stages.
static void another_cpu_gives_the_same_bits(void **state)
{
    static const char *const ways[][2] = {
        { NULL, "cpu" }, { NULL, "cpu:1" }, { "1", "cpu" }, { "1", "cpu:1" }
    };
    (void)state;

    static const char *const more[] = { "gemma4-moe", "granitehybrid-moe" };

    for (size_t i = 0; i < N_GOLDEN_MIXTURES + 2; i++) {
        const char *name = i < N_GOLDEN_MIXTURES ? golden_mixtures[i] : more[i - N_GOLDEN_MIXTURES];
        struct golden g;
        char path[512];
        golden_open(&g, name);
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", name);
        float *whole = logits_with(path, &g, NULL, NULL);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            float *apart = logits_with(path, &g, ways[w][0], ways[w][1]);
            assert_memory_equal(whole, apart, (size_t)g.n * g.n_vocab * sizeof *whole);
            free(apart);
        }
        free(whole);
        model_file_close(g.file);
    }
}

static void unlike_cpus_keep_to_the_gates(void **state)
{
    static const char *const ways[][2] = { { "cpu", "cpu:plain" },
                                           { "cpu:plain", "cpu" },
                                           { "cpu", "cpu:plain:1" } };
    (void)state;

    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            check_golden_placed(
                &(struct golden_run){ golden_mixtures[i], "/model.gguf", ways[w][0], 7, true }, NULL,
                ways[w][1]);
    check_golden_placed(&(struct golden_run){ "qwen3moe", "", "cpu,cpu:plain", 512, true }, "1", "cpu:plain");
    check_golden_placed(&(struct golden_run){ "lfm2moe", "/model.gguf", "cpu", 7, true }, NULL, "cpu:plain");
    check_golden_placed(&(struct golden_run){ "qwen35moe", "/model.gguf", "cpu", 7, true }, NULL,
                        "cpu:plain");
    check_golden_placed(&(struct golden_run){ "gemma4-moe", "", "cpu", 7, true }, NULL, "cpu:plain");
    check_golden_placed(&(struct golden_run){ "granitehybrid-moe", "", "cpu", 7, true }, NULL, "cpu:plain:1");
}

static uint64_t weight_bytes(const struct stage *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n_weights; i++)
        bytes += s->weights[i].bytes;
    return bytes;
}

// Each weight is on one device; the experts' stage has nothing else, and the two share their block.
static void every_weight_is_on_one_device(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_engine_info info;
    (void)state;

    o.model = MIXTURE("deepseek3"); // a leading dense layer
    o.device = "cpu:plain";
    struct ingot_engine *one = open_or_fail(&o);
    o.experts = "cpu:plain";
    struct ingot_engine *two = open_or_fail(&o);
    const struct engine_loaded *l = two->inner.loaded;
    const struct stage *s = &l->stages[0], *experts = &s->away->stage;
    ingot_engine_info(two, &info);
    assert_non_null(strstr(info.device, ", experts of layers 1 to "));
    assert_int_equal(experts->parts.first, l->model.config.n_dense);
    assert_int_equal(weight_bytes(s) + weight_bytes(experts), weight_bytes(&one->inner.loaded->stages[0]));
    assert_null(experts->pages);
    assert_ptr_equal(experts->block.host, s->block.host);
    uint32_t n_layers = l->model.config.n_layers, n_dense = l->model.config.n_dense;
    assert_int_equal(tape_n_segments(s->buckets[0].tape), n_layers - n_dense + 1);
    assert_int_equal(tape_n_segments(experts->buckets[0].tape), n_layers - n_dense);
    struct place_memory whole = place_memory(&l->model, &one->inner.loaded->stages[0].shape, NULL),
                        rest = place_memory(&l->model, &s->shape, NULL),
                        away =
                            place_experts_memory(&l->model, &s->shape, (struct layer_range){ 0, n_layers });
    assert_int_equal(rest.weights + away.weights, whole.weights);
    assert_true(away.weights > 0 && rest.weights > 0 && away.pages == 0);
    ingot_engine_close(one);
    ingot_engine_close(two);
}

static void layers_are_the_last_that_have_experts(void **state)
{
    struct model m = { .n_experts = 4, .config = { .n_layers = 10, .n_dense = 2 } };
    static const struct {
        uint32_t n_away;
        struct layer_range of, away;
    } cases[] = { { 10, { 0, 10 }, { 2, 10 } }, { 3, { 0, 10 }, { 7, 10 } },
                  { 3, { 0, 5 }, { 5, 5 } },    { 3, { 8, 10 }, { 8, 10 } },
                  { 10, { 0, 2 }, { 2, 2 } },   { 0, { 0, 10 }, { 10, 10 } },
                  { 9, { 1, 3 }, { 2, 3 } },    { UINT32_MAX, { 0, 3 }, { 2, 3 } } };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layer_range got = away_layers(&m, cases[i].n_away, cases[i].of);
        assert_int_equal(got.first, cases[i].away.first);
        assert_int_equal(got.last, cases[i].away.last);
    }
}

static bool count_finding(void *arg, const struct verify_finding *f)
{
    *(uint32_t *)arg += strcmp(f->name, "experts_down") == 0 || strcmp(f->name, "moe") == 0;
    return true;
}

// Every command on both devices: experts too.
static void every_command_agrees_with_the_plain_loops(void **state)
{
    static const char *const experts[] = { "cpu", "cpu:1" };
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        uint32_t n_experts = 0;
        struct verification v = { .n_rows = 17, .on_command = count_finding, .arg = &n_experts, .n_bad = 1 };
        struct err err = { 0 };
        o.model = MIXTURE("qwen3moe");
        o.device = "cpu";
        o.experts = experts[i];
        assert_ok(engine_verify(&o, &v, &err), &err);
        assert_int_equal(v.n_bad, 0);
        struct model_file *file;
        struct model m;
        assert_ok(model_file_open(&file, o.model, &err) && model_bind(&m, file, &err), &err);
        assert_int_equal(n_experts, m.config.n_layers);
        model_release(&m);
        model_file_close(file);
    }
}

static void bad_words_are_refused(void **state)
{
    static const struct {
        const char *model, *experts, *message;
    } cases[] = {
        { MIXTURE("mixtral"), "gpu", "experts \"gpu\": want cpu" },
        { MIXTURE("mixtral"), "cpu:", "experts \"cpu:\": want cpu" },
        { MIXTURE("mixtral"), "cpu:0", "experts \"cpu:0\": want cpu" },
        { MIXTURE("mixtral"), "cpu:-1", "experts \"cpu:-1\": want cpu" },
        { MIXTURE("mixtral"), "cpu,cpu", "experts \"cpu,cpu\": want cpu" },
        { MIXTURE("mixtral"), "cpu:1x", "experts \"cpu:1x\": want cpu" },
        { MIXTURE("qwen3"), "cpu", "this model has no experts" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_error error = { 0 };
        o.model = cases[i].model;
        o.device = "cpu";
        o.experts = cases[i].experts;
        assert_null(ingot_engine_open(&o, &error));
        if (!strstr(error.message, cases[i].message))
            fail_msg("message '%s' does not contain '%s'", error.message, cases[i].message);
    }
}

// The probe plays layers with their experts elsewhere, too; a plan chooses and an engine opens by it.
static void a_plan_counts_them(void **state)
{
    static const char *const experts[] = { NULL, "cpu:1", "cpu" };
    struct plan *p = calloc(1, sizeof *p);
    uint64_t weights[3];
    (void)state;

    for (int i = 0; i < 3; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct err err = { 0 };
        o.model = MIXTURE("qwen3moe");
        o.device = "cpu,cpu:plain";
        o.experts = experts[i];
        assert_ok(engine_plan(&o, 0, p, &err), &err);
        assert_true(p->token_ns > 0 && p->prompt_ns > p->token_ns);
        assert_int_equal(p->speed[0].at[PROBE_ONE].away_ns > 0, i > 0);
        weights[i] = 0;
        for (uint32_t s = 0; s < p->placement.n; s++)
            weights[i] += p->need[s].weights;
        ingot_engine_close(open_or_fail(&o));
    }
    assert_true(weights[0] > weights[1] && weights[1] > weights[2]);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_cpu_gives_the_same_bits),
        cmocka_unit_test(unlike_cpus_keep_to_the_gates),
        cmocka_unit_test(every_weight_is_on_one_device),
        cmocka_unit_test(layers_are_the_last_that_have_experts),
        cmocka_unit_test(every_command_agrees_with_the_plain_loops),
        cmocka_unit_test(a_plan_counts_them),
        cmocka_unit_test(bad_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
